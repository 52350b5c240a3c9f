"""Bodies of the upload calls, and what every reader of JSON is promised."""

import asyncio

import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from batchkiln_service.errors import ApiError
from batchkiln_service.rules.validation import check_completion, check_uploads
from batchkiln_service.transport.bodies import Deferred, deferred, parse_json, received

OWL: dict[str, object] = {"name": "owl.png", "type": "image/png", "size": 10}


def refused(deferred_value: Deferred[object]) -> tuple[int, str]:
    with pytest.raises(ApiError) as raised:
        deferred_value.get()
    return raised.value.status, raised.value.code


def test_files_are_understood() -> None:
    """Name, media type and size, which may be written as 10.0. Service section 2.3."""
    files = check_uploads({"files": [OWL, {**OWL, "size": 10.0}]})

    assert [(file.name, file.type, file.size) for file in files] == [("owl.png", "image/png", 10)] * 2


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ([], "the body"),
        ({}, "files"),
        ({"files": []}, "files"),
        ({"files": [OWL] * 6}, "files"),
        ({"files": [OWL], "owner": "me"}, "'owner'"),
        ({"files": [OWL, OWL, {**OWL, "type": "image/gif"}]}, "files[2].type"),
        ({"files": [{**OWL, "size": 0}]}, "files[0].size"),
        ({"files": [{**OWL, "size": 30 * 1024 * 1024 + 1}]}, "files[0].size"),
        ({"files": [{**OWL, "size": True}]}, "files[0].size"),
        ({"files": [{**OWL, "size": 1.5}]}, "files[0].size"),
        ({"files": [{**OWL, "name": ""}]}, "files[0].name"),
        ({"files": [{**OWL, "name": "x" * 256}]}, "files[0].name"),
        ({"files": [{**OWL, "weight": 1}]}, "'weight' in files[0]"),
    ],
)
def test_files_outside_of_the_limits_are_refused(body: object, place: str) -> None:
    """Five files, three types, 30 MiB; the field is named. Service section 4, upload flow 1."""
    with pytest.raises(ApiError) as raised:
        check_uploads(body)

    assert (raised.value.status, raised.value.code) == (422, "invalid_request")
    assert place in raised.value.message


@pytest.mark.parametrize("ids", [None, [], ["a"] * 6, [1], [""], ["x" * 65], "a"])
def test_asset_ids_are_one_to_five_texts(ids: object) -> None:
    """Service section 2.3."""
    with pytest.raises(ApiError, match="asset_ids"):
        check_completion({"asset_ids": ids})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"1e999",
        b'"\\ud800"',
        b'{"a": 1, "a": 1}',
        b'[{"b": {"a": 1, "c": 2, "a": 3}}]',
        b"[" * 1100 + b"]" * 1100,
        b"[" * 100_000,
        b"1" * 5000,
    ],
)
def test_what_is_no_plain_json_is_refused(content: bytes) -> None:
    """400, whatever is wrong with it: also a field that is given twice, of which nobody knows which is meant."""
    assert refused(deferred(lambda: parse_json(content))) == (400, "invalid_json")


def test_refusal_is_kept_through_later_steps() -> None:
    """The first refusal is the one that is told, once it is known who is asking."""
    first: Deferred[bytes] = Deferred(None, ApiError(415, "unsupported_media_type", "no"))

    assert refused(first.then(parse_json).then(check_completion)) == (415, "unsupported_media_type")


async def test_body_that_does_not_arrive_is_given_up() -> None:
    """A client that stops in the middle of its body is answered with 408."""
    connection = BaseProtocol(asyncio.get_running_loop())
    connection.connection_made(asyncio.Transport())
    stalled = StreamReader(connection, 2**16)
    stalled.feed_data(b'{"half": ')
    request = make_mocked_request("POST", "/", headers={"Content-Type": "application/json"}, payload=stalled)

    content = await received(request, within_seconds=0.01)

    assert refused(content.then(parse_json)) == (408, "request_timeout")
