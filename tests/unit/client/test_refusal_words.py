"""What refusals mean: bodies as real services write them, each with what it has to be read as (Service section 7)."""

import json
from datetime import timedelta

import pytest

from batchkiln.client.error_responses import read_error
from batchkiln.client.http_response import RawReply, retry_after
from batchkiln.client.parse import parse_create, parse_prepare, parse_quote, parse_read
from batchkiln.client.reply_mapping import ReplyMapping
from batchkiln.core.response_rules import RefusalMeaning, RefusalRule, ReplyRules
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    Busy,
    CreateReply,
    IdempotencyConflict,
    RefusalKind,
    Refused,
    Throttled,
)

BUSY, CONFLICT, NO_CREDITS, LIMIT, INVALID, ASSET, OVER, FORBIDDEN = (
    *("busy", "conflict", "no credits", "limit", "invalid", "asset", "over quote", "forbidden"),
)


def answer(status: int, document: object) -> RawReply:
    return RawReply(status, {"content-type": "application/json"}, json.dumps(document).encode())


def kind_of(reply: CreateReply) -> str:
    match reply:
        case Busy():
            return BUSY
        case IdempotencyConflict():
            return CONFLICT
        case Throttled():
            return LIMIT
        case AccountBlocked(problem=problem):
            return {AccountProblem.NO_CREDITS: NO_CREDITS, AccountProblem.FORBIDDEN: FORBIDDEN}[problem]
        case Refused(kind=kind):
            told = {RefusalKind.INVALID: INVALID, RefusalKind.ASSET_GONE: ASSET, RefusalKind.OVER_QUOTE: OVER}
            return told[kind]
        case _:
            return type(reply).__name__


def error(code: object, message: str = "") -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


STRIPE_IN_USE = (
    "There is currently another in-progress request using this Idempotent Key (that probably means you submitted "
    "twice, and the other request is still being processed): k. Please try again later."
)
STRIPE_CHANGED = (
    "Keys for idempotent requests can only be used with the same parameters they were first used with. "
    "Try using a key other than 'k' if you meant to execute a different request."
)
TABLE = [
    # The first request under the key, or another generation, is still under way.
    (409, {"error": {"type": "idempotency_error", "message": STRIPE_IN_USE}}, BUSY),
    (409, error("idempotency_key_in_use", "try again"), BUSY),
    (409, error("request_in_progress"), BUSY),
    (400, error("request_in_progress"), BUSY),
    (422, error("request_in_progress"), BUSY),
    (423, error("locked", "The original request is still being processed."), BUSY),
    (423, {}, BUSY),
    (425, error("too_early"), BUSY),
    (425, {"message": "x"}, BUSY),
    (403, error("forbidden", "You already have a task running. Only one active task is allowed."), BUSY),
    (403, error("generation_active"), BUSY),
    (400, {"detail": "Another generation is in progress for this account"}, BUSY),
    (409, {"title": "Conflict", "detail": "A request is outstanding for this Idempotency-Key"}, BUSY),
    (409, {"__type": "com.aws#OperationInProgressException", "message": "x"}, BUSY),
    (409, {"code": 409, "message": "the previous request is still running"}, BUSY),
    (422, {"message": "Task already running"}, BUSY),
    (400, {"errors": [{"message": "m", "extensions": {"code": "CONCURRENCY_LIMIT"}}]}, BUSY),
    (400, {"error": "concurrent_limit_exceeded", "message": "Too many concurrent generations"}, BUSY),
    (409, {"errors": [{"status": "409", "code": "generation_in_progress", "title": "Conflict"}]}, BUSY),
    (409, {"error": json.dumps({"code": "request_in_progress", "message": "wait"})}, BUSY),
    (409, {"message": "Idempotency key is locked: request is being processed"}, BUSY),
    # The key was used with other bytes.
    (409, {}, CONFLICT),
    (409, error("conflict"), CONFLICT),
    (409, error("idempotency_conflict", "the key was used with a different body"), CONFLICT),
    (409, error("idempotency_key_reuse"), CONFLICT),
    (400, {"error": {"type": "idempotency_error", "message": STRIPE_CHANGED}}, CONFLICT),
    (400, {"__type": "IdempotentParameterMismatch", "message": "m"}, CONFLICT),
    (422, error("unprocessable", "Idempotency-Key was already used with a different payload"), CONFLICT),
    (409, error("conflict", "Request body does not match the original request"), CONFLICT),
    # No credits, under any status.
    (422, error("insufficient_credits", "the quote is 12 credits, more than the 3 that remain"), NO_CREDITS),
    (400, error("InsufficientCredits"), NO_CREDITS),
    (429, error("insufficient_credits"), NO_CREDITS),
    (409, error("no_credits"), NO_CREDITS),
    (402, {"title": "Insufficient credit", "detail": "You have insufficient credit", "status": 402}, NO_CREDITS),
    (400, {"error": "You do not have enough credits to run this task."}, NO_CREDITS),
    (400, {"code": 1102, "message": "Account balance not enough", "request_id": "r"}, NO_CREDITS),
    (422, {"detail": "User is out of credits"}, NO_CREDITS),
    (422, {"message": "The given data was invalid.", "errors": {"account": ["You have no credits left."]}}, NO_CREDITS),
    (400, {"errors": ["Your credit balance is too low to access the API"]}, NO_CREDITS),
    (400, {"type": "https://api.example/problems/out-of-credits", "title": "No"}, NO_CREDITS),
    (400, {"error": {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}}, NO_CREDITS),
    (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "Subscription required"}}, NO_CREDITS),
    (400, {"errors": [{"message": "m", "extensions": {"code": "PAYMENT_REQUIRED"}}]}, NO_CREDITS),
    (422, error("subscription_expired"), NO_CREDITS),
    (400, {"error": {"message": "An active paid subscription is needed: requires an active subscription"}}, NO_CREDITS),
    # A limit of time.
    (429, {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}, LIMIT),
    (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "see billing"}}, LIMIT),
    (400, {"__type": "ThrottlingException", "message": "Rate exceeded"}, LIMIT),
    (403, error("daily_budget_exceeded", "The daily credit budget is used up"), LIMIT),
    (422, error("limit", "The API generation credit budget per day is exhausted"), LIMIT),
    (429, error("generation_active"), LIMIT),
    # The credits of a day come back with the next one; those that were bought do not.
    (429, error("credit_budget_exhausted", "the quote is 420 credits, 380 of 2000 remain this day"), LIMIT),
    (429, error("insufficient_credits", "The daily credit budget is exhausted"), LIMIT),
    (429, error("credit_quota_exhausted"), LIMIT),
    (403, error("daily_credits_exhausted"), LIMIT),
    (422, error("DailyCreditsUsedUp"), LIMIT),
    (400, {"detail": "The API credit budget of this day is exhausted"}, LIMIT),
    (403, error("forbidden", "You have run out of credits for today"), LIMIT),
    (402, error("daily_credits_exhausted"), NO_CREDITS),
    # This request alone.
    (400, error("content_policy_violation", "Your prompt was rejected by our safety system"), INVALID),
    (403, error("moderation_blocked"), INVALID),
    (422, {"detail": [{"loc": ["body", "prompt"], "msg": "too long", "type": "string_too_long"}]}, INVALID),
    (
        422,
        {"detail": [{"loc": ["x"], "msg": "bad", "type": "value", "input": "no credits, request in progress"}]},
        INVALID,
    ),
    (400, error("invalid_prompt", 'The prompt "a task is already running, no credits left" is too short'), INVALID),
    (422, {"errors": {"prompt": ["The prompt field is required."]}}, INVALID),
    (422, {"prompt": ["can't be blank"]}, INVALID),
    (400, error("invalid_request", "An error occurred while processing the image parameters"), INVALID),
    (400, error("processing_error", "The request could not be processed"), INVALID),
    (400, error("invalid", "aspect_ratio is not active for this model"), INVALID),
    (422, error("invalid", "image_mode is not available; no credits were charged"), INVALID),
    (400, error("bad_request", "resolution 4k is not supported"), INVALID),
    # Images and prices.
    (400, error("asset_processing", "the asset is still processing"), ASSET),
    (422, error("asset_not_ready"), ASSET),
    (403, error("asset_not_owned", "asset belongs to another account"), ASSET),
    (422, error("cost_exceeds_max", "the quote exceeds max_cost_credits"), OVER),
    (409, error("quote_expired"), OVER),
    (400, error("bad", "max_cost_credits 10 is too low"), OVER),
    # The account itself.
    (403, error("forbidden", "Your access request is pending review"), FORBIDDEN),
    (403, error("account_suspended", "for violating our content policy"), FORBIDDEN),
    (403, error("forbidden", "The API key is not active"), FORBIDDEN),
    (423, error("locked", "Your account has been locked"), FORBIDDEN),
]


@pytest.mark.parametrize(("status", "document", "expected"), TABLE)
def test_a_refusal_is_read_by_its_own_words(status: int, document: object, expected: str) -> None:
    """Codes before sentences; what is repeated of the request says nothing. Service section 7."""
    assert kind_of(parse_create(answer(status, document))) == expected


@pytest.mark.parametrize(
    ("document", "code", "message"),
    [
        ({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}, "RESOURCE_EXHAUSTED", "m"),
        ({"errors": [{"message": "m", "extensions": {"code": "C"}}]}, "C", "m"),
        ({"errors": [{"status": "422", "code": "c", "title": "t", "detail": "d"}]}, "c", "d"),
        ({"error": '{"code": "c", "message": "m"}'}, "c", "m"),
        ({"code": 1102, "message": "m"}, "1102", "m"),
        ({"type": "https://e.example/p/out-of-credits", "title": "t"}, "out-of-credits", "t"),
        ({"prompt": ["can't be blank"]}, "http_400", "prompt: can't be blank"),
        ({"__type": "ThrottlingException", "message": "m"}, "ThrottlingException", "m"),
    ],
)
def test_code_and_message_of_known_dialects(document: object, code: str, message: str) -> None:
    """A word tells more than a number that repeats the status. Service section 7."""
    told = read_error(answer(400, document))

    assert (told.code, told.message) == (code, message)


def test_a_busy_account_is_only_a_wait_where_nothing_is_created() -> None:
    """Quotes, uploads and reads have no outcome that could be in doubt."""
    busy = answer(423, error("locked"))

    assert isinstance(parse_quote(busy), Throttled)
    assert isinstance(parse_prepare(busy, ["a"]), Throttled)
    assert isinstance(parse_read(busy, "g"), Throttled)


@pytest.mark.parametrize("means", list(RefusalMeaning))
def test_a_person_says_what_a_refusal_means(means: RefusalMeaning) -> None:
    """A configured meaning comes before every reading, by status, code or text. Contract, section 10."""
    expected = {
        RefusalMeaning.BUSY: BUSY,
        RefusalMeaning.NO_CREDITS: NO_CREDITS,
        RefusalMeaning.OVER_QUOTE: OVER,
        RefusalMeaning.ASSET_GONE: ASSET,
        RefusalMeaning.INVALID: INVALID,
    }[means]
    raw = answer(409, error("E1017", "Ofen (kalt) [x]"))
    for rule in (
        RefusalRule(means, status=409),
        RefusalRule(means, code="e1017"),
        RefusalRule(means, text="ofen (KALT) ["),
        RefusalRule(means, status=409, code="E1017", text="[x]"),
    ):
        assert kind_of(parse_create(raw, ReplyMapping(ReplyRules(refusals=(rule,))))) == expected
    other = ReplyMapping(ReplyRules(refusals=(RefusalRule(means, status=422, code="E1017"),)))
    assert kind_of(parse_create(raw, other)) == CONFLICT


def test_a_person_says_that_a_success_is_a_refusal() -> None:
    """Some services refuse with 200 and a code; a record in it is still a record. Law 2."""
    mapping = ReplyMapping(ReplyRules(refusals=(RefusalRule(RefusalMeaning.NO_CREDITS, code="1102"),)))

    assert kind_of(parse_create(answer(200, {"code": 1102, "message": "m"}), mapping)) == NO_CREDITS
    assert kind_of(parse_create(answer(202, {"id": "g", "status": "pending", "code": 1102}), mapping)) == "Accepted"
    assert kind_of(parse_create(answer(200, {"code": 7, "message": "m"}), mapping)) == "NotUnderstood"


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, error("duplicate_request", "Duplicate request")),
        (422, error("idempotency_key_already_used", "This idempotency key has already been used")),
        (400, {"error": "already_exists", "message": "A generation with this key already exists"}),
        (400, {"error": {"message": "Generation gen_123 already created for this key"}}),
        (400, {"id": "gen_1", "status": "pending", "credits": {"cost": 5}}),
        (422, {"error": {"code": "exists"}, "generation": {"id": "gen_1", "status": "processing"}}),
    ],
)
def test_create_that_is_refused_for_what_it_created_is_not_free(status: int, document: object) -> None:
    """Law 2: a proxy may send a request twice; the second is refused, and the first is paid."""
    assert kind_of(parse_create(answer(status, document))) == CONFLICT


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, error("timeout", "Upstream timed out")),
        (422, error("submission_uncertain", "The submission could not be confirmed")),
        (400, error("internal_error", "Something went wrong")),
        (424, error("provider_error", "upstream provider failed")),
    ],
)
def test_4xx_that_does_not_know_what_became_of_a_create_leaves_it_in_doubt(status: int, document: object) -> None:
    """Law 2: what broke behind the API may have broken after the credits were taken (Service rule 3.1)."""
    assert kind_of(parse_create(answer(status, document))) == "Unavailable"


def test_a_date_that_cannot_be_measured_is_not_replaced_by_another_windows_reset() -> None:
    """`Retry-After` as a date, no `Date`, and the day's reset: the create would wait for a day. Service section 7."""
    headers = {"retry-after": "Sun, 01 Mar 2026 09:30:41 GMT", "x-ratelimit-reset": "86400"}

    assert retry_after(RawReply(429, headers, b"{}")) is None
    assert retry_after(RawReply(429, {"x-ratelimit-reset": "60"}, b"{}")) == timedelta(seconds=60)


def test_reset_of_a_limit_holds_for_an_hour_at_most() -> None:
    """No documented word: held against a `Date` that is two days behind, it would hold an account for two days."""
    headers = {"date": "Fri, 27 Feb 2026 09:30:22 GMT", "x-ratelimit-reset": "1772357460"}

    assert retry_after(RawReply(429, headers, b"{}")) == timedelta(hours=1)
    assert retry_after(RawReply(429, {"ratelimit-reset": "86400"}, b"{}")) == timedelta(hours=1)
