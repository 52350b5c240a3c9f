"""Extracts code words and sentences from an error body of any usual shape (Service section 7).

Parts of the request that the service repeats are left out: a prompt about credits does not mean that credits are
missing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Final

from msgspec import Struct

from batchkiln.client.http_response import NOT_JSON, RawReply
from batchkiln.client.json_tree import normalize_fields, normalize_name, read_text

_DEPTH_MAX: Final = 6
_ENTRIES_MAX: Final = 8
_PARTS_MAX: Final = 40
_TEXT_MAX_CHARACTERS: Final = 2000
_TITLE: Final = re.compile(r"<title[^>]{0,200}>(.{0,500}?)</title", re.IGNORECASE | re.DOTALL)
_CODE_NAMES: Final = (
    *("code", "errorcode", "errcode", "__type", "type", "errortype", "status", "declinecode", "subcode", "kind"),
)
_MESSAGE_NAMES: Final = (
    *("message", "msg", "errormessage", "errormsg", "detail", "errordescription", "description", "reason", "title"),
)
_CONTAINER_NAMES: Final = (
    *("error", "errors", "detail", "details", "fault", "extensions", "data", "result", "response", "cause", "body"),
)
# A code, as `insufficient_credits`, `InsufficientCredits`, `credits.insufficient` or `CREDITS-LOW`.
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.:\-/#]+[A-Za-z0-9]+)*")
_CODE_MAX_CHARACTERS: Final = 80
# Typographic quotes and apostrophes are replaced first.
_PLAIN: Final = str.maketrans({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
_QUOTED: Final = re.compile(r"""(?<!\w)["'`](?=\S+\s)[^"'`]{3,2000}["'`](?!\w)""")
_EMPTY_CODES: Final = frozenset({"aboutblank", "error", "errors", "failed", "failure", "fail", "false", "object"})


class ErrorTexts(Struct, frozen=True):
    """The texts of an error body: codes as lower-case words, and all sentences on one line."""

    codes: tuple[str, ...]
    prose: str


def error_texts(raw: RawReply) -> ErrorTexts:
    """Return all codes and sentences of an error body. Parts of the request that it repeats are left out."""
    document = raw.document()
    if document is NOT_JSON:
        return ErrorTexts((), _normalized_prose(plain_text(raw)))
    codes: list[str] = []
    texts: list[str] = []
    for is_code, text in _labelled_texts(document, 0):
        (codes if is_code else texts).append(text)
        if len(codes) + len(texts) >= _PARTS_MAX:
            break
    return ErrorTexts(tuple(dict.fromkeys(map(_code_words, codes))), _normalized_prose(" . ".join(texts)))


def code_and_message(document: object, depth: int = 0) -> tuple[str, str]:
    """Return code and message of an error of any usual shape; either may be empty."""
    if isinstance(document, list):
        parts = [code_and_message(entry, depth + 1) for entry in document[:_ENTRIES_MAX]] if depth < _DEPTH_MAX else []
        codes = [code for code, _ in parts if code]
        return (codes[0] if codes else ""), "; ".join(message for _, message in parts if message)
    if isinstance(document, str) and (inner := _nested_json(document)) is not None and depth < _DEPTH_MAX:
        return code_and_message(inner, depth + 1)
    if not isinstance(document, Mapping) or depth >= _DEPTH_MAX:
        return "", read_text(document) or ""
    fields = normalize_fields(document)
    code, message = _code(fields), _message(fields, depth)
    for name in _CONTAINER_NAMES:
        if name in fields and not (code and message and not code.isdecimal()):
            inner_code, inner_message = code_and_message(fields[name], depth + 1)
            # {"error": "invalid_request", "message": "…"}: here `error` is the code.
            if isinstance(fields[name], str) and name == "error" and message and not code:
                inner_code, inner_message = inner_message, ""
            is_specific = inner_code and (name == "error" or not code or code.isdecimal())
            code = inner_code if is_specific else code
            message = message or inner_message
    if not message and not code:
        message = _field_messages(document)
    return code, message


def plain_text(raw: RawReply) -> str:
    """Return the text of a body that is not JSON; for an HTML page, its title."""
    text = raw.body[:20_000].decode(errors="replace")
    if "html" in raw.media_type or text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        return unescape(title[1]) if title else "an HTML page"
    return text if text.isprintable() or raw.media_type.startswith("text/") else ""


def _code(fields: Mapping[str, object]) -> str:
    """Return the code; a word is preferred to a number, because many services repeat the status as a code."""
    found = [text for name in _CODE_NAMES if (text := _short_code(read_text(fields.get(normalize_name(name)))))]
    informative = [text for text in found if not text.isdecimal() and normalize_name(text) not in _EMPTY_CODES]
    return next(iter(informative), next(iter(text for text in found if normalize_name(text) not in _EMPTY_CODES), ""))


def _short_code(text: str | None) -> str:
    """Return the last segment of a problem type that is a URL; any other code unchanged."""
    if text is None:
        return ""
    is_address = "://" in text and " " not in text
    return text.rstrip("/").rpartition("/")[2].rpartition("#")[2] if is_address else text


def _message(fields: Mapping[str, object], depth: int) -> str:
    message = next((text for name in _MESSAGE_NAMES if (text := read_text(fields.get(name)))), "")
    if message and depth < _DEPTH_MAX and (inner := _nested_json(message)) is not None:
        message = code_and_message(inner, depth + 1)[1] or message
    node = fields.get("loc")
    if message and isinstance(node, list):
        message = f"{'.'.join(str(step) for step in node[:_ENTRIES_MAX])}: {message}"
    return message


def _field_messages(document: Mapping[str, object]) -> str:
    """Return the messages of a map by field, as `{"prompt": ["can't be blank"]}`."""
    found = []
    for name, value in list(document.items())[:_ENTRIES_MAX]:
        texts = value[:_ENTRIES_MAX] if isinstance(value, list) else []
        found += [f"{name}: {text}" for text in texts if isinstance(text, str) and text.strip()]
    return "; ".join(found)


def _labelled_texts(document: object, depth: int) -> Iterator[tuple[bool, str]]:
    """Yield every code and every sentence, outermost first, as (is a code, text)."""
    if depth > _DEPTH_MAX:
        return
    match document:
        case list():
            for entry in document[:_ENTRIES_MAX]:
                yield from _labelled_texts(entry, depth + 1)
        case Mapping():
            yield from _labelled_texts_of_object(document, depth)
        case str() if (inner := _nested_json(document)) is not None:
            yield from _labelled_texts(inner, depth + 1)
        case str() if text := document.strip()[:_TEXT_MAX_CHARACTERS]:
            yield _is_code(text), text
        case _:
            pass


def _labelled_texts_of_object(document: Mapping[str, object], depth: int) -> Iterator[tuple[bool, str]]:
    fields = normalize_fields(document)
    for name in (*_CODE_NAMES, *_MESSAGE_NAMES):
        text = fields.get(normalize_name(name))
        if isinstance(text, str):
            yield from _labelled_texts(_short_code(text), depth + 1)
    known = {normalize_name(name) for name in (*_CODE_NAMES, *_MESSAGE_NAMES)}
    for name in _CONTAINER_NAMES:
        if name in fields and (name not in known or not isinstance(fields[name], str)):
            yield from _labelled_texts(fields[name], depth + 1)
    for value in list(document.values())[:_PARTS_MAX]:
        # {"prompt": ["can't be blank"]}: sentences of a field; a map or text under another name may repeat the request.
        if isinstance(value, list) and value and all(isinstance(entry, str) and " " in entry for entry in value):
            yield from ((False, entry[:_TEXT_MAX_CHARACTERS]) for entry in value[:_ENTRIES_MAX])


def _nested_json(text: str) -> object | None:
    """Return JSON that is embedded in a text; None if there is none."""
    if text.lstrip()[:1] not in {"{", "["} or len(text) > 20_000:  # noqa: PLR2004
        return None
    try:
        inner: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, Mapping | list) else None


def _is_code(text: str) -> bool:
    return len(text) <= _CODE_MAX_CHARACTERS and _CODE.fullmatch(text) is not None


def _code_words(code: str) -> str:
    """Return a code as words: `InsufficientCredits` and `INSUFFICIENT_CREDITS` are `insufficient credits`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", code)
    return re.sub(r"[^A-Za-z0-9]+", " ", apart).strip().lower()


def _normalized_prose(text: str) -> str:
    """Return sentences in lower case on one line, without long quotations."""
    text = _QUOTED.sub(" ", text[:20_000].translate(_PLAIN))
    return re.sub(r"[_\-\s]+", " ", text).lower()
