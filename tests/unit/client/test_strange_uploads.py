"""Uploads of services that nobody has seen: whose id an id is, and whose link a link (contract, section 8)."""

import json
from typing import Any

import pytest

from batchkiln.client.parse import parse_complete, parse_prepare
from batchkiln.client.raw import RawReply
from batchkiln.core.replies import AssetsReady, UploadsPrepared

LINKS = ["https://s.example/1?sig=a", "https://s.example/2?sig=b"]
HEADERS: list[Any] = [{"Content-Length": "3"}, {"Content-Length": "4"}]
NAMES = ["a.png", "b.png"]


def answer(document: object) -> RawReply:
    return RawReply(200, {"content-type": "application/json"}, json.dumps(document).encode())


def tickets(document: object, names: list[str]) -> list[tuple[str, str, dict[str, str]]]:
    reply = parse_prepare(answer(document), names)
    assert isinstance(reply, UploadsPrepared), reply
    return [(ticket.asset_id, ticket.url, dict(ticket.headers)) for ticket in reply.tickets]


def urls(document: object, ids: list[str]) -> list[str]:
    reply = parse_complete(answer(document), ids)
    assert isinstance(reply, AssetsReady), reply
    return list(reply.urls)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["ids", "refs", "file-ids", "tokens", "assets", "handles"])
def test_lists_side_by_side_are_read_row_by_row(name: str, count: int) -> None:
    """Also under names in the singular, below an envelope with an id of its own. Service section 2.3."""
    ids = ["9f86d081884c", "60303ae22b99"]
    columns = {name: ids[:count], "upload_url": LINKS[:count], "upload_headers": HEADERS[:count]}
    document = {"id": "req_77", "status": "ok", "created": 1772355600, "data": columns}

    expected = list(zip(ids, LINKS, HEADERS, strict=True))[:count]
    assert tickets(document, NAMES[:count]) == expected


def test_headers_as_pairs_side_by_side_are_each_files_own() -> None:
    """One file's headers never go to another's place. Service section 2.3."""
    pairs = [[["Content-Length", "3"]], [["Content-Length", "4"]]]
    document = {"refs": ["r-9f86d0", "r-60303a"], "upload_url": LINKS, "upload_headers": pairs}

    assert [each[2] for each in tickets(document, NAMES)] == HEADERS


def test_what_stands_beside_the_lists_counts_for_each_file() -> None:
    """Headers told once are sent with each. Service section 2.3."""
    document = {"count": 2, "asset_ids": ["r-9f86d0", "r-60303a"], "upload_url": LINKS, "upload_headers": {"x-a": "b"}}

    assert tickets(document, NAMES) == [("r-9f86d0", LINKS[0], {"x-a": "b"}), ("r-60303a", LINKS[1], {"x-a": "b"})]


@pytest.mark.parametrize("header", [{"name": "Content-Length", "value": "3"}, ["Content-Length", "3"]])
def test_headers_one_by_one_are_no_list_by_file(header: Any) -> None:  # noqa: ANN401
    """As many headers as files are still the headers of each. Service section 2.3."""
    document = {"asset_ids": ["r-9f86d0"], "upload_urls": LINKS[:1], "upload_headers": [header]}

    assert tickets(document, NAMES[:1]) == [("r-9f86d0", LINKS[0], {"Content-Length": "3"})]
