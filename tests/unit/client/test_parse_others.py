"""Uploads, balance, catalog, description and error texts: which bytes become which reply."""

import json

import pytest

from batchkiln.client.error_responses import read_error
from batchkiln.client.http_response import RawReply
from batchkiln.client.model_catalog import parse_catalog
from batchkiln.client.parse import parse_balance, parse_complete, parse_describe, parse_prepare
from batchkiln.client.redact import safe_text
from batchkiln.core.responses import (
    AssetsReady,
    BalanceRead,
    CatalogRead,
    Described,
    ModelEntry,
    NoResponse,
    NotUnderstood,
    RefusalKind,
    Refused,
    UploadsPrepared,
    UploadTicket,
)

PUT_A, PUT_B = "https://s.example/put/a?sig=1", "https://s.example/put/b?sig=2"
URL_A, URL_B = "https://s.example/a", "https://s.example/b"
HEADERS = {"Content-Type": "image/png", "Content-Length": 3}
PAIRS = (("Content-Type", "image/png"), ("Content-Length", "3"))
TICKETS = UploadsPrepared((UploadTicket("a1", PUT_A, PAIRS), UploadTicket("b1", PUT_B, PAIRS)))


def answer(document: object, status: int = 200, kind: str = "application/json") -> RawReply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return RawReply(status, {"content-type": kind}, body)


def entry(asset_id: str, url: str, **more: object) -> dict[str, object]:
    return {"asset_id": asset_id, "upload_url": url, "upload_headers": HEADERS, **more}


@pytest.mark.parametrize(
    "document",
    [
        {"files": [entry("a1", PUT_A), entry("b1", PUT_B)]},
        {"uploads": [entry("b1", PUT_B, name="b.png"), entry("a1", PUT_A, name="a.png")]},
        [entry("a1", PUT_A), entry("b1", PUT_B)],
        {"data": {"assets": [entry("a1", PUT_A), entry("b1", PUT_B)]}},
        {"data": [{"id": "a1", "putUrl": PUT_A, "headers": PAIRS}, {"id": "b1", "url": PUT_B, "headers": PAIRS}]},
        {"files": {"b.png": entry("b1", PUT_B), "a.png": entry("a1", PUT_A)}},
        {
            "assets": [
                {"asset": {"id": "a1", "url": URL_A}, "upload": {"upload_url": PUT_A, "headers": HEADERS}},
                {
                    "assetId": "b1",
                    "uploadUrl": PUT_B,
                    "uploadHeaders": [{"name": name, "value": value} for name, value in PAIRS],
                },
            ]
        },
    ],
)
def test_tickets_in_any_sensible_shape(document: object) -> None:
    """Each file gets its own ticket, by name if the reply has names, else by position."""
    assert parse_prepare(answer(document), ["a.png", "b.png"]) == TICKETS


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"files": [entry("a1", PUT_A)]},
        {"files": [entry("a1", PUT_A), entry("b1", PUT_B), entry("c1", PUT_B)]},
        {"files": [entry("a1", PUT_A), {"asset_id": "b1"}]},
        {"files": [entry("a1", PUT_A), {"upload_url": PUT_B}]},
        {"files": [entry("a1", PUT_A), entry("b1", PUT_B) | {"upload_headers": {"X": "a\r\nEvil: 1"}}]},
        {"files": [entry("a1", PUT_A), entry("b1", "ftp://s.example/x")]},
        b"<html>",
    ],
)
def test_a_preparation_without_a_ticket_for_each_file_is_no_response(document: object) -> None:
    """No file is sent on a guess of where it belongs."""
    assert isinstance(parse_prepare(answer(document), ["a.png", "b.png"]), NotUnderstood | NoResponse)


@pytest.mark.parametrize(
    "document",
    [
        {"assets": [{"asset_id": "a1", "url": URL_A}, {"asset_id": "b1", "url": URL_B}]},
        {"assets": [{"id": "b1", "url": URL_B}, {"id": "a1", "url": URL_A}]},
        {"assets": {"b1": URL_B, "a1": URL_A}},
        {"assets": {"b1": {"url": URL_B}, "a1": {"url": URL_A}}},
        {"urls": [URL_A, URL_B]},
        [{"url": URL_A}, {"url": URL_B}],
        {"data": {"files": [{"assetId": "a1", "assetUrl": URL_A}, {"assetId": "b1", "assetUrl": URL_B}]}},
        {"items": [{"asset": {"id": "b1", "url": URL_B}}, {"asset": {"id": "a1", "url": URL_A}}]},
    ],
)
def test_asset_urls_in_the_order_asked(document: object) -> None:
    """The url of one image is never used for another: by id where the reply tells ids, else by position."""
    assert parse_complete(answer(document), ["a1", "b1"]) == AssetsReady((URL_A, URL_B))


def test_a_single_asset_needs_no_list() -> None:
    """One asset may be answered by one object."""
    assert parse_complete(answer({"url": URL_A}), ["a1"]) == AssetsReady((URL_A,))
    assert parse_complete(answer({"asset": {"id": "a1", "url": URL_A}}), ["a1"]) == AssetsReady((URL_A,))


def test_an_asset_that_failed_its_check_is_gone() -> None:
    """An entry with an error instead of a url has to be uploaded again. Service rule 2.2.5."""
    document = {"assets": [{"id": "a1", "error": {"code": "too_large", "message": "no"}}]}
    result = parse_complete(answer(document), ["a1"])

    assert isinstance(result, Refused)
    assert result.kind is RefusalKind.ASSET_GONE


@pytest.mark.parametrize("document", [{}, {"assets": []}, {"assets": [{"id": "a1"}]}, b"<html>"])
def test_a_completion_without_each_url_is_no_response(document: object) -> None:
    """An asset without a url cannot be used."""
    assert isinstance(parse_complete(answer(document), ["a1"]), NotUnderstood | NoResponse)


@pytest.mark.parametrize(
    ("document", "credits_left"),
    [
        ({"balance": 120}, 120),
        ({"credits": "120.9"}, 120),
        ({"data": {"remainingCredits": 120}}, 120),
        ({"credits": {"remaining": 120, "total": 500}}, 120),
        ({"account": "main", "left": 120}, 120),
        ({"balance": 0}, 0),
        (b"120", 120),
        ({"a": 1, "b": 2}, None),
        ({}, None),
    ],
)
def test_a_balance_under_many_names(document: object, credits_left: int | None) -> None:
    """The field's name is not shown; what is not understood is said to be so. Service section 2.4."""
    assert parse_balance(answer(document)) == BalanceRead(credits_left)


FULL = ModelEntry(
    id="alpha-2.5",
    modes=frozenset({"text-to-video", "image-to-video"}),
    resolutions=frozenset({"720p", "1080p"}),
    aspect_ratios=frozenset({"16:9", "1:1"}),
    durations_seconds=frozenset({5, 10}),
    prompt_max_characters=2000,
    images_max=5,
)


@pytest.mark.parametrize(
    "model",
    [
        {
            "id": "alpha-2.5",
            "modes": ["text-to-video", "image-to-video"],
            "resolutions": ["720p", "1080p"],
            "aspect_ratios": ["16:9", "1:1"],
            "durations": [5, 10],
            "prompt_limit": 2000,
            "max_images": 5,
        },
        {
            "model": "alpha-2.5",
            "supportedModes": [{"mode": "text-to-video"}, {"id": "image-to-video"}],
            "parameters": {
                "resolution": {"enum": ["720p", "1080p"]},
                "aspectRatio": {"values": ["16:9", "1:1"]},
                "durationSeconds": {"options": ["5s", "10s"]},
            },
            "limits": {"prompt": {"max_length": 2000}, "inputs": {"images": {"max": 5}}},
        },
        {
            "id": "alpha-2.5",
            "modes": {
                "text-to-video": {"resolutions": ["720p"], "durations": {"min": 5, "max": 10, "step": 5}},
                "image-to-video": {"resolutions": ["720p", "1080p"], "max_input_images": 5, "aspect_ratios": ["1:1"]},
            },
            "aspect_ratio": "16:9",
            "prompt_limit_characters": "2000",
            "min_prompt_length": 9000,
            "max_output_images": 64,
        },
    ],
)
@pytest.mark.parametrize("wrapping", ["list", "data", "models", "by id", "kinds"])
def test_a_model_in_any_sensible_shape(model: dict[str, object], wrapping: str) -> None:
    """The same entry is read whatever its spelling; what differs by mode is united. Service section 2.4."""
    wrapped = {
        "list": [model],
        "data": {"object": "list", "data": [model]},
        "models": {"models": [model]},
        "by id": {"models": {"alpha-2.5": model}},
        "kinds": {"models": {"video": [model], "image": []}},
    }[wrapping]

    assert parse_catalog(answer(wrapped)) == CatalogRead((FULL,))


def test_what_a_catalog_does_not_tell_is_left_empty() -> None:
    """A bare name is a model of which nothing is known; what is no model is left out."""
    nothing: frozenset[str] = frozenset()
    bare = ModelEntry("beta-3.0", nothing, nothing, nothing, frozenset(), None, None)

    assert parse_catalog(answer({"models": ["beta-3.0", {"x": 1}, 7, None]})) == CatalogRead((bare,))
    assert parse_catalog(answer({"hello": "world"})) == CatalogRead(())
    assert isinstance(parse_catalog(answer(b"<html>")), NoResponse)


def test_the_description_tells_its_title() -> None:
    """A document without one is still an answer; a page is not."""
    for document, title, version in (
        ({"info": {"title": "T", "version": 1}}, "T", "1"),
        ({"openapi": "3.1.0"}, None, None),
    ):
        assert parse_describe(answer(document)) == Described(title, version, document)
    assert isinstance(parse_describe(answer(b"<html>")), NoResponse)


@pytest.mark.parametrize(
    ("body", "kind", "code", "message"),
    [
        ({"error": {"code": "c", "message": "m"}}, "application/json", "c", "m"),
        ({"error": "m"}, "application/json", "http_400", "m"),
        ({"error": "invalid_request", "message": "m"}, "application/json", "invalid_request", "m"),
        ({"code": "c", "message": "m"}, "application/json", "c", "m"),
        ({"detail": "m"}, "application/json", "http_400", "m"),
        ({"detail": [{"loc": ["body", "x"], "msg": "m", "type": "t"}]}, "application/json", "t", "body.x: m"),
        ({"errors": [{"code": "c", "message": "m"}, {"message": "n"}]}, "application/json", "c", "m; n"),
        ({"type": "about:blank", "title": "t", "detail": "m"}, "application/problem+json", "http_400", "m"),
        (b"plain words", "text/plain", "http_400", "plain words"),
        (b"<html><TITLE>Sorry &amp; so</TITLE><p>long page", "text/html", "http_400", "Sorry & so"),
        (b"<p>no title", "text/html", "http_400", "an HTML page"),
        (b"\x00\x01\x02\xff", "application/octet-stream", "http_400", "Bad Request"),
        (b"", "", "http_400", "Bad Request"),
        ({}, "application/json", "http_400", "Bad Request"),
    ],
)
def test_error_bodies_of_every_shape(body: object, kind: str, code: str, message: str) -> None:
    """The shape of an error is not shown, so each usual one is read. Service section 7."""
    error = read_error(answer(body, 400, kind))

    assert (error.code, error.message) == (code, message)


def test_error_texts_are_bounded() -> None:
    """A long error does not fill the queue."""
    error = read_error(answer({"code": "c" * 999, "message": "m" * 9999}, 400))

    assert (len(error.code), len(error.message)) == (200, 500)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://s.example/a?sig=canary.", "see [link]"),
        ('"HTTPS:\\/\\/s.example\\/a?sig=canary"', '"[link]"'),
        ("path /files/a?sig=canary&x=1 gone", "path [link] gone"),
        ("s3://bucket/canary", "[link]"),
        ("Authorization: Bearer canary", "Authorization: [key]"),
        ("your key sk-canary is old", "your key [key] is old"),
        ("one\r\ntwo\x1b[31m\u202ethree", "one two [31m three"),
        ("really?", "really?"),
    ],
)
def test_no_link_and_no_key_in_a_kept_text(text: str, expected: str) -> None:
    """What is logged or stored never leads to the file or the account. Law 8."""
    assert safe_text(text, 100, ("sk-canary",)) == expected
