"""The configured features that few commands use: notifiers, the program for saved files, and object storage."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field

from batchkiln.config.model import Address, KeySource, is_web
from batchkiln.core.errors import InputError
from batchkiln.object_storage import StorageSettings


class Notifier(Struct, frozen=True):
    """A recipient of notifications: an Apprise URL or a webhook, never both. If `events` is None, it gets all kinds."""

    name: str
    apprise: Address | None = None
    webhook: Address | None = None
    secret: KeySource | None = None
    events: frozenset[str] | None = None

    def url(self) -> str:
        """Return the recipient's URL. Raise `InputError`, which does not show the URL, if it is missing or invalid."""
        address = self.apprise or self.webhook
        assert address is not None, "a notifier has exactly one address"
        url = address.read()
        if not url:
            raise InputError(f"notifier {self.name}: no URL found in {address}; set it, or remove the notifier")
        if self.webhook is not None and not is_web(url):
            raise InputError(f"notifier {self.name}: the URL in {address} begins with neither https:// nor http://")
        return url

    def secret_text(self) -> str | None:
        """Return the secret that webhook messages are signed with, or None. Raise `InputError` if it is missing."""
        if self.secret is None:
            return None
        text = self.secret.read(Path())
        if not text:
            raise InputError(f"notifier {self.name}: no secret found in {self.secret}; set it, or remove `secret_env`")
        return text


class Hook(Struct, frozen=True):
    """The program `on_saved` with its bounds. `command` has fields in braces; it runs in `folder`, without a shell.

    `at_once` is the number of programs at a time. It can have one item made again at most `redos` times, and all items
    of a job together for at most `redo_credits`.
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        *("path", "job", "item", "index", "version", "output", "file", "media_type", "model", "mode"),
        *("generation_id", "sha256"),
    )
    FIELD: ClassVar[re.Pattern[str]] = re.compile(r"\{\{|\}\}|\{([a-z_0-9]*)\}")

    command: tuple[str, ...]
    folder: Path
    at_once: int = 2
    timeout_seconds: float = 60.0
    redos: int = 2
    redo_credits: int = 0


class ObjectStorage(Struct, frozen=True):
    """The options of fsspec's file systems by scheme, and the bytes that local copies of objects may have.

    An option's value is a text, number, truth value, mapping, or the place of a secret.
    """

    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    copies_bytes: int = 4 << 30

    def read(self) -> StorageSettings:
        """Return the settings with their secrets. Raise `InputError` if one is missing."""
        options = {scheme: self._read(options, scheme) for scheme, options in self.options.items()}
        return StorageSettings(options, self.copies_bytes)

    def _read(self, options: Mapping[str, object], place: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in options.items():
            here = f"{place}.{name}"
            if isinstance(value, KeySource):
                found[name] = value.read(Path())
                if not found[name]:
                    raise InputError(f"object_storage.{here}: nothing found in {value}; set it, or remove the option")
            else:
                found[name] = self._read(value, here) if isinstance(value, Mapping) else value
        return found
