"""Texts and documents made fit to be given away: without folders of this machine, keys and signed links (Law 8).

The service's texts were cleaned before they were stored (`client/redact.py`). This is done once more, since what is
given away cannot be taken back.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

_PATH: Final = re.compile(r"(?<![\w:/.~])(?:~|/[^\s/'\"<>|,;]+)(?:/[^\s/'\"<>|,;]+)*/([^\s/'\"<>|,;]+)")
_LINK: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>]+", re.IGNORECASE)
_BEARER: Final = re.compile(r"\bbearer\s+[^\s\"'<>]+", re.IGNORECASE)


def without_folders(text: str) -> str:
    """Leave of each absolute path in a text its last part; a text that is one path, with spaces or not, likewise."""
    if text.startswith("/") and text.count("/") > 1 and "\n" not in text:
        return "…/" + PurePath(text).name
    return _PATH.sub(r"…/\1", text)


def plain_link(url: str) -> str:
    """Leave of a link what names the thing; what may be a signature (query, fragment, user) is cut off."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def discreet_text(text: str, secrets: Sequence[str]) -> str:
    """Make one text fit to be given away."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
    text = _LINK.sub(lambda found: plain_link(found[0]), text)
    return without_folders(_BEARER.sub("[key]", text))


def discreet(value: Any, secrets: Sequence[str]) -> Any:  # noqa: ANN401  any JSON value
    """Make a document fit to be given away: every text in it, names of fields as well."""
    if isinstance(value, str):
        return discreet_text(value, secrets)
    if isinstance(value, Mapping):
        return {discreet_text(str(name), secrets): discreet(entry, secrets) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [discreet(entry, secrets) for entry in value]
    return value
