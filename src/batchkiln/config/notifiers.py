"""Notifiers as configured: where a person or a program is told, and of what. Addresses are secrets, and read late."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from batchkiln.config.profiles import KeySource
from batchkiln.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Address:
    """A URL that may itself be the right to write there: given in clear, or by the place where it stands."""

    text: str | None = field(default=None, repr=False)
    source: KeySource | None = None
    folder: Path = field(default_factory=Path)

    def read(self) -> str | None:
        """Return the URL; None where there is none at its place."""
        return self.text if self.source is None else self.source.read(self.folder)

    def __str__(self) -> str:
        """Say where to look, never what is there."""
        return "the configuration" if self.source is None else str(self.source)


@dataclass(frozen=True, slots=True)
class Notifier:
    """One way to tell: exactly one of an Apprise URL and a webhook. `events` is None for all kinds."""

    name: str
    apprise: Address | None = None
    webhook: Address | None = None
    secret: KeySource | None = None
    events: frozenset[str] | None = None

    def url(self) -> str:
        """Return where to send to. Raises `InputError` where it cannot be read; the text of it is never told."""
        address = self.apprise or self.webhook
        assert address is not None, "a notifier has exactly one address"
        url = address.read()
        if not url:
            raise InputError(f"notifier {self.name}: no URL found in {address}")
        if self.webhook is not None and not is_web(url):
            raise InputError(f"notifier {self.name}: the URL in {address} begins with neither https:// nor http://")
        return url

    def secret_text(self) -> str | None:
        """Return what a webhook is signed with; None where it is not to be signed. Raises `InputError` as `url`."""
        if self.secret is None:
            return None
        text = self.secret.read(Path())
        if not text:
            raise InputError(f"notifier {self.name}: no secret found in {self.secret}")
        return text


def is_web(url: str) -> bool:
    """Tell whether a text is an address of the web."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)
