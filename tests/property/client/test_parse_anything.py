"""Whatever a service sends is a reply: the parser is total."""

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings, strategies as st

from batchkiln.client import parse
from batchkiln.client.http_response import RawReply
from batchkiln.client.model_catalog import parse_catalog
from batchkiln.client.openapi import hints_from_openapi, mismatches
from batchkiln.client.reply_mapping import FieldHints
from batchkiln.core.responses import Accepted, NoResponse, NotUnderstood
from support.examples import examples

NAMES = st.sampled_from(
    [
        *("id", "status", "data", "error", "code", "message", "detail", "loc", "credits", "cost", "outputs", "url"),
        *("files", "assets", "asset", "upload", "asset_id", "upload_url", "upload_headers", "name", "value", "type"),
        *("models", "modes", "resolution", "durations", "min", "max", "step", "prompt", "inputs", "created_at"),
        *("info", "attributes", "quote", "balance", "upload_urls", "asset_ids", "cost_credits", "retry_after"),
        *("paths", "/uploads", "/images", "post", "responses", "200", "content", "application/json", "schema"),
        *("properties", "items", "oneOf", "additionalProperties", "description", "enum"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.sampled_from(["", "success", "1e999", "-0", "5s", "https://h/x", "2026-11-21", "9999-12-31T23:59:59-23:59"])
    | st.text(max_size=8)
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=6),
    max_leaves=20,
)


def _told(document: object) -> set[str]:
    """Give every text and number of a document, and its names."""
    if isinstance(document, dict):
        return {name.strip() for name in document}.union(*(_told(value) for value in document.values()))
    if isinstance(document, list):
        return set().union(*(_told(value) for value in document))
    return {str(document).strip()}


PARSERS: list[Callable[[RawReply], object]] = [
    parse.parse_create,
    lambda raw: parse.parse_read(raw, "g"),
    parse.parse_quote,
    lambda raw: parse.parse_prepare(raw, ["a", "b"]),
    lambda raw: parse.parse_complete(raw, ["a"]),
    parse.parse_balance,
    parse.parse_describe,
    parse_catalog,
]


@settings(max_examples=examples(150), deadline=None)
@given(
    document=DOCUMENTS,
    status=st.sampled_from([200, 202, 302, 400, 403, 404, 409, 422, 429, 503]),
    retry_after=st.text(max_size=12) | st.sampled_from(["1e9", "Sat, 21 Nov 2026 10:00:00 GMT"]),
)
def test_no_document_breaks_the_parser(document: object, status: int, retry_after: str) -> None:
    """Any JSON under any status becomes a reply; only a 2xx with an id accepts a create. Law 2."""
    headers = {"content-type": "application/json", "retry-after": retry_after, "date": retry_after}
    raw = RawReply(status, headers, json.dumps(document).encode("utf-8", "surrogatepass"))

    replies = [read(raw) for read in PARSERS]

    assert None not in replies
    created = replies[0]
    assert not isinstance(created, Accepted) or (status < 300 and created.record.id in _told(document))
    if isinstance(document, dict):
        assert isinstance(hints_from_openapi(document), FieldHints)
        assert isinstance(mismatches(document), list)


@settings(max_examples=examples(100), deadline=None)
@example(body=b"{}", kind="")
@given(body=st.binary(max_size=60), kind=st.sampled_from(["", "text/html", "application/json", "image/png"]))
def test_no_bytes_break_the_parser(body: bytes, kind: str) -> None:
    """Any bytes under any content type become a reply, and never an accepted create. Law 2."""
    assert isinstance(parse.parse_create(RawReply(202, {"content-type": kind}, body)), NoResponse | NotUnderstood)


@pytest.mark.parametrize("body", [b"[" * 200_000, b"1" * 10_000, b'{"a":' * 50_000, b"<title" * 50_000, b"a?" * 99_000])
def test_hostile_bodies_are_read_quickly(body: bytes) -> None:
    """Depth and length cost no stack and no time."""
    for status in (202, 400):
        assert isinstance(parse.parse_create(RawReply(status, {}, body)), NoResponse)
