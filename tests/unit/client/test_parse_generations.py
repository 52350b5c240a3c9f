"""Creates, polls and quotes: which bytes become which reply."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from batchkiln.client.http_response import RawReply
from batchkiln.client.parse import parse_create, parse_quote, parse_read
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    AccountProblem,
    Busy,
    EdgeBlocked,
    GenerationRecord,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    NotFound,
    NotUnderstood,
    OutputLink,
    Quoted,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
    Unavailable,
)

LINK = "https://storage.example/a.png?sig=secret"
INSTANT = datetime(2026, 11, 21, 10, 0, 0, 250000, tzinfo=UTC)
DOCUMENTED = {
    "id": "gen_1",
    "model": "epsilon-2",
    "status": "success",
    "created_at": "2026-11-21T10:00:00.250Z",
    "credits": {"cost": 4},
    "outputs": [{"type": "image", "url": LINK, "expires_at": "2026-11-21T10:00:00.250Z"}],
    "error": None,
}
RECORD = GenerationRecord(
    id="gen_1",
    status=GenerationStatus.SUCCESS,
    status_word="success",
    created_at=INSTANT,
    cost_credits=4,
    outputs=(OutputLink("image", LINK, INSTANT),),
    error=None,
)


def answer(status: int, document: object, **headers: str) -> RawReply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    kind = "text/html" if body.startswith(b"<") else "application/json"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return RawReply(status, {"content-type": kind} | named, body)


def failure(code: str, message: str = "no") -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


@pytest.mark.parametrize(
    "document",
    [
        DOCUMENTED,
        DOCUMENTED | {"unheard_of": {"id": "other", "status": "failed"}},
        {"data": DOCUMENTED},
        {"id": "req_7", "status": "ok", "data": DOCUMENTED},
        {"success": True, "result": {"generation": DOCUMENTED}},
        {"data": [DOCUMENTED]},
        {"data": {"id": "gen_1", "type": "generation", "attributes": {k: DOCUMENTED[k] for k in list(DOCUMENTED)[1:]}}},
        {"status": "failed", "created_at": "2020-01-01T00:00:00Z", "credits": 0, "model": "x", "data": DOCUMENTED},
        [DOCUMENTED],
        {**DOCUMENTED, "created_at": int(INSTANT.timestamp() * 1000)},
        {**DOCUMENTED, "created_at": "2026-11-21T12:00:00.250+02:00", "credits": 4},
        {**DOCUMENTED, "created_at": INSTANT.timestamp(), "credits": "4"},
        {**DOCUMENTED, "credits": None, "cost_credits": 3.2},
        {**DOCUMENTED, "outputs": DOCUMENTED["outputs"][0]},  # type: ignore[index]  # a list in this literal
        {**{k: v for k, v in DOCUMENTED.items() if k != "id"}, "generationId": "gen_1", "id": None},
        {
            "taskId": "gen_1",
            "State": "success",
            "createdAt": "2026-11-21T10:00:00.250",
            "cost": 4,
            "output": [{"kind": "image", "downloadUrl": LINK, "expiresAt": "2026-11-21T10:00:00.250Z"}],
        },
    ],
)
def test_a_record_is_found_in_any_sensible_shape(document: object) -> None:
    """The same generation is read whatever its wrapping and spelling (contract, section 8)."""
    assert parse_create(answer(202, document)) == Accepted(RECORD)
    assert parse_read(answer(200, document), "gen_1") == RecordRead(RECORD)


@pytest.mark.parametrize(
    ("word", "status", "kept"),
    [
        ("Pending", GenerationStatus.PENDING, "Pending"),
        (" PROCESSING ", GenerationStatus.PROCESSING, "PROCESSING"),
        ("canceled", GenerationStatus.CANCELED, "canceled"),
        ("Completed", GenerationStatus.SUCCESS, "Completed"),
        ("error", GenerationStatus.UNKNOWN, "error"),
        ("unknown", GenerationStatus.UNKNOWN, "unknown"),
        ("w" * 500, GenerationStatus.UNKNOWN, "w" * 59 + "…"),
        (None, GenerationStatus.UNKNOWN, ""),
        (7, GenerationStatus.UNKNOWN, "7"),
        (["failed"], GenerationStatus.UNKNOWN, ""),
    ],
)
def test_an_unknown_status_word_is_not_an_end(word: object, status: GenerationStatus, kept: str) -> None:
    """Only the documented words end a generation; others are kept for a person to see. Service section 3."""
    result = parse_read(answer(200, {"id": "g", "status": word}), "g")

    assert isinstance(result, RecordRead)
    assert (result.record.status, result.record.status_word) == (status, kept)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("credits", {"cost": -4}),
        ("credits", {"cost": True}),
        ("credits", {"cost": "many"}),
        ("credits", {"cost": 1e300}),
        ("credits", []),
        ("created_at", "soon"),
        ("created_at", 1e18),
        ("created_at", [1]),
        ("outputs", [{"url": "javascript:alert(1)"}, {"url": 5}, 7, None, {}]),
        ("outputs", "none yet"),
        ("error", {}),
        ("error", ""),
    ],
)
def test_a_field_that_is_not_understood_is_left_empty(field: str, value: object) -> None:
    """One odd field never costs the record: it is as good as missing."""
    result = parse_create(answer(202, {"id": "g", "status": "pending", field: value}))

    record = GenerationRecord("g", GenerationStatus.PENDING, "pending", None, None, (), None)
    assert result == Accepted(record)


def test_an_error_of_a_record_is_kept_without_links() -> None:
    """Why a generation failed is kept; a signed link in it is not. Law 8."""
    document = {"id": "g", "status": "failed", "error": {"code": "moderated", "message": f"see {LINK}\x00 now"}}
    result = parse_read(answer(200, document), "g")

    assert isinstance(result, RecordRead)
    assert result.record.error is not None
    assert (result.record.error.code, result.record.error.message) == ("moderated", "see [link] now")


def test_an_output_link_may_be_a_bare_text() -> None:
    """A list of addresses is a list of outputs."""
    result = parse_read(answer(200, {"id": "g", "status": "success", "outputs": [LINK]}), "g")

    assert isinstance(result, RecordRead)
    assert result.record.outputs == (OutputLink("", LINK, None),)


def test_another_generations_record_is_not_believed() -> None:
    """A mixed-up reply would end the wrong item. Law 3."""
    assert isinstance(parse_read(answer(200, {"id": "other", "status": "failed"}), "g"), NotUnderstood)


NOTHING_CREATED = [
    (401, failure("unauthorized"), AccountProblem.KEY_REFUSED),
    (401, b"<title>Login</title>", AccountProblem.KEY_REFUSED),
    (402, failure("payment_required"), AccountProblem.NO_CREDITS),
    (
        402,
        failure("insufficient_credits", "the quote is 12 credits, more than the 3 that remain"),
        AccountProblem.NO_CREDITS,
    ),
    (403, failure("api_key_upgrade_required"), AccountProblem.UPGRADE_REQUIRED),
    (403, {"code": "api_key_upgrade_required", "message": "x"}, AccountProblem.UPGRADE_REQUIRED),
    (403, {"detail": {"code": "api_key_upgrade_required"}}, AccountProblem.UPGRADE_REQUIRED),
    (403, failure("forbidden", "An active subscription is required"), AccountProblem.NO_CREDITS),
    (403, failure("insufficient_credits"), AccountProblem.NO_CREDITS),
    (403, failure("wrong_api_key"), AccountProblem.FORBIDDEN),
    (403, {}, AccountProblem.FORBIDDEN),
]


@pytest.mark.parametrize(("status", "document", "problem"), NOTHING_CREATED)
def test_an_account_that_is_refused(status: int, document: object, problem: AccountProblem) -> None:
    """A refused key or account needs a person, whatever was called. Service rules 5.4 and 5.8."""
    for result in (
        parse_create(answer(status, document)),
        parse_read(answer(status, document), "g"),
        parse_quote(answer(status, document)),
    ):
        assert isinstance(result, AccountBlocked)
        assert result.problem is problem


@pytest.mark.parametrize("body", [b"<html>Blocked</html>", b"Forbidden", b"", b'"text"', b"[]", b"null"])
def test_a_403_that_is_no_json_object_is_the_edge(body: bytes) -> None:
    """The firewall before the API says nothing about account or request. Service section 7."""
    assert parse_create(answer(403, body)) == EdgeBlocked()
    assert parse_read(answer(403, body), "g") == EdgeBlocked()


REFUSALS = [
    (400, failure("invalid_request", "Unknown field foo"), RefusalKind.INVALID),
    (422, {"detail": [{"loc": ["body", "inputs"], "msg": "Field required", "type": "missing"}]}, RefusalKind.INVALID),
    (400, failure("external_url", "External image urls are not allowed"), RefusalKind.INVALID),
    (422, failure("model_not_found", "model delta-image-2 not found"), RefusalKind.INVALID),
    (404, failure("model_not_found", "no such model"), RefusalKind.INVALID),
    (422, failure("invalid", "max_cost_credits must be greater than 0"), RefusalKind.INVALID),
    (400, failure("invalid", "image mode is not available for this model"), RefusalKind.INVALID),
    (400, failure("prompt_too_long", "prompt exceeds 4000 characters"), RefusalKind.INVALID),
    (413, {"message": "too large"}, RefusalKind.INVALID),
    (418, {}, RefusalKind.INVALID),
    (400, failure("max_cost_exceeded"), RefusalKind.OVER_QUOTE),
    (422, failure("over_quote"), RefusalKind.OVER_QUOTE),
    (400, {"error": "Quote 12 is higher than max_cost_credits 10"}, RefusalKind.OVER_QUOTE),
    (402, failure("cost_limit", "the quote exceeds max_cost_credits"), RefusalKind.OVER_QUOTE),
    (409, failure("quote_exceeds_max_cost"), RefusalKind.OVER_QUOTE),
    (422, {"type": "about:blank", "title": "The price changed", "status": 422}, RefusalKind.OVER_QUOTE),
    (400, failure("asset_expired"), RefusalKind.ASSET_GONE),
    (404, failure("asset_not_found"), RefusalKind.ASSET_GONE),
    (410, failure("gone", "The uploaded asset has expired"), RefusalKind.ASSET_GONE),
    (422, failure("invalid_input", "input image not ready"), RefusalKind.ASSET_GONE),
    (400, failure("invalid", "Unknown asset a_1"), RefusalKind.ASSET_GONE),
    (400, failure("input_expired"), RefusalKind.ASSET_GONE),
    (403 + 19, failure("asset", "asset belongs to another account"), RefusalKind.ASSET_GONE),
]


@pytest.mark.parametrize(("status", "document", "kind"), REFUSALS)
def test_a_refusal_says_what_it_is_about(status: int, document: object, kind: RefusalKind) -> None:
    """A price that rose and an asset that is gone can be mended; the rest is the request itself. Law 2."""
    result = parse_create(answer(status, document))

    assert isinstance(result, Refused)
    assert result.kind is kind


@pytest.mark.parametrize("status", [400, 404, 405, 408, 413, 418, 422, 425])
@pytest.mark.parametrize("body", [b"<html><title>Nope</title></html>", b"bad request", b"", b"[]", b'{"error": '])
def test_a_refusal_that_is_no_json_object_is_no_outcome(status: int, body: bytes) -> None:
    """A proxy may have spoken, so the attempt is replayed and not given up. Law 2."""
    assert isinstance(parse_create(answer(status, body)), NoResponse)


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (200, {"status": "pending"}),
        (202, {}),
        (202, b""),
        (204, b""),
        (202, b'{"id": "gen_1", "sta'),
        (202, b"<html>"),
        (202, b"[" * 100_000),
        (202, b"\xff\xfe\x00"),
        (202, {"id": "x" * 501, "status": "pending"}),
        (202, {"id": "a\nb", "status": "pending"}),
        (202, {"error": {"id": "e1"}}),
        (200, {"id": "req_1", "error": {"code": "invalid"}}),
        (301, {"id": "gen_1", "status": "pending"}),
        (404, {"detail": "Not Found"}),
        (408, failure("timeout")),
    ],
)
def test_a_create_that_names_no_generation_has_no_outcome(status: int, document: object) -> None:
    """Neither accepted nor refused: it may have been charged, so it stays unresolved. Service rule 4.2."""
    assert isinstance(parse_create(answer(status, document)), NotUnderstood | NoResponse)


def test_a_conflict_is_the_key_unless_it_speaks_of_another_generation() -> None:
    """409 means other bytes under our key; another active generation is waited out. Service rule 4.3."""
    assert isinstance(parse_create(answer(409, failure("idempotency_conflict"))), IdempotencyConflict)
    assert isinstance(parse_create(answer(409, b"<html>")), IdempotencyConflict)
    assert isinstance(parse_create(answer(409, failure("idempotency", "concurrent use of the key"))), Busy)
    assert isinstance(parse_create(answer(409, failure("active_generation_exists"))), Busy)
    assert isinstance(parse_create(answer(422, failure("busy", "Another generation is in progress"))), Busy)


DATED = {"date": "Sat, 21 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry_after": "7"}, timedelta(seconds=7)),
        ({"retry_after": " 1.5 "}, timedelta(seconds=1.5)),
        ({"retry_after": "-3"}, timedelta(0)),
        ({"retry_after": "99999999999"}, timedelta(days=8)),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "Sat, 21 Nov 2026 10:01:00 GMT", **DATED}, timedelta(minutes=1)),
        ({"retry_after": "Sat, 21 Nov 2026 09:00:00 GMT", **DATED}, timedelta(0)),
        ({"retry_after": "Sat, 21 Nov 2026 10:01:00 GMT"}, None),
        ({"retry_after": "Sat, 99 Nov 2026 10:01:00 GMT", **DATED}, None),
    ],
)
def test_retry_after_in_every_form(headers: dict[str, str], expected: timedelta | None) -> None:
    """Seconds, or a date measured by the reply's own; never negative, never absurd. Service section 7."""
    throttled = parse_create(answer(429, b"<html>", **headers))
    unavailable = parse_read(answer(503, failure("down"), **headers), "g")

    assert isinstance(throttled, Throttled)
    assert isinstance(unavailable, Unavailable)
    assert (throttled.retry_after, unavailable.retry_after) == (expected, expected)


def test_a_limit_that_speaks_of_costs_is_still_a_limit() -> None:
    """Under a 429 the credits of the day are used up; the price did not rise. Service section 8."""
    result = parse_create(answer(429, failure("credit_budget", "cost exceeds the daily budget; max cost reached")))

    assert isinstance(result, Throttled)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 599])
def test_every_5xx_is_unavailable(status: int) -> None:
    """Whatever the body says, a create's outcome is then unknown. Service section 7."""
    assert isinstance(parse_create(answer(status, failure("max_cost_exceeded"))), Unavailable)


@pytest.mark.parametrize(
    ("status", "document", "expected"),
    [
        (404, failure("not_found"), NotFound),
        (410, failure("gone"), NotFound),
        (404, b"<html>", NoResponse),
        (400, failure("bad"), NoResponse),
        (400, failure("invalid_generation_id"), NotFound),
        (422, failure("unknown_id"), NotFound),
        (409, failure("bad"), NoResponse),
        (200, b"<html>", NoResponse),
        (200, {}, NotUnderstood),
        (200, {"status": "failed", "message": "internal"}, NotUnderstood),
    ],
)
def test_a_vanished_generation_is_only_what_the_api_says(status: int, document: object, expected: type) -> None:
    """A web server's own 404 page does not end a paid generation. Law 3."""
    assert isinstance(parse_read(answer(status, document), "g"), expected)


@pytest.mark.parametrize(
    ("document", "cost"),
    [
        ({"cost_credits": 10}, 10),
        ({"cost_credits": 9.01}, 10),
        ({"cost_credits": "9.5"}, 10),
        ({"cost_credits": 0}, 0),
        ({"data": {"costCredits": 3}}, 3),
        ({"quote": {"credits": {"cost": 3}}}, 3),
        ({"credits": 500, "cost_credits": 3}, 3),
        ({"credits": 9000, "data": {"cost_credits": 12}}, 12),
        ({"cost_credits": 12, "before": {"cost_credits": 20}}, 20),
        ({"price": {"amount": 3}}, 3),
        ({"model": "m", "total": 3, "cost_credits": None}, 3),
        (b"3", 3),
    ],
)
def test_a_price_in_any_sensible_shape(document: object, cost: int) -> None:
    """A fraction is rounded up, so that the maximum sent is never below the price. Service rule 4.6."""
    assert parse_quote(answer(200, document)) == Quoted(cost)


@pytest.mark.parametrize(
    "document", [{}, {"cost_credits": -1}, {"cost_credits": "free"}, {"credits": 500, "cost": 3}, b"", b"<html>", []]
)
def test_a_quote_without_a_price_is_no_response(document: object) -> None:
    """An item is never sent on a guess of its price."""
    assert isinstance(parse_quote(answer(200, document)), NotUnderstood | NoResponse)
