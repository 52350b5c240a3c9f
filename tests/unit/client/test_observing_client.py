"""The client records the path of a value in a reply, without the value (Law 8)."""

import json

import pytest

from batchkiln.client.http_response import RawReply
from batchkiln.client.observing_client import ObservingClient


def seen(document: object, *, status: int = 200) -> ObservingClient:
    """Make a client that has met this reply last."""
    client = object.__new__(ObservingClient)
    client._last = RawReply(status, {}, json.dumps(document).encode())
    return client


@pytest.mark.parametrize(
    ("document", "value", "place"),
    [
        ({"cost_credits": 12}, 12, "cost_credits"),
        ({"credits": 12, "data": {"cost_credits": 12}}, 12, "data.cost_credits"),
        ({"balance": 12.7}, 12, "balance"),
        ({"cost": 11.2}, 12, "cost"),
        ({"files": [{"ref": "as_1"}]}, "as_1", "files[].ref"),
        ({"files": {"as_990121": {"upload_url": "u"}}}, "as_990121", "keys(files)"),
        ({"a": 1}, 12, None),
    ],
)
def test_the_place_of_a_value_is_reported(document: object, value: str | int, place: str | None) -> None:
    """The documented name first; a fraction where it was rounded; a map's key as one."""
    assert seen(document).path_of(value, "cost_credits") == place


def test_other_places_are_texts_or_links() -> None:
    """What may be meant instead, without what was read."""
    client = seen({"id": "a1", "handle": "b2", "url": "https://x.invalid/1", "is_ready": True})

    assert client.other_paths("a1", are_links=False) == ["handle"]
    assert client.other_paths("a1", are_links=True) == ["url"]


def test_a_refusal_teaches_no_types() -> None:
    """Only successes are held against later ones."""
    assert seen({"error": {}}, status=400).last_types() == {}


def test_what_is_no_json_is_reported_as_that() -> None:
    """A page of a proxy is not repeated."""
    client = object.__new__(ObservingClient)
    client._last = RawReply(502, {}, b"<html>secret</html>")

    assert client.describe_last() == "502, no JSON"
