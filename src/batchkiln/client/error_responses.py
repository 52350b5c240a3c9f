"""What a reply that is not a success means. Pure: a person's rules decide first, then the status, then the words."""

import re
from http import HTTPStatus
from typing import Final

from batchkiln.client.coercion import read_text
from batchkiln.client.error_messages import Said, plain_text, said_by, words_of
from batchkiln.client.guide import UNGUIDED, Guide
from batchkiln.client.http_response import NOT_JSON, RawReply
from batchkiln.client.meanings import Meaning, meaning_by_code, meaning_by_prose
from batchkiln.client.redact import CODE_MAX_CHARACTERS, MESSAGE_MAX_CHARACTERS, safe_text
from batchkiln.client.retry_after import retry_after
from batchkiln.core.response_rules import RefusalMeaning, ReplyField
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    Busy,
    EdgeBlocked,
    ErrorInfo,
    IdempotencyConflict,
    NoResponse,
    RefusalKind,
    Refused,
    Throttled,
    TransientError,
    Unavailable,
)

# These say themselves what they mean: "cost exceeds the daily budget" under a 429 is a limit, and no refusal.
_NEVER_A_REFUSAL: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
# Of these three the words have to name the caller's limit itself.
_OWN: Final = frozenset({HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT})
_LOCKED: Final = frozenset({HTTPStatus.LOCKED, HTTPStatus.TOO_EARLY})
_WRONG_ADDRESS: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.METHOD_NOT_ALLOWED})
_UPGRADE_CODE: Final = "api_key_upgrade_required"
_OF_ACCOUNT: Final = re.compile(r"credit|subscri|balance|payment|billing|purchas")
_COMPARED: Final = re.compile(r"exceed|higher|above|greater|more than|\bover\b|too low|below|lower|changed")
_PRICE: Final = re.compile(r"max\w* cost|max\w* price|\bquoted?\b|\bcost\b|\bprice\b")
_PRICE_LIMIT: Final = re.compile(r"max\w* (cost|price|charge)|\bover quote\b|\bquote (is )?(exceed|higher|above|over)")
_MUST_BE: Final = re.compile(
    r"must be (an? |greater|more|at least|positive|integer|number|>)|unknown field|not allowed"
)
_INPUT: Final = re.compile(
    r"\b(input|image|file)s?( urls?| ids?)?( \S+)?( is| are| was| were| has| have)?"
    r" (expired|not found|not ready|no longer|do(es)? not exist|deleted)\b"
    r"|\b(expired|unknown) (input|image|file)s?( urls?| ids?)?\b"
)
_ABOUT_REQUEST: Final = re.compile(r"\b(model|mode|field|parameter|prompt|resolution|aspect|duration|input|option)s?\b")

RefusedOrBusy = Refused | IdempotencyConflict | Busy | TransientError


def read_error(raw: RawReply, guide: Guide = UNGUIDED) -> ErrorInfo:
    """Say what the body tells of the failure, in any of the usual shapes; the status' own words otherwise."""
    document = raw.document()
    if document is NOT_JSON:
        code, message = "", plain_text(raw)
    else:
        code, message = words_of(document)
        code = read_text(guide.find(ReplyField.ERROR_CODE, document)) or code
        message = read_text(guide.find(ReplyField.ERROR_MESSAGE, document)) or message
    if not message:
        message = HTTPStatus(raw.status).phrase if raw.status in set(HTTPStatus) else f"status {raw.status}"
    return _service_error(code or f"http_{raw.status}", message, raw.secrets)


def read_error_object(document: object, secrets: tuple[str, ...]) -> ErrorInfo | None:
    """Read the `error` of a record; None where there is none."""
    if document is None or document in ({}, [], "", False):
        return None
    code, message = words_of(document)
    return _service_error(code, message or code or "the service gave no reason", secrets)


def create_refusal(raw: RawReply, guide: Guide = UNGUIDED) -> RefusedOrBusy:
    """Read a create's reply that is no success."""
    error = read_error(raw, guide)
    met: RefusedOrBusy | None = configured(raw, guide) or _by_words(raw, error)
    is_locked = raw.status in _LOCKED or error.code.lower() == "locked"
    if met is None and is_locked and is_api_error(raw):
        met = Busy(retry_after(raw), error)
    met = met or trouble(raw)
    if met is not None:
        return met
    return IdempotencyConflict(error) if raw.status == HTTPStatus.CONFLICT else _about_request(raw, error)


def refusal(raw: RawReply, guide: Guide = UNGUIDED) -> Refused | TransientError:
    """Read the refusal of a call that creates nothing: there a busy account is only a wait."""
    met = create_refusal(raw, guide)
    match met:
        case Busy(retry_after=wait, error=error):
            return Throttled(wait, error)
        case IdempotencyConflict(error=error):
            return Refused(RefusalKind.INVALID, error) if is_api_error(raw) else unlike_api(raw)
        case _:
            return met


def configured(raw: RawReply, guide: Guide) -> Refused | Busy | AccountBlocked | None:
    """Return what a person says of this reply, None for nothing. Of a success a rule has to name status or code."""
    if raw.is_success and not any(rule.status == raw.status or rule.code for rule in guide.rules.refusals):
        return None
    error = read_error(raw, guide)
    match guide.meaning(raw.status, error.code, error.message):
        case None:
            return None
        case RefusalMeaning.BUSY:
            return Busy(retry_after(raw), error)
        case RefusalMeaning.NO_CREDITS:
            return AccountBlocked(AccountProblem.NO_CREDITS, error)
        case meaning:
            return Refused(RefusalKind(meaning.value), error)


def trouble(raw: RawReply, guide: Guide = UNGUIDED) -> TransientError | None:
    """Name the trouble that any call may meet; None for the 4xx that speak of this one request."""
    error = read_error(raw, guide)
    said = configured(raw, guide)
    if isinstance(said, AccountBlocked):
        return said
    if isinstance(said, Busy):
        return Throttled(said.retry_after, error)
    return _by_status(raw, error)


def _by_status(raw: RawReply, error: ErrorInfo) -> TransientError | None:
    met: TransientError | None = None
    match raw.status:
        case HTTPStatus.UNAUTHORIZED:
            met = AccountBlocked(AccountProblem.KEY_REFUSED, error)
        case HTTPStatus.PAYMENT_REQUIRED:
            met = AccountBlocked(AccountProblem.NO_CREDITS, error)
        case HTTPStatus.FORBIDDEN:
            met = _forbidden(raw, error)
        case HTTPStatus.TOO_MANY_REQUESTS:
            met = Throttled(retry_after(raw), error)
        case HTTPStatus.LOCKED | HTTPStatus.TOO_EARLY:
            met = Throttled(retry_after(raw), error) if is_api_error(raw) else unlike_api(raw)
        case HTTPStatus.REQUEST_TIMEOUT:
            met = NoResponse(f"the service answered {raw.status} before it had taken the request")
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            met = Unavailable(retry_after(raw), error)
        case status if status < HTTPStatus.BAD_REQUEST:
            met = unlike_api(raw)
        case _:
            pass  # a 4xx about the request itself
    return met


def is_api_error(raw: RawReply) -> bool:
    """Whether the body is a JSON object: what tells the API from a proxy or the firewall (Service section 7)."""
    return isinstance(raw.document(), dict)


def unlike_api(raw: RawReply) -> NoResponse:
    """Say that an address does not answer like this API, without repeating what it said at length."""
    said = read_error(raw)
    kind = safe_text(raw.media_type, CODE_MAX_CHARACTERS, raw.secrets) or "no content type"
    return NoResponse(
        f"the address does not answer like this API (status {raw.status}, {kind}: {said.message}); check the base URL",
        raw.status,
    )


def _by_words(raw: RawReply, error: ErrorInfo) -> RefusedOrBusy | None:
    """Read what the API says in its own words; None where the status decides."""
    is_about_request = HTTPStatus.BAD_REQUEST <= raw.status < HTTPStatus.INTERNAL_SERVER_ERROR
    if not is_about_request or not is_api_error(raw) or raw.status == HTTPStatus.UNAUTHORIZED:
        return None
    said = said_by(raw)
    meaning = meaning_by_code(said)
    if raw.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}:
        # Whatever it speaks of is a limit, but for missing credits, which no waiting brings.
        is_lack = meaning is Meaning.NO_CREDITS and raw.status == HTTPStatus.TOO_MANY_REQUESTS
        return AccountBlocked(AccountProblem.NO_CREDITS, error) if is_lack and not _is_quota(said) else None
    if meaning is None and _is_over_quote(raw.status, said):
        meaning = Meaning.OVER_QUOTE
    if meaning is None:
        meaning = meaning_by_prose(said)
    return None if meaning is None else _as_meant(raw, meaning, error)


def _as_meant(raw: RawReply, meaning: Meaning, error: ErrorInfo) -> RefusedOrBusy | None:
    """Return the reply of a meaning; None where the status is to decide after all."""
    is_paid = raw.status == HTTPStatus.PAYMENT_REQUIRED
    met: RefusedOrBusy | None = None
    match meaning:
        case Meaning.BUSY:
            met = None if is_paid else Busy(retry_after(raw), error)
        case Meaning.LIMIT:
            met = None if is_paid else Throttled(retry_after(raw), error)
        case Meaning.KEY_MISMATCH:
            met = IdempotencyConflict(error)
        case Meaning.NO_CREDITS:
            met = AccountBlocked(AccountProblem.NO_CREDITS, error)
        case Meaning.LOCKED_OUT:
            met = AccountBlocked(AccountProblem.FORBIDDEN, error)
        case Meaning.OVER_QUOTE:
            met = Refused(RefusalKind.OVER_QUOTE, error)
        case Meaning.ASSET_GONE:
            is_told = raw.status != HTTPStatus.FORBIDDEN or meaning_by_code(said_by(raw)) is meaning
            met = Refused(RefusalKind.ASSET_GONE, error) if is_told else None
        case Meaning.CONTENT:
            met = Refused(RefusalKind.INVALID, error)
        case Meaning.UNCERTAIN:
            met = None if is_paid or raw.status == HTTPStatus.FORBIDDEN else Unavailable(retry_after(raw), error)
    return met


def _about_request(raw: RawReply, error: ErrorInfo) -> Refused | NoResponse:
    """Read a 4xx whose words tell nothing special: a refusal only where the API itself said so, in a JSON object.

    Anything else may be a proxy speaking, and says nothing about what happened to the request.
    """
    if not is_api_error(raw):
        return unlike_api(raw)
    said = said_by(raw)
    words = " ".join((*said.codes, said.prose))
    is_input = _INPUT.search(words) and not re.search(r"\bmodel\b|external|field required|unknown field", words)
    if is_input:
        return Refused(RefusalKind.ASSET_GONE, error)
    if raw.status in _WRONG_ADDRESS and not _ABOUT_REQUEST.search(words):
        return unlike_api(raw)
    return Refused(RefusalKind.INVALID, error)


def _is_over_quote(status: int, said: Said) -> bool:
    """Whether the refusal is about the price being above what the caller allowed (Service rule 4.6)."""
    words = " ".join((*said.codes, said.prose))
    if status in _NEVER_A_REFUSAL or _MUST_BE.search(words):
        return False
    return bool(_COMPARED.search(words) and (_PRICE_LIMIT if status in _OWN else _PRICE).search(words))


def _is_quota(said: Said) -> bool:
    return any("quota" in code for code in said.codes)


def _forbidden(raw: RawReply, error: ErrorInfo) -> AccountBlocked | EdgeBlocked:
    if not is_api_error(raw):
        return EdgeBlocked()
    said = said_by(raw)
    words = " ".join((*said.codes, said.prose))
    if error.code.lower() == _UPGRADE_CODE or _UPGRADE_CODE in raw.body.decode(errors="replace").lower():
        return AccountBlocked(AccountProblem.UPGRADE_REQUIRED, error)
    if _OF_ACCOUNT.search(words):
        return AccountBlocked(AccountProblem.NO_CREDITS, error)
    return AccountBlocked(AccountProblem.FORBIDDEN, error)


def _service_error(code: str, message: str, secrets: tuple[str, ...]) -> ErrorInfo:
    return ErrorInfo(
        safe_text(code, CODE_MAX_CHARACTERS, secrets),
        safe_text(message, MESSAGE_MAX_CHARACTERS, secrets),
    )
