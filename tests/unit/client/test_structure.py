"""Replies of services that share nothing with our own: what is found, and what is told where nothing is."""

import json
from datetime import timedelta
from typing import Any

import pytest

from batchkiln.client.http_response import RawReply, retry_after
from batchkiln.client.model_catalog import parse_catalog
from batchkiln.client.parse import parse_balance, parse_complete, parse_create, parse_prepare, parse_quote, parse_read
from batchkiln.client.reply_mapping import FieldHints, ReplyMapping
from batchkiln.client.uploads import numeric_ids
from batchkiln.core.error_text import describe_error
from batchkiln.core.response_rules import ReplyField, ReplyRules
from batchkiln.core.responses import (
    Accepted,
    AssetsReady,
    BalanceRead,
    CatalogRead,
    GenerationStatus,
    NotUnderstood,
    OutputLink,
    Quoted,
    RecordRead,
    UploadsPrepared,
)

PUT_A, PUT_B = "https://s.example/put/a?sig=1", "https://s.example/put/b?sig=2"
URL_A, URL_B = "https://s.example/a", "https://s.example/b"
HEADERS = {"Content-Length": "3"}
FULL: dict[str, Any] = {
    "model": "epsilon-2",
    "created_at": "2026-11-21T10:00:00Z",
    "credits": {"cost": 4},
    "outputs": [],
    "error": None,
}


def answer(document: object, status: int = 200, **headers: str) -> RawReply:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return RawReply(status, {"content-type": "application/json"} | told, json.dumps(document).encode())


def guided(**fields: str) -> ReplyMapping:
    return ReplyMapping(ReplyRules({ReplyField(name): path for name, path in fields.items()}))


# --- which object is the record ---


@pytest.mark.parametrize(
    "document",
    [
        {"id": "req_77", "status": "ok", "created": 1795000000, "data": {"id": "gen_1", "status": "processing"}},
        {"id": "req_77", "status": "success", "data": {"id": "gen_1", "status": "processing"}},
        {"data": {"id": "gen_1", "status": "processing"}, "meta": {"id": "req_77", "status": "success"}},
        {"id": "req_77", "model": "x", "status": "ok", "data": {"id": "gen_1", "status": "processing", **FULL}},
        {"id": "gen_1", "status": "processing", **FULL, "source": {"id": "gen_0", "status": "success", **FULL}},
        {"id": "gen_1", "status": "processing", "retry_of": {"id": "gen_0", "status": "failed", **FULL}},
        {"generation": {"id": "gen_1"}, "state": {"status": "processing", **FULL}},
        {"generation_id": "gen_1", "data": {"status": "processing", **FULL}},
        {"type": "generation", "id": "gen_1", "data": {"status": "processing", **FULL}},
        {"generations": {"gen_1f2e3d": {"status": "processing", **FULL}}},
        {"id": "gen_1", "status": {"value": "processing"}},
        {"ID": "gen_1", "STATUS": "processing"},
        json.dumps({"id": "gen_1", "status": "processing"}),
    ],
)
def test_the_record_is_distinguished_from_what_is_around_it(document: object) -> None:
    """An envelope's id is polled for nothing, and its paid result is lost. Laws 2 and 3."""
    reply = parse_create(answer(document, 202))

    assert isinstance(reply, Accepted)
    assert reply.record.id.startswith("gen_1")
    assert reply.record.status is GenerationStatus.PROCESSING


@pytest.mark.parametrize(
    "document",
    [
        {"id": "req_1", "status": "failed", "error": {"code": "invalid"}},
        {"id": "req_1", "data": {"status": "pending", "model": "m"}},
        [{"id": "gen_1", "status": "pending"}, {"id": "gen_2", "status": "pending"}],
        {"request": {"trace": "1"}, "data": {"status": "pending"}},
        {"errors": [{"id": "e_1", "status": "failed", "code": "x", "title": "no"}]},
        {"error": {"id": "e_1", "status": "failed", **FULL}},
    ],
)
def test_in_doubt_no_id_is_believed(document: object) -> None:
    """An error is no record, and of two ids none is chosen: the outcome stays unknown. Law 2."""
    assert isinstance(parse_create(answer(document, 202)), NotUnderstood)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"status": "processing"}, GenerationStatus.PROCESSING),
        ({"status": "success", **FULL}, GenerationStatus.SUCCESS),
        ({"id": "GEN_1", "status": "failed"}, GenerationStatus.FAILED),
        ({"id": "internal-5", "task_id": "gen_1", "status": "failed"}, GenerationStatus.FAILED),
        ([{"id": "x", "status": "failed"}, {"id": "gen_1", "status": "pending"}], GenerationStatus.PENDING),
        ({"status": "failed", "message": "internal"}, None),
        ({"id": "gen_2", "status": "failed"}, None),
        ({"id": "req_1", "status": "ok", "data": {"id": "gen_2", "status": "failed", **FULL}}, None),
    ],
)
def test_a_read_is_about_the_id_that_was_asked_for(document: object, expected: GenerationStatus | None) -> None:
    """Without an id, or with it in other letter case, it is meant; with plainly another one it is not. Law 3."""
    reply = parse_read(answer(document), "gen_1")

    assert (reply.record.status if isinstance(reply, RecordRead) else None) is expected
    if isinstance(reply, RecordRead):
        assert reply.record.id == "gen_1"


def test_an_unknown_status_keeps_its_outputs() -> None:
    """Listed outputs can be fetched under any status word. Service section 3."""
    reply = parse_read(answer({"id": "g", "status": "polishing", "outputs": [{"id": "o1", "url": URL_A}]}), "g")

    assert isinstance(reply, RecordRead)
    assert reply.record.status is GenerationStatus.UNKNOWN
    assert reply.record.outputs == (OutputLink("", URL_A, None, "o1"),)


@pytest.mark.parametrize(
    "outputs",
    [
        [{"type": "video", "url": URL_A, "thumbnail_url": URL_B}, {"type": "image", "url": URL_B}],
        {"items": [{"type": "video", "file": {"url": URL_A}}, {"type": "image", "file": {"url": URL_B}}]},
        {"video": {"url": URL_A}, "image": {"url": URL_B}},
        {"video": URL_A, "image": URL_B},
        [{"type": "video", "url": {"href": URL_A}}, {"type": "image", "url": {"href": URL_B}}],
        [{"type": "video", "url": URL_A, "preview": {"url": "https://s.example/p"}}, {"type": "image", "url": URL_B}],
    ],
)
def test_outputs_in_any_sensible_shape(outputs: object) -> None:
    """Outputs are found by `url` at any depth; previews are ignored. Service section 2.1."""
    reply = parse_read(answer({"id": "g", "status": "success", "outputs": outputs}), "g")

    assert isinstance(reply, RecordRead)
    assert [(link.type, link.url) for link in reply.record.outputs] == [("video", URL_A), ("image", URL_B)]


# --- prices and balances ---


@pytest.mark.parametrize("document", [{"credits": 500, "cost": 3}, {"total": 12, "items": [{"cost": 10}, {"cost": 2}]}])
def test_a_price_of_two_readings_is_not_guessed(document: object) -> None:
    """It is reported with the configuration line that would decide it. Law 10."""
    reply = parse_quote(answer(document))

    assert isinstance(reply, NotUnderstood)
    assert str(reply.remedy).startswith("replies: {fields: {price: '")
    assert "500" not in describe_error(reply)


@pytest.mark.parametrize(
    ("document", "left"),
    [
        ({"balance": {"total": 120, "subscription": 100, "purchased": 20}}, 120),
        ({"balance": 120, "reserved": 4, "daily_remaining": 1990}, 120),
        ({"balance": 120, "remaining": 80}, None),
        ({"account": {"id": 5, "credits": 120}}, 120),
        ({"requests_remaining": 59, "available": "120.7"}, 120),
    ],
)
def test_a_balance_is_only_what_is_left(document: object, left: int | None) -> None:
    """Rounded down; where two figures could be meant, none is. Service section 2.4."""
    assert parse_balance(answer(document)) == BalanceRead(left)


# --- uploads ---

STATE = {"expires_at": "2026-11-21T10:05:00Z", "status": "pending", "method": "PUT"}


@pytest.mark.parametrize(
    "document",
    [
        {
            "assets": [{"id": "ast_1a"}, {"id": "ast_2b"}],
            "uploads": [
                {"upload_url": PUT_A, "upload_headers": HEADERS},
                {"upload_url": PUT_B, "upload_headers": HEADERS},
            ],
        },
        {"asset_ids": ["ast_1a", "ast_2b"], "upload_urls": [PUT_A, PUT_B], "upload_headers": [HEADERS, HEADERS]},
        {
            "asset_ids": {"b.png": "ast_2b", "a.png": "ast_1a"},
            "upload_url": {"a.png": PUT_A, "b.png": PUT_B},
            "upload_headers": {"a.png": HEADERS, "b.png": HEADERS},
        },
        {
            "ast_1f2e3d": {"upload_url": PUT_A, "upload_headers": HEADERS, **STATE},
            "ast_2f2e3d": {"upload_url": PUT_B, "upload_headers": HEADERS, **STATE},
        },
        {
            "files": [
                {
                    "upload_url": PUT_A,
                    "upload_headers": HEADERS,
                    "blob": "ast_1a",
                    "position": 0,
                    "etag": "e1",
                    **STATE,
                },
                {
                    "upload_url": PUT_B,
                    "upload_headers": HEADERS,
                    "blob": "ast_2b",
                    "position": 1,
                    "etag": "e2",
                    **STATE,
                },
            ]
        },
        {
            "files": [
                {"upload_url": PUT_B, "upload_headers": HEADERS, "asset": {"id": "ast_2b"}, "index": 1},
                {"upload_url": PUT_A, "upload_headers": HEADERS, "asset": {"id": "ast_1a"}, "index": 0},
            ]
        },
        {
            "upload": {
                "id": "upl_77",
                "parts": [
                    {
                        "file": "a.png",
                        "target": {"upload_url": {"href": PUT_A}, "upload_headers": HEADERS},
                        "ref": "ast_1a",
                    },
                    {
                        "file": "b.png",
                        "target": {"upload_url": {"href": PUT_B}, "upload_headers": HEADERS},
                        "ref": "ast_2b",
                    },
                ],
            }
        },
    ],
)
def test_tickets_of_strange_shapes(document: object) -> None:
    """The identifier by its name, its place, or since nothing else is left. Service section 2.3."""
    reply = parse_prepare(answer(document), ["a.png", "b.png"])

    assert isinstance(reply, UploadsPrepared)
    assert [(ticket.asset_id[:5], ticket.url) for ticket in reply.tickets] == [("ast_1", PUT_A), ("ast_2", PUT_B)]
    assert all(ticket.headers == (("Content-Length", "3"),) for ticket in reply.tickets)


@pytest.mark.parametrize(
    ("document", "asset_id"),
    [
        ({"id": "req_1", "files": [{"upload_url": PUT_A, "key": "k_1a2b"}]}, "k_1a2b"),
        ({"upload": {"id": "upl_1", "upload_url": PUT_A}, "asset": {"id": "ast_1"}}, "ast_1"),
        ({"request_id": "req_1", "data": {"upload_url": PUT_A, "blob": "ast_1a", **STATE}}, "ast_1a"),
        ({"files": {"ast_1f2e3d": {"upload_url": PUT_A}}}, "ast_1f2e3d"),
        ({"upload_url": PUT_A, "id": 90071}, "90071"),
    ],
)
def test_one_file_alone(document: object, asset_id: str) -> None:
    """Nothing can be compared, so what is nearest to the url counts first. Service section 2.3."""
    reply = parse_prepare(answer(document), ["a.png"])

    assert isinstance(reply, UploadsPrepared)
    assert reply.tickets[0].asset_id == asset_id


def test_identifiers_that_are_numbers_are_known_as_such() -> None:
    """A completion names them as they came: a strict service takes no text for a number."""
    document = {"files": [{"upload_url": PUT_A, "id": 90071}, {"upload_url": PUT_B, "id": "90072"}], "note": "x"}

    assert numeric_ids(document, ["90071", "90072"]) == {"90071"}


def test_what_the_description_says_comes_before_our_own_reading() -> None:
    """`id` looks like it, and the service says that `blob` is it."""
    document = {"files": [{"upload_url": PUT_A, "id": "upl_1", "blob": "ast_1"}]}
    reply = parse_prepare(answer(document), ["a.png"], ReplyMapping(hints=FieldHints(asset_id=("files", "blob"))))

    assert isinstance(reply, UploadsPrepared)
    assert reply.tickets[0].asset_id == "ast_1"


def test_an_identifier_of_two_readings_is_not_guessed() -> None:
    """Nothing is uploaded for an uncertain id; the error names the next step. Law 10."""
    entry = {"upload_url": PUT_A, "upload_headers": HEADERS, "blob": "x-1a2b3c", "thing": "y-1a2b3c"}
    reply = parse_prepare(answer({"files": [entry]}), ["a.png"])

    assert isinstance(reply, NotUnderstood)
    assert reply.remedy == "replies: {fields: {asset_id: 'files[].blob'}}"
    assert not {"x-1a2b3c", "sig", "put/a"} & set(describe_error(reply).replace("'", " ").split())


@pytest.mark.parametrize(
    "document",
    [
        {"asset_ids": ["b1", "a1"], "urls": [URL_B, URL_A]},
        {"results": [{"asset": {"id": "b1"}, "file": {"url": URL_B}}, {"asset": {"id": "a1"}, "file": {"url": URL_A}}]},
        {"data": {"a1": {"links": {"url": URL_A}}, "b1": {"links": {"url": URL_B}}}},
        {"url": {"b1": URL_B, "a1": URL_A}},
        {"assets": [URL_A, URL_B]},
        {
            "assets": [
                {"url": URL_A, "preview": {"url": "https://p/1"}},
                {"url": URL_B, "preview": {"url": "https://p/2"}},
            ]
        },
    ],
)
def test_asset_urls_of_strange_shapes(document: object) -> None:
    """URLs are matched by id if the reply has ids, else by position. Service section 2.3."""
    assert parse_complete(answer(document), ["a1", "b1"]) == AssetsReady((URL_A, URL_B))


# --- the catalog ---


def test_a_catalog_is_found_by_its_public_ids() -> None:
    """However it is grouped, the documented ids anchor it. Service section 1."""
    document = {"providers": [{"name": "alpha", "list": [{"ref": {"id": "alpha-2.5"}, "modes": ["text-to-video"]}]}]}
    document["providers"].append(
        {"name": "delta", "list": [{"ref": {"id": "delta-image-2"}, "modes": ["text-to-image"]}]}
    )
    reply = parse_catalog(answer(document))

    assert isinstance(reply, CatalogRead)
    assert {"alpha-2.5", "delta-image-2"} <= {model.id for model in reply.models}


# --- what a person says ---


def test_configured_paths_are_believed() -> None:
    """Each open field by its path. Contract, section 10."""
    ticket = {"n": 1, "b": {"x": "ast_1"}, "to": PUT_A, "with": HEADERS}
    prepared = parse_prepare(
        answer({"l": [ticket]}),
        ["a.png"],
        guided(asset_id="l[].b.x", upload_url="l[].to", upload_headers='l[]."with"'),
    )
    created = parse_create(answer({"a": {"b": "G1", "st": "pending"}}, 202), guided(generation_id="a.b", status="a.st"))

    assert isinstance(prepared, UploadsPrepared)
    assert (prepared.tickets[0].asset_id, prepared.tickets[0].url) == ("ast_1", PUT_A)
    assert isinstance(created, Accepted)
    assert (created.record.id, created.record.status) == ("G1", GenerationStatus.PENDING)
    assert parse_quote(answer({"credits": 9, "x": [7]}), guided(price="x")) == Quoted(7)
    assert parse_balance(answer({"balance": 9, "x": {"y": "7.9"}}), guided(balance="x.y")) == BalanceRead(7)
    assert parse_complete(answer({"z": [URL_A]}), ["a1"], guided(asset_url="z")) == AssetsReady((URL_A,))


def test_a_configured_path_that_finds_nothing_is_reported() -> None:
    """No other reading takes its place: a person said where it stands."""
    reply = parse_quote(answer({"cost_credits": 4}), guided(price="data.cost"))

    assert isinstance(reply, NotUnderstood)
    assert "data.cost" in reply.lacking
    assert "replies.fields.price" in reply.lacking


# --- waits ---

DATE = {"date": "Sat, 21 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry_after": "30s"}, {}, 30),
        ({"retry_after": "1m30s"}, {}, 90),
        ({"retry_after": "2 minutes"}, {}, 120),
        ({"retry_after": "500ms"}, {}, 0.5),
        ({"retry_after": "2026-11-21T10:01:00Z", **DATE}, {}, 60),
        ({"retry_after": "2026-11-21T09:01:00Z", **DATE}, {}, 0),
        ({"retry_after": "1795255260", **DATE}, {}, 60),
        ({"retry_after": "-5"}, {}, 0),
        ({"retry_after": "0"}, {}, 0),
        ({"retry_after": "7, 7"}, {}, 7),
        ({"retry_after_ms": "1500"}, {}, 1.5),
        ({"retry_after": "soon", "retry_after_ms": "1500"}, {}, 1.5),
        ({"x_ratelimit_reset": "12"}, {}, 12),
        ({"x_ratelimit_reset": "1795255260", **DATE}, {}, 60),
        ({"x_ratelimit_reset": "1795255260"}, {}, None),
        ({"x_ratelimit_reset": "1795255260", "date": "Sat, 21 Nov 2020 10:00:00 GMT"}, {}, None),
        ({}, {"retry_after": 9}, 9),
        ({}, {"error": {"retryAfterSeconds": "9"}}, 9),
        ({}, {"error": {"retry_after_ms": 900}}, 0.9),
        ({}, {"error": {"details": [{"@type": "RetryInfo", "retryDelay": "9s"}]}}, 9),
        ({"retry_after": "9" * 5000}, {}, None),
        ({"retry_after": "1 fortnight"}, {}, None),
        ({}, {}, None),
    ],
)
def test_a_wait_in_every_form(headers: dict[str, str], body: object, expected: float | None) -> None:
    """Headers first, then the body; never negative, and None where nothing can be read. Service section 7."""
    wait = retry_after(answer(body, 429, **headers))

    assert wait == (None if expected is None else timedelta(seconds=expected))
