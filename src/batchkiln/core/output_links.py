"""What stays the same of an output from one read to the next: its links are signed afresh, and may change places."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from batchkiln.core.responses import OutputLink


def mark_of(link: OutputLink) -> str:
    """Return what tells an output from its siblings: a hash of its identity, else of its address without the query.

    The link itself is a secret (Law 8), and its signature stands in the query, which changes with each read.
    """
    if link.identity is not None:
        told = f"id {link.identity}"
    else:
        parts = _parts(link.url)
        told = f"url {parts.scheme}://{parts.netloc}{parts.path}"
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def extension_of(link: OutputLink) -> str | None:
    """Return the extension of the link's own file name, in small letters and without a dot; None for none."""
    stem, dot, extension = _parts(link.url).path.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem and dot and extension else None


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


@dataclass(frozen=True, slots=True)
class Listed:
    """One output as a record lists it; `mark` is None where its siblings have the same."""

    position: int
    link: OutputLink
    mark: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """What of a record is still to be fetched.

    `unplaced` are the hashes of saved files that no link could be matched to: one of the links may be theirs, which
    only its bytes tell. Equal files are there as often as they were saved.
    """

    wanted: tuple[Listed, ...]
    unplaced: tuple[str, ...]


def compare(links: Sequence[OutputLink], saved: Mapping[int, str], marks: Mapping[int, str]) -> Listing:
    """Compare a record's links with the saved files, by number: their hashes, and their marks where these are known.

    Two reads of one generation may list its outputs in another order: the place in the list tells nothing.
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
    """Return the number of a new output: its place in the list, or the first that is free."""
    if position not in taken:
        return position
    return next(number for number in range(1, len(taken) + 2) if number not in taken)
