"""Identifies an output across polls, in which links are signed anew and may come in another order."""

import hashlib
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from batchkiln.core.responses import OutputLink


def mark_of(link: OutputLink) -> str:
    """Return a hash that identifies an output: of its identity, else of its URL without the query.

    The link itself is a secret (Law 8), and its signature is in the query, which changes with each poll.
    """
    if link.identity is not None:
        identity = f"id {link.identity}"
    else:
        parts = _parts(link.url)
        identity = f"url {parts.scheme}://{parts.netloc}{parts.path}"
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


def extension_of(link: OutputLink) -> str | None:
    """Return the file extension of the link's path, in lower case without a dot, or None."""
    stem, dot, extension = _parts(link.url).path.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem and dot and extension else None


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


class Listed(Struct, frozen=True):
    """An output as a record lists it; `position` counts from 1, and `mark` is None if it is not unique."""

    position: int
    link: OutputLink
    mark: str | None


class Listing(Struct, frozen=True):
    """The outputs of a record that are still to be fetched.

    `unplaced` holds the SHA-256 of saved files that match no link. One of the links may be theirs, which only its bytes
    show. Equal files occur as often as they were saved.
    """

    wanted: tuple[Listed, ...]
    unplaced: tuple[str, ...]


def compare(links: Sequence[OutputLink], saved: Mapping[int, str], marks: Mapping[int, str]) -> Listing:
    """Return the unsaved outputs of a record, given the hashes and marks of the saved files by output number.

    Two polls of one generation may list its outputs in another order, so the position identifies nothing.
    """
    found = [mark_of(link) for link in links]
    listed = [
        Listed(position, link, mark if found.count(mark) == 1 else None)
        for position, (link, mark) in enumerate(zip(links, found, strict=True), start=1)
    ]
    known = {marks[number]: number for number in saved if number in marks}
    placed = {known[entry.mark] for entry in listed if entry.mark in known}
    return Listing(
        wanted=tuple(entry for entry in listed if entry.mark not in known),
        unplaced=tuple(sha256 for number, sha256 in saved.items() if number not in placed),
    )


def free_number(position: int, taken: frozenset[int]) -> int:
    """Return the number of a new output: its position, or the first free number."""
    if position not in taken:
        return position
    return next(number for number in range(1, len(taken) + 2) if number not in taken)
