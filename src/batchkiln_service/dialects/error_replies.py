"""Error replies of a dialect: statuses, bodies, codes and messages, as far as section 7 leaves them open.

Fixed: 403 with the code api_key_upgrade_required, 409 for a changed body, 429 and 503 with their headers, and that the
firewall's reply is not JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from batchkiln_service.dialects.envelopes import enveloped
from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import INTEGER, LINK, TEXT, TRUTH, At, Leaf, ListOf, Object, Shape, constant
from batchkiln_service.dialects.traits import TRAITS, Dialect

PLAIN: Final = "text/plain"
_PROBLEM: Final = "application/problem+json"
_WORDS: Final = {"first": 0, "second": 1, "third": 2, "fourth": 3}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error reply of a dialect: status, code, message."""

    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A reason for an error: its codes and messages by naming style, and the trait that sets its status, if open."""

    says: tuple[tuple[str, str], ...]
    trait: str | None = None


_MEANINGS: Final[Mapping[str, _Meaning]] = {
    "invalid": _Meaning(
        (
            ("invalid_request", ""),
            ("validation_error", ""),
            ("bad_parameter", "Invalid parameter: "),
            ("unprocessable", "Request validation failed: "),
        ),
        "invalid_status",
    ),
    "over_quote": _Meaning(
        (
            ("cost_exceeds_max", "the quote is higher than max_cost_credits"),
            ("quote_too_high", "The price of this request is above max_cost_credits."),
            ("max_cost_exceeded", "Estimated cost exceeds the maximum cost you allowed."),
            ("price_changed", "Price changed: the current quote exceeds max_cost_credits."),
        ),
        "over_quote_status",
    ),
    "asset_gone": _Meaning(
        (
            ("asset_not_found", "an input is not an asset of this account"),
            ("asset_expired", "The input asset has expired; upload it again."),
            ("upload_not_found", "Upload not found or no longer available."),
            ("input_asset_missing", "An input image asset does not exist."),
        ),
        "asset_gone_status",
    ),
    "no_credits": _Meaning(
        (
            ("insufficient_credits", "there are not enough credits left"),
            ("payment_required", "Your balance is too low for this generation."),
            ("credits_exhausted", "You have run out of credits. Purchase more to continue."),
            ("balance_too_low", "Account balance insufficient."),
        ),
        "no_credits_status",
    ),
    "busy": _Meaning(
        (
            ("generation_active", "1 of 1 active generations"),
            ("concurrency_limit", "Another generation is already active on this account."),
            ("too_many_active_tasks", "You already have a task in progress. Please wait until it has finished."),
            ("account_busy", "The account has a running generation; try again when it ends."),
        ),
        "busy_status",
    ),
    "in_progress": _Meaning(
        (
            ("request_in_progress", "A request with this Idempotency-Key is still being processed."),
            ("idempotency_in_progress", "The original request is in progress. Retry later."),
            ("duplicate_request", "A previous request with the same idempotency key has not finished yet."),
            ("locked", "This resource is locked by an earlier request that is still running."),
        ),
        "in_progress_status",
    ),
    "not_found": _Meaning(
        (
            ("not_found", "there is no such generation"),
            ("generation_not_found", "Generation not found."),
            ("resource_missing", "No such generation."),
            ("no_such_object", "The object does not exist."),
        ),
        "not_found_status",
    ),
    "conflict": _Meaning(
        (
            ("idempotency_conflict", "this Idempotency-Key was used with another request body"),
            ("idempotency_key_reused", "Keys for idempotent requests can only be used with the same parameters."),
            ("key_mismatch", "The body differs from the first request with this idempotency key."),
            ("conflict", "Idempotency-Key was already used with a different payload."),
        )
    ),
    "limit": _Meaning(
        (
            ("rate_limited", "too many requests"),
            ("too_many_requests", "Rate limit exceeded."),
            ("throttled", "Slow down."),
            ("quota_exceeded", "You have reached a limit of your account."),
        )
    ),
    "unavailable": _Meaning(
        (
            ("unavailable", "try again later"),
            ("service_unavailable", "Service temporarily unavailable."),
            ("overloaded", "We are overloaded."),
            ("maintenance", "Back soon."),
        )
    ),
}
_MEANING_OF: Final[Mapping[str, str]] = {
    "invalid_request": "invalid",
    "unsupported_option": "invalid",
    "external_url_not_allowed": "invalid",
    "cost_exceeds_max": "over_quote",
    "asset_not_found": "asset_gone",
    "asset_expired": "asset_gone",
    "asset_not_ready": "asset_gone",
    "insufficient_credits": "no_credits",
    "credits_required": "no_credits",
    "generation_active": "busy",
    "not_found": "not_found",
    "idempotency_conflict": "conflict",
    "rate_limited": "limit",
    "daily_limit": "limit",
    "credit_budget_exhausted": "limit",
    "unavailable": "unavailable",
}


def refused(dialect: Dialect, status: int, code: str, message: str) -> Refusal:
    """Return the dialect's form of an error of the service."""
    meaning = _MEANING_OF.get(code)
    if meaning is None:
        return Refusal(status, _code(dialect, code), message)
    as_meant = meant(dialect, meaning, status, message)
    trait = _MEANINGS[meaning].trait
    if trait is None or dialect[trait] == TRAITS[trait][0][0]:
        as_meant = replace(as_meant, status=status)
    return as_meant if dialect["words"] != "first" else replace(as_meant, code=_code(dialect, code), message=message)


def meant(dialect: Dialect, meaning: str, status: int, message: str = "") -> Refusal:
    """Return the error for a reason; `status` applies if the description fixes it."""
    entry = _MEANINGS[meaning]
    code, text = entry.says[_WORDS[dialect["words"]]]
    if entry.trait is not None:
        status = int(dialect[entry.trait].removeprefix("s"))
    if meaning == "invalid":
        text += message  # it names the field and what is allowed
    return Refusal(status, _code(dialect, code), text)


def _code(dialect: Dialect, code: str) -> str:
    match dialect["code_spelling"]:
        case _ if code == "api_key_upgrade_required":
            return code  # the documented code
        case "upper":
            return code.upper()
        case "camel" | "kebab" as spelling:
            return spelled(code, spelling)
        case "dotted":
            return code.replace("_", ".", 1)
        case "number":
            return str(40000 + dialect.number(f"code {code}", 900))
        case _:
            return code


def media_type(dialect: Dialect, refusal: Refusal) -> str:
    """Return the media type of an error body. A 403 is always JSON, unlike the firewall's."""
    match dialect["error"]:
        case "text" if refusal.status != 403 and "upgrade" not in refusal.code:  # noqa: PLR2004
            return PLAIN
        case "problem":
            return _PROBLEM
        case _:
            return "application/json"


def body_shape(dialect: Dialect) -> Shape:
    """Return the shape of an error body, made from a `Refusal`."""
    is_number = dialect["code_spelling"] == "number"
    code = Leaf(lambda given: _number_of(given.code) if is_number else given.code, {"type": ["string", "integer"]})
    message = Leaf(lambda given: given.message, TEXT)
    status = Leaf(lambda given: given.status, INTEGER)
    spelling = dialect["spelling"]
    more = extras(dialect, "error", frozenset({"code", "message", "error", "errors", "detail", "title", "type"}))
    fields: dict[str, Shape]
    match dialect["error"]:
        case "flat":
            fields = {"code": code, "message": message, **more}
        case "problem":
            kind = Leaf(lambda given: f"https://docs.service.invalid/errors/{given.code}", LINK)
            fields = {"type": kind, "title": code, "status": status, "detail": message, "code": code, **more}
        case "list":
            one = Object({"code": code, "message": message, "status": status})
            fields = {"errors": At(lambda given: [given], ListOf(one)), **more}
        case "detail_list":
            place = constant(["body"], {"type": "array", "items": TEXT})
            one = Object({"type": code, "loc": place, "msg": message})
            fields = {"detail": At(lambda given: [given], ListOf(one))}
        case "detail_text":
            fields = {"detail": Leaf(lambda given: f"{given.code}: {given.message}", TEXT), **more}
        case "detail_object":
            fields = {"detail": Object({"code": code, "message": message}), **more}
        case "status_message":
            name = spelled("error_code", spelling)
            fields = {"status": constant("error", TEXT), name: code, "message": message, **more}
        case "error_text":
            fields = {"success": constant(value=False, described=TRUTH), "error": message, "code": code, **more}
        case _:
            fields = {"error": Object({"code": code, "message": message, **more})}
    return enveloped(dialect, "error", Object(fields))


def plain_text(refusal: Refusal) -> str:
    """Return an error as plain text."""
    return f"{refusal.code}: {refusal.message}"


def _number_of(code: str) -> Any:  # noqa: ANN401 - a number, but for the one documented code
    return int(code) if code.isdecimal() else code
