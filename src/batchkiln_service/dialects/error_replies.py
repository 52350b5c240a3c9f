"""Error replies of a dialect: statuses, bodies, codes and messages, as far as section 7 leaves them open.

These parts are fixed: 403 with the code api_key_upgrade_required, 409 for a changed body, 429 and 503 with their
headers, and a firewall reply that is not JSON.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln_service.dialects.endpoints import enveloped
from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import INTEGER, LINK, TEXT, Shape, at, constant, list_of, object_of
from batchkiln_service.dialects.traits import TRAITS, Dialect, load_table

PLAIN: Final = "text/plain"
_PROBLEM: Final = "application/problem+json"


class Refusal(Struct, frozen=True):
    """An error reply of a dialect: status, code, message."""

    status: int
    code: str
    message: str


# By reason: a code and a message in each naming style, and the trait that sets the status, if it is open.
_MEANINGS: Final[Mapping[str, Mapping[str, Any]]] = load_table("error_words.toml")
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
    trait = _MEANINGS[meaning].get("trait")
    if trait is None or dialect[trait] == TRAITS[trait][0][0]:
        as_meant = replace(as_meant, status=status)
    return as_meant if dialect["words"] != "first" else replace(as_meant, code=_code(dialect, code), message=message)


def meant(dialect: Dialect, meaning: str, status: int, message: str = "") -> Refusal:
    """Return the error for a meaning. `status` is kept if the description fixes it."""
    entry = _MEANINGS[meaning]
    code, text = entry[dialect["words"]]
    if "trait" in entry:
        status = int(dialect[entry["trait"]].removeprefix("s"))
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
    code = Shape(lambda given: _number_of(given.code) if is_number else given.code, {"type": ["string", "integer"]})
    message = Shape(lambda given: given.message, TEXT)
    status = Shape(lambda given: given.status, INTEGER)
    more = extras(dialect, "error", frozenset({"code", "message", "error", "errors", "detail", "title", "type"}))
    plain = {"code": code, "message": message}
    link = Shape(lambda given: f"https://docs.service.invalid/errors/{given.code}", LINK)
    with_place = object_of({"type": code, "loc": constant(["body"]), "msg": message})
    text = Shape(lambda given: f"{given.code}: {given.message}", TEXT)
    shapes: Mapping[str, Mapping[str, Shape]] = {
        "flat": {**plain, **more},
        "problem": {"type": link, "title": code, "status": status, "detail": message, "code": code, **more},
        "list": {"errors": _alone(object_of({**plain, "status": status})), **more},
        "detail_list": {"detail": _alone(with_place)},
        "detail_text": {"detail": text, **more},
        "detail_object": {"detail": object_of(plain), **more},
        "status_message": {
            "status": constant("error"),
            spelled("error_code", dialect["spelling"]): code,
            "message": message,
            **more,
        },
        "error_text": {"success": constant(value=False), "error": message, "code": code, **more},
    }
    return enveloped(dialect, "error", object_of(shapes.get(dialect["error"], {"error": object_of({**plain, **more})})))


def _alone(shape: Shape) -> Shape:
    """Return the shape of an array with one element."""
    return at(lambda given: [given], list_of(shape))


def plain_text(refusal: Refusal) -> str:
    """Return an error as plain text."""
    return f"{refusal.code}: {refusal.message}"


def _number_of(code: str) -> Any:  # noqa: ANN401 - a number, but for the one documented code
    return int(code) if code.isdecimal() else code
