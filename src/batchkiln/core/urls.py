"""Recognises URLs, decides which may be stored, and prepares them for texts that people read."""

import re
from typing import Final

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")

MAX_KEY_SIZE_BYTES: Final = 1024
"""The longest name of an object that S3 and Google Cloud Storage allow."""


def is_url(name: str) -> bool:
    """Return whether a text is a URL, and not a path."""
    return _URL.match(name) is not None


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case, such as `s3`; an empty text for a path."""
    found = _URL.match(url)
    return found[1].lower() if found else ""


def folder_url_problem(url: str) -> str | None:
    """Return why a URL cannot be the folder of objects, or None. It is stored and shown, so it has no secrets (Law 8).

    The text contains no part of the URL.
    """
    place = url.partition("://")[2]
    if "@" in place.partition("/")[0]:
        return "the URL contains credentials, which would be stored with the job"
    if "?" in url or "#" in url:
        return "the URL has a query or a fragment"
    if any(character <= " " or character == "\x7f" for character in url):
        return "the URL contains a space or a control character"
    if not place.strip("/") or {".", ".."} & set(place.split("/")):
        return "the URL names no folder"
    if len(place.encode(errors="surrogatepass")) > MAX_KEY_SIZE_BYTES // 2:
        return "the URL is too long"
    return None


def redacted(text: str) -> str:
    """Return a text without the credentials and query strings of its URLs (Law 8)."""
    return _QUERY.sub("?…", _CREDENTIALS.sub("…@", text))
