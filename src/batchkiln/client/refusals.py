"""What a reply that is not a success means. Pure: the status decides first, then what the body says.

The words are looked for because the service text shows neither its error bodies nor most of its codes
(Service section 7).
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from html import unescape
from http import HTTPStatus
from typing import Final

from batchkiln.client.lenient import read_number, read_text
from batchkiln.client.raw import NOT_JSON, RawReply, read_date
from batchkiln.client.redact import CODE_MAX_CHARACTERS, MESSAGE_MAX_CHARACTERS, safe_text
from batchkiln.client.wire import normalized
from batchkiln.core.replies import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    NoReply,
    RefusalKind,
    Refused,
    ServiceError,
    Throttled,
    Trouble,
    Unavailable,
)

# A week covers every window of the service; anything longer is an error of the reply.
_RETRY_AFTER_MAX: Final = timedelta(days=8)
_DETAILS_MAX: Final = 5
_TITLE: Final = re.compile(r"<title[^>]{0,200}>(.{0,500}?)</title", re.IGNORECASE | re.DOTALL)

# These say themselves what they mean: "cost exceeds the daily budget" under a 429 is a limit, and no refusal.
_NEVER_A_REFUSAL: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_UPGRADE_CODE: Final = "api_key_upgrade_required"
_NO_CREDITS: Final = re.compile(r"credit|subscri|balance|payment|billing|purchas")
_COMPARED: Final = re.compile(r"exceed|higher|above|greater|more than|\bover\b|too low|below|lower|changed")
_PRICE: Final = re.compile(r"max\w* cost|max\w* price|\bquoted?\b|\bcost\b|\bprice\b")
_PRICE_LIMIT: Final = re.compile(r"max\w* (cost|price|charge)|\bover quote\b|\bquote (is )?(exceed|higher|above|over)")
_MUST_BE: Final = re.compile(
    r"must be (an? |greater|more|at least|positive|integer|number|>)|unknown field|not allowed"
)
_BUSY: Final = re.compile(
    r"active (api )?generation|generation (is )?(already )?(active|in progress|running)|concurren"
)
_ASSET: Final = re.compile(
    r"\b(assets?|uploads?)\b.{0,80}\b(expired|unknown|not found|missing|not ready|no longer|do(es)? not exist|gone"
    r"|not available|unavailable|deleted|not complete|pending|not owned|another account|different account)\b"
    r"|\b(expired|unknown|missing|deleted) (input |image |source )?(assets?|uploads?)\b"
)
_INPUT: Final = re.compile(
    r"\b(input|image|file)s?( urls?| ids?)?( \S+)?( is| are| was| were| has| have)?"
    r" (expired|not found|not ready|no longer|do(es)? not exist|deleted)\b"
    r"|\b(expired|unknown) (input|image|file)s?( urls?| ids?)?\b"
)
_ABOUT_REQUEST: Final = re.compile(r"\b(model|mode|field|parameter|prompt|resolution|aspect|duration|input|option)s?\b")


def read_error(raw: RawReply) -> ServiceError:
    """Say what the body tells of the failure, in any of the usual shapes; the status' own words otherwise."""
    document = raw.document()
    if document is NOT_JSON:
        code, message = "", _plain_text(raw)
    else:
        code, message = _words(document)
    if not message:
        message = HTTPStatus(raw.status).phrase if raw.status in set(HTTPStatus) else f"status {raw.status}"
    return _service_error(code or f"http_{raw.status}", message, raw.secrets)


def read_error_object(document: object, secrets: tuple[str, ...]) -> ServiceError | None:
    """Read the `error` of a record; None where there is none."""
    if document is None or document in ({}, [], "", False):
        return None
    code, message = _words(document)
    return _service_error(code, message or code or "the service gave no reason", secrets)


def trouble(raw: RawReply) -> Trouble | None:
    """Name the trouble that any call may meet; None for the 4xx that speak of this one request."""
    met: Trouble | None = None
    match raw.status:
        case HTTPStatus.UNAUTHORIZED:
            met = AccountBlocked(AccountProblem.KEY_REFUSED, read_error(raw))
        case HTTPStatus.PAYMENT_REQUIRED:
            met = AccountBlocked(AccountProblem.NO_CREDITS, read_error(raw))
        case HTTPStatus.FORBIDDEN:
            met = _forbidden(raw)
        case HTTPStatus.TOO_MANY_REQUESTS:
            met = Throttled(retry_after(raw), read_error(raw))
        case HTTPStatus.REQUEST_TIMEOUT | HTTPStatus.TOO_EARLY:
            met = NoReply(f"the service answered {raw.status} before it had taken the request")
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            met = Unavailable(retry_after(raw), read_error(raw))
        case status if status < HTTPStatus.BAD_REQUEST:
            met = unlike_api(raw)
        case _:
            pass  # a 4xx about the request itself
    return met


def refusal(raw: RawReply) -> Refused | Throttled | NoReply:
    """Read a 4xx that `trouble` left: a refusal only where the API itself said so, in a JSON object.

    Anything else may be a proxy speaking, and says nothing about what happened to the request.
    """
    if not is_api_error(raw):
        return unlike_api(raw)
    error = read_error(raw)
    words = _spoken(error)
    if is_over_quote(raw):
        return Refused(RefusalKind.OVER_QUOTE, error)
    if is_busy(raw):
        return Throttled(retry_after(raw), error)
    if _speaks_of_assets(words):
        return Refused(RefusalKind.ASSET_GONE, error)
    is_wrong_address = raw.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.METHOD_NOT_ALLOWED}
    if is_wrong_address and not _ABOUT_REQUEST.search(words):
        return unlike_api(raw)
    return Refused(RefusalKind.INVALID, error)


def is_api_error(raw: RawReply) -> bool:
    """Whether the body is a JSON object: what tells the API from a proxy or the firewall (Service section 7)."""
    return isinstance(raw.document(), dict)


def is_over_quote(raw: RawReply) -> bool:
    """Whether the refusal is about the price being above what the caller allowed (Service rule 4.6)."""
    words = _spoken(read_error(raw))
    is_about_request = HTTPStatus.BAD_REQUEST <= raw.status < HTTPStatus.INTERNAL_SERVER_ERROR
    if not is_about_request or raw.status in _NEVER_A_REFUSAL or not is_api_error(raw) or _MUST_BE.search(words):
        return False
    # These three have a meaning of their own, so the words have to name the caller's limit itself.
    own = {HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT}
    return bool(_COMPARED.search(words) and (_PRICE_LIMIT if raw.status in own else _PRICE).search(words))


def is_busy(raw: RawReply) -> bool:
    """Whether the refusal is about another active generation of the account (contract, section 7)."""
    words = _spoken(read_error(raw))
    return is_api_error(raw) and bool(_BUSY.search(words)) and not re.search(r"idempoten|\bkey\b", words)


def unlike_api(raw: RawReply) -> NoReply:
    """Say that an address does not answer like this API, without repeating what it said at length."""
    said = read_error(raw)
    kind = safe_text(raw.media_type, CODE_MAX_CHARACTERS, raw.secrets) or "no content type"
    return NoReply(
        f"the address does not answer like this API (status {raw.status}, {kind}: {said.message}); check the base URL",
        raw.status,
    )


def retry_after(raw: RawReply) -> timedelta | None:
    """Read Retry-After as seconds or as a date relative to the reply's own Date; None where it says nothing."""
    value = raw.headers.get("retry-after")
    if value is None:
        return None
    seconds = read_number(value)
    if seconds is None:
        until, sent_at = read_date(value), read_date(raw.headers.get("date"))
        if until is None or sent_at is None:
            return None
        seconds = (until - sent_at).total_seconds()
    return timedelta(seconds=min(max(seconds, 0), _RETRY_AFTER_MAX.total_seconds()))


def _forbidden(raw: RawReply) -> AccountBlocked | EdgeBlocked:
    if not is_api_error(raw):
        return EdgeBlocked()
    error = read_error(raw)
    words = _spoken(error)
    if error.code.lower() == _UPGRADE_CODE or _UPGRADE_CODE in raw.body.decode(errors="replace").lower():
        return AccountBlocked(AccountProblem.UPGRADE_REQUIRED, error)
    if _NO_CREDITS.search(words):
        return AccountBlocked(AccountProblem.NO_CREDITS, error)
    return AccountBlocked(AccountProblem.FORBIDDEN, error)


def _speaks_of_assets(words: str) -> bool:
    if "external" in words or "field required" in words or "unknown field" in words:
        return False
    # "model delta-image-2 not found" is about the model.
    return bool(_ASSET.search(words)) or (bool(_INPUT.search(words)) and not re.search(r"\bmodel\b", words))


def _spoken(error: ServiceError) -> str:
    """Give code and message as one lower-case text, with the word breaks of codes as spaces."""
    code = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", error.code)
    return re.sub(r"[_\-\s]+", " ", f"{code} {error.message}").lower()


def _service_error(code: str, message: str, secrets: tuple[str, ...]) -> ServiceError:
    return ServiceError(
        safe_text(code, CODE_MAX_CHARACTERS, secrets),
        safe_text(message, MESSAGE_MAX_CHARACTERS, secrets),
    )


def _words(document: object, depth: int = 0) -> tuple[str, str]:
    """Find code and message in an error of any usual shape; either may be empty."""
    if isinstance(document, list):
        parts = [_words(entry, depth + 1) for entry in document[:_DETAILS_MAX]] if depth < _DETAILS_MAX else []
        codes = [code for code, _ in parts if code]
        return (codes[0] if codes else ""), "; ".join(message for _, message in parts if message)
    if not isinstance(document, Mapping) or depth >= _DETAILS_MAX:
        return "", read_text(document) or ""
    fields = normalized(document)
    code = _first_text(fields, ("code", "error_code", "type", "error_type", "name", "status"))
    message = _first_text(fields, ("message", "msg", "detail", "error_description", "description", "reason", "title"))
    place = fields.get("loc")
    if message and isinstance(place, list):
        message = f"{'.'.join(str(step) for step in place)}: {message}"
    for name in ("error", "errors", "detail", "details", "fault", "data", "result"):
        if name in fields and not (code and message):
            inner_code, inner_message = _words(fields[name], depth + 1)
            # {"error": "invalid_request", "message": "…"}: the bare text is the code.
            if isinstance(fields[name], str) and name == "error" and message and not code:
                inner_code, inner_message = inner_message, ""
            is_specific = name == "error" and inner_code
            code = inner_code if is_specific else code or inner_code
            message = message or inner_message
    return code, message


def _first_text(fields: Mapping[str, object], names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := read_text(fields.get(name)))), "")


def _plain_text(raw: RawReply) -> str:
    """Give a plain text as it is, of an HTML page the title only."""
    text = raw.body[:20_000].decode(errors="replace")
    if "html" in raw.media_type or text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        return unescape(title[1]) if title else "an HTML page"
    return text if text.isprintable() or raw.media_type.startswith("text/") else ""
