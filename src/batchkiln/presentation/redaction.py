"""Removes folders of this machine, API keys and signatures from texts and documents for other people (Law 8).

The client already redacts the service's texts before they are stored (`client/redact.py`). A file that leaves the
machine cannot be recalled, so it is redacted once more.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from msgspec.structs import replace

from batchkiln.config import Account, Config
from batchkiln.core.errors import InputError
from batchkiln.core.secret_texts import mask_keys

_PATH: Final = re.compile(r"(?<![\w:/.~])(?:~|/[^\s/'\"<>|,;]+)(?:/[^\s/'\"<>|,;]+)*/([^\s/'\"<>|,;]+)")
_LINK: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>]+", re.IGNORECASE)
_BEARER: Final = re.compile(r"\bbearer\s+[^\s\"'<>]+", re.IGNORECASE)


def known_keys(config: Config, profile_name: str) -> tuple[str, ...]:
    """Return a profile's API keys, to remove them from texts. Keyrings are skipped, because they may open a prompt."""
    if profile_name not in config.profiles:
        return ()
    profile, found = config.profiles[profile_name], list[str]()
    for account in profile.accounts:
        sources = tuple(source for source in account.keys if source.keyring is None)
        with suppress(InputError):  # an API key that cannot be read cannot leak
            found += replace(profile, accounts=(Account(account.name, sources),)).keys(account.name)
    return tuple(found)


def strip_folders(text: str) -> str:
    """Shorten each absolute path in a text to its last part, also if the whole text is a path with spaces."""
    if text.startswith("/") and text.count("/") > 1 and "\n" not in text:
        return "…/" + PurePath(text).name
    return _PATH.sub(r"…/\1", text)


def strip_query(url: str) -> str:
    """Remove the parts of a URL that may contain a signature: query, fragment and user."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def redact_text(text: str, keys: Sequence[str]) -> str:
    """Remove API keys, signatures and folders from a text."""
    text = _LINK.sub(lambda found: strip_query(found[0]), mask_keys(text, keys))
    return strip_folders(_BEARER.sub("[key]", text))


def redact(value: Any, keys: Sequence[str]) -> Any:  # noqa: ANN401  any JSON value
    """Redact every text in a JSON document, including field names."""
    if isinstance(value, str):
        return redact_text(value, keys)
    if isinstance(value, Mapping):
        return {redact_text(str(name), keys): redact(entry, keys) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [redact(entry, keys) for entry in value]
    return value
