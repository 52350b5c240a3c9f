"""Maps unsuccessful replies to values. Pure.

The user's rules have priority over the words of the reply, and the words over the status.
"""

import re
from http import HTTPStatus
from typing import Final

from batchkiln.client.error_messages import ErrorTexts, code_and_message, error_texts, plain_text
from batchkiln.client.http_response import NOT_JSON, RawReply, retry_after
from batchkiln.client.json_tree import read_text
from batchkiln.client.redact import CODE_MAX_CHARACTERS, MESSAGE_MAX_CHARACTERS, safe_text
from batchkiln.client.refusal_words import ErrorMeaning, meaning_by_code, meaning_by_prose
from batchkiln.client.reply_mapping import NO_MAPPING, ReplyMapping
from batchkiln.core.provider import UPGRADE_CODE
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

# The status alone decides: "cost exceeds the daily budget" under a 429 is a limit, not a refusal.
_LIMIT_STATUSES: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
# For these statuses, the words have to name the request's own maximum.
_EXPLICIT_PRICE_STATUSES: Final = frozenset({HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT})
_LOCKED: Final = frozenset({HTTPStatus.LOCKED, HTTPStatus.TOO_EARLY})
_WRONG_ADDRESS: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.METHOD_NOT_ALLOWED})
_ACCOUNT_WORDS: Final = re.compile(r"credit|subscri|balance|payment|billing|purchas")
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


def read_error(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> ErrorInfo:
    """Return the code and message of an error body in any usual shape; else those of the status."""
    document = raw.document()
    if document is NOT_JSON:
        code, message = "", plain_text(raw)
    else:
        code, message = code_and_message(document)
        code = read_text(mapping.find(ReplyField.ERROR_CODE, document)) or code
        message = read_text(mapping.find(ReplyField.ERROR_MESSAGE, document)) or message
    if not message:
        message = HTTPStatus(raw.status).phrase if raw.status in set(HTTPStatus) else f"status {raw.status}"
    return _error_info(code or f"http_{raw.status}", message, raw.secrets)


def read_error_object(document: object, secrets: tuple[str, ...]) -> ErrorInfo | None:
    """Return the code and message of a record's `error`; None if it has none."""
    if document is None or document in ({}, [], "", False):
        return None
    code, message = code_and_message(document)
    return _error_info(code, message or code or "the service gave no reason", secrets)


def read_create_error(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> RefusedOrBusy:
    """Map an unsuccessful reply to a create."""
    error = read_error(raw, mapping)
    reply: RefusedOrBusy | None = configured_meaning(raw, mapping) or _by_words(raw, error)
    is_locked = raw.status in _LOCKED or error.code.lower() == "locked"
    if reply is None and is_locked and is_api_error(raw):
        reply = Busy(retry_after(raw), error)
    reply = reply or transient_error(raw)
    if reply is not None:
        return reply
    return IdempotencyConflict(error) if raw.status == HTTPStatus.CONFLICT else _request_error(raw, error)


def read_refusal(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> Refused | TransientError:
    """Map an unsuccessful reply to a call that creates nothing. A busy account then means only `Throttled`."""
    reply = read_create_error(raw, mapping)
    match reply:
        case Busy(retry_after=wait, error=error):
            return Throttled(wait, error)
        case IdempotencyConflict(error=error):
            return Refused(RefusalKind.INVALID, error) if is_api_error(raw) else not_an_api_reply(raw)
        case _:
            return reply


def configured_meaning(raw: RawReply, mapping: ReplyMapping) -> Refused | Busy | AccountBlocked | None:
    """Return the configured meaning of a reply, or None. For a 2xx, a rule has to name a status or a code."""
    if raw.is_success and not any(rule.status == raw.status or rule.code for rule in mapping.rules.refusals):
        return None
    error = read_error(raw, mapping)
    match mapping.meaning(raw.status, error.code, error.message):
        case None:
            return None
        case RefusalMeaning.BUSY:
            return Busy(retry_after(raw), error)
        case RefusalMeaning.NO_CREDITS:
            return AccountBlocked(AccountProblem.NO_CREDITS, error)
        case meaning:
            return Refused(RefusalKind(meaning.value), error)


def transient_error(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> TransientError | None:
    """Return the error that any call may meet; None for a 4xx about this one request."""
    error = read_error(raw, mapping)
    texts = configured_meaning(raw, mapping)
    if isinstance(texts, AccountBlocked):
        return texts
    if isinstance(texts, Busy):
        return Throttled(texts.retry_after, error)
    return _by_status(raw, error)


def _by_status(raw: RawReply, error: ErrorInfo) -> TransientError | None:
    reply: TransientError | None = None
    match raw.status:
        case HTTPStatus.UNAUTHORIZED:
            reply = AccountBlocked(AccountProblem.KEY_REFUSED, error)
        case HTTPStatus.PAYMENT_REQUIRED:
            reply = AccountBlocked(AccountProblem.NO_CREDITS, error)
        case HTTPStatus.FORBIDDEN:
            reply = _forbidden(raw, error)
        case HTTPStatus.TOO_MANY_REQUESTS:
            reply = Throttled(retry_after(raw), error)
        case HTTPStatus.LOCKED | HTTPStatus.TOO_EARLY:
            reply = Throttled(retry_after(raw), error) if is_api_error(raw) else not_an_api_reply(raw)
        case HTTPStatus.REQUEST_TIMEOUT:
            reply = NoResponse(f"the service answered {raw.status} before it had received the whole request")
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            reply = Unavailable(retry_after(raw), error)
        case status if status < HTTPStatus.BAD_REQUEST:
            reply = not_an_api_reply(raw)
        case _:
            pass  # a 4xx about the request itself
    return reply


def is_api_error(raw: RawReply) -> bool:
    """Return whether the body is a JSON object, as errors of the API are, unlike a proxy's (Service section 7)."""
    return isinstance(raw.document(), dict)


def not_an_api_reply(raw: RawReply) -> NoResponse:
    """Return an error for an address that answers, but not like this API; its text is cut short."""
    texts = read_error(raw)
    kind = safe_text(raw.media_type, CODE_MAX_CHARACTERS, raw.secrets) or "no content type"
    return NoResponse(
        f"the address answers, but not like this API (status {raw.status}, {kind}: {texts.message}); "
        "check the host and the path of the base URL",
        raw.status,
    )


def _by_words(raw: RawReply, error: ErrorInfo) -> RefusedOrBusy | None:
    """Return the meaning of the API's own words; None if the status decides."""
    is_about_request = HTTPStatus.BAD_REQUEST <= raw.status < HTTPStatus.INTERNAL_SERVER_ERROR
    if not is_about_request or not is_api_error(raw) or raw.status == HTTPStatus.UNAUTHORIZED:
        return None
    texts = error_texts(raw)
    meaning = meaning_by_code(texts)
    if raw.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}:
        # All these are limits, except for missing credits, which waiting does not restore.
        is_lack = meaning is ErrorMeaning.NO_CREDITS and raw.status == HTTPStatus.TOO_MANY_REQUESTS
        return AccountBlocked(AccountProblem.NO_CREDITS, error) if is_lack and not _is_quota(texts) else None
    if meaning is None and _is_over_quote(raw.status, texts):
        meaning = ErrorMeaning.OVER_QUOTE
    if meaning is None:
        meaning = meaning_by_prose(texts)
    return None if meaning is None else _reply_of_meaning(raw, meaning, error)


def _reply_of_meaning(raw: RawReply, meaning: ErrorMeaning, error: ErrorInfo) -> RefusedOrBusy | None:
    """Return the reply of a meaning; None if the status decides after all."""
    is_paid = raw.status == HTTPStatus.PAYMENT_REQUIRED
    reply: RefusedOrBusy | None = None
    match meaning:
        case ErrorMeaning.BUSY:
            reply = None if is_paid else Busy(retry_after(raw), error)
        case ErrorMeaning.LIMIT:
            reply = None if is_paid else Throttled(retry_after(raw), error)
        case ErrorMeaning.KEY_MISMATCH:
            reply = IdempotencyConflict(error)
        case ErrorMeaning.NO_CREDITS:
            reply = AccountBlocked(AccountProblem.NO_CREDITS, error)
        case ErrorMeaning.LOCKED_OUT:
            reply = AccountBlocked(AccountProblem.FORBIDDEN, error)
        case ErrorMeaning.OVER_QUOTE:
            reply = Refused(RefusalKind.OVER_QUOTE, error)
        case ErrorMeaning.ASSET_GONE:
            is_certain = raw.status != HTTPStatus.FORBIDDEN or meaning_by_code(error_texts(raw)) is meaning
            reply = Refused(RefusalKind.ASSET_GONE, error) if is_certain else None
        case ErrorMeaning.CONTENT:
            reply = Refused(RefusalKind.INVALID, error)
        case ErrorMeaning.UNCERTAIN:
            reply = None if is_paid or raw.status == HTTPStatus.FORBIDDEN else Unavailable(retry_after(raw), error)
    return reply


def _request_error(raw: RawReply, error: ErrorInfo) -> Refused | NoResponse:
    """Map a 4xx without recognised words. It is a refusal only if the API itself answered, with a JSON object.

    Any other body may be a proxy's page, which proves nothing about the request's outcome.
    """
    if not is_api_error(raw):
        return not_an_api_reply(raw)
    texts = error_texts(raw)
    words = " ".join((*texts.codes, texts.prose))
    is_input = _INPUT.search(words) and not re.search(r"\bmodel\b|external|field required|unknown field", words)
    if is_input:
        return Refused(RefusalKind.ASSET_GONE, error)
    if raw.status in _WRONG_ADDRESS and not _ABOUT_REQUEST.search(words):
        return not_an_api_reply(raw)
    return Refused(RefusalKind.INVALID, error)


def _is_over_quote(status: int, texts: ErrorTexts) -> bool:
    """Return whether a refusal says that the price exceeds `max_cost_credits` (Service rule 4.6)."""
    words = " ".join((*texts.codes, texts.prose))
    if status in _LIMIT_STATUSES or _MUST_BE.search(words):
        return False
    return bool(
        _COMPARED.search(words) and (_PRICE_LIMIT if status in _EXPLICIT_PRICE_STATUSES else _PRICE).search(words)
    )


def _is_quota(texts: ErrorTexts) -> bool:
    return any("quota" in code for code in texts.codes)


def _forbidden(raw: RawReply, error: ErrorInfo) -> AccountBlocked | EdgeBlocked:
    if not is_api_error(raw):
        return EdgeBlocked()
    texts = error_texts(raw)
    words = " ".join((*texts.codes, texts.prose))
    if error.code.lower() == UPGRADE_CODE or UPGRADE_CODE in raw.body.decode(errors="replace").lower():
        return AccountBlocked(AccountProblem.UPGRADE_REQUIRED, error)
    if _ACCOUNT_WORDS.search(words):
        return AccountBlocked(AccountProblem.NO_CREDITS, error)
    return AccountBlocked(AccountProblem.FORBIDDEN, error)


def _error_info(code: str, message: str, secrets: tuple[str, ...]) -> ErrorInfo:
    return ErrorInfo(
        safe_text(code, CODE_MAX_CHARACTERS, secrets),
        safe_text(message, MESSAGE_MAX_CHARACTERS, secrets),
    )
