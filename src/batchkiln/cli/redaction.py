"""Texts and documents made fit to be given away: without folders of this machine, keys and signed links (Law 8).

The service's texts were cleaned before they were stored (`client/redact.py`). This is done once more, since what is
given away cannot be taken back.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from batchkiln.config import Config
from batchkiln.core.errors import InputError

_PATH: Final = re.compile(r"(?<![\w:/.~])(?:~|/[^\s/'\"<>|,;]+)(?:/[^\s/'\"<>|,;]+)*/([^\s/'\"<>|,;]+)")
_LINK: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>]+", re.IGNORECASE)
_BEARER: Final = re.compile(r"\bbearer\s+[^\s\"'<>]+", re.IGNORECASE)


def known_keys(config: Config, profile_name: str) -> tuple[str, ...]:
    """Read a profile's keys, to find them in what is given away. A keyring is not asked: that may ask a person."""
    if profile_name not in config.profiles:
        return ()
    profile, found = config.profiles[profile_name], list[str]()
    for account in profile.accounts:
        sources = tuple(source for source in account.keys if source.keyring is None)
        with suppress(InputError):  # where none can be read, none can be given away
            found += replace(profile, accounts=(replace(account, keys=sources),)).keys(account.name)
    return tuple(found)


def mask_keys(text: str, keys: Sequence[str]) -> str:
    """Leave keys out of a text."""
    for key in keys:
        text = text.replace(key, "[key]")
    return text


def strip_folders(text: str) -> str:
    """Leave of each absolute path in a text its last part; a text that is one path, with spaces or not, likewise."""
    if text.startswith("/") and text.count("/") > 1 and "\n" not in text:
        return "…/" + PurePath(text).name
    return _PATH.sub(r"…/\1", text)


def strip_query(url: str) -> str:
    """Leave of a link what names the thing; what may be a signature (query, fragment, user) is cut off."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def redact_text(text: str, keys: Sequence[str]) -> str:
    """Make one text fit to be given away."""
    text = _LINK.sub(lambda found: strip_query(found[0]), mask_keys(text, keys))
    return strip_folders(_BEARER.sub("[key]", text))


def redact(value: Any, keys: Sequence[str]) -> Any:  # noqa: ANN401  any JSON value
    """Make a document fit to be given away: every text in it, names of fields as well."""
    if isinstance(value, str):
        return redact_text(value, keys)
    if isinstance(value, Mapping):
        return {redact_text(str(name), keys): redact(entry, keys) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [redact(entry, keys) for entry in value]
    return value
