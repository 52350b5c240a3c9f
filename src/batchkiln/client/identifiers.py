"""Which text of an upload's entry is the asset's identifier: by name, else by elimination (Service section 2.3)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from batchkiln.client.coercion import read_instant
from batchkiln.client.json_tree import Path, Place, as_jmespath, is_field_name, squash, squashed
from batchkiln.client.list_entries import Entry, told_text

_ID_MAX_CHARACTERS: Final = 500
_SURE: Final = 60  # from here on a name alone decides
_FLOORS: Final = (90, 75, _SURE)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_IDS: Final = frozenset(
    {"id", "uid", "uuid", "guid", "identifier", "key", "ref", "handle", "token", "reference", "oid"}
)
_THINGS: Final = frozenset({"file", "image", "media", "object", "resource", "blob", "document", "item", "attachment"})
# Words of names that are never the asset's identifier.
_NEVER: Final = frozenset(
    {
        *("request", "trace", "span", "correlation", "account", "user", "session", "batch", "job", "project", "org"),
        *("organization", "tenant", "owner", "team", "customer", "etag", "sha", "md", "hash", "checksum", "digest"),
        *("policy", "signature", "bucket", "region", "idempotency", "expires", "expiry", "expiration", "method"),
        *("type", "status", "state", "size", "bytes", "length", "mime", "url", "uri", "href", "link", "header"),
        *("headers", "created", "updated", "at", "index", "position", "order", "count", "version", "message"),
        *("description", "note", "hint", "host", "domain", "encoding", "format", "kind", "verb", "action", "next"),
        *("page", "cursor", "access", "secret", "password", "authorization", "api", "width", "height", "duration"),
    }
)
_CONTENT: Final = frozenset({"uploadheaders", "headers", "requiredheaders", "putheaders", "fields", "formfields"})
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@=+~-]{2,499}")
_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")
_HOLDERS: Final = frozenset({"data", "result", "results", "response", "payload", "body", "content", "reply"})
_MARKS: Final = frozenset({"status", "success", "ok", "code", "message", "created", "error", "errors"})
_NUMBERED: Final = re.compile(r"(.*?)(\d{1,2})")
_PLAIN_ID: Final = re.compile(r"\d{3,20}|[A-Fa-f0-9]{64}")  # only under a name that says id; shorter are positions
_SIGNATURE: Final = re.compile(r"[A-Fa-f0-9]{64}|[A-Za-z0-9+/]{22,}={1,2}")
_COMMON: Final = re.compile(r"[a-z]+|[A-Z]+|v?\d+(\.\d+)*")


def choose_ids(entries: Sequence[Entry], names: Sequence[str], hint: tuple[str, ...] = ()) -> list[str] | None:
    """Return one identifier per entry, None where none, or more than one field, could be meant.

    `hint` is where the service's own description says that it stands.
    """
    told = [
        _candidates(entry, name, position) for position, (entry, name) in enumerate(zip(entries, names, strict=True))
    ]
    if hint and (hinted := _hinted(entries, told, hint)):
        return hinted
    if len(entries) == 1 and (nearest := _nearest(entries[0], names[0])):
        return [nearest]
    shared = set.intersection(*({field for field, _ in each} for each in told)) if told else set()
    best: dict[int, list[list[str]]] = {}
    for field in sorted(shared):
        values = [next(value for own, value in each if own == field) for each in told]
        if len(set(values)) == len(values):
            best.setdefault(_score(field), []).append(values)
    sure = [points for points in best if points >= _SURE]
    if sure:
        return best[max(sure)][0]
    mixed = [_surest(each) for each in told]
    if all(mixed) and len(set(mixed)) == len(mixed):
        return [each for each in mixed if each is not None]
    return _left_over(entries, names, best)


def guesses(entry: Entry, name: str = "") -> Iterator[str]:
    """Give the places that a person could mean, as JMESPaths of field names."""
    for place in entry.scalars():
        value = told_text(place)
        is_open = value is not None and _may_be_id(value, name, 0)
        if is_open and not _is_never(place.path) and not _is_of_reply(place, entry):
            yield as_jmespath(place.path)


def name_score(path: Path) -> int:
    """Return how much a field's name looks like the asset's identifier, 0 for not at all, 100 for certain."""
    return 0 if _is_never(path) else _score(_field_of(path))


def _nearest(entry: Entry, name: str) -> str | None:
    """Return what names itself the identifier next to the only anchor, and not what names the whole reply."""
    nearer = [replace(entry, parts=entry.parts[: count + 1]) for count in range(len(entry.parts))]
    levels = [_candidates(each, name, 0) for each in nearer]
    for least in _FLOORS:
        for level in levels:
            points, value = max(((_score(field), value) for field, value in level), default=(0, ""))
            if points >= least:
                return value
    return None


def _candidates(entry: Entry, name: str, position: int) -> list[tuple[tuple[str, ...], str]]:
    """Return what could be the identifier, by its field: the two last names, the nearest to the anchor first."""
    found: dict[tuple[str, ...], str] = {}
    for place in entry.scalars():
        value = told_text(place)
        if value is None or _is_of_reply(place, entry):
            continue
        if not _is_never(place.path) and _is_sayable(value) and value != name:
            found.setdefault(_field_of(_without_key(place.path, entry)), value)
    for key in entry.keyed_by():
        is_told = key != name and not is_field_name(key) and not _is_position(key, position)
        if is_told and _is_sayable(key) and not _looks_like_file(key):
            found.setdefault(("*",), key)
    return list(found.items())


def _is_of_reply(place: Place, entry: Entry) -> bool:
    """Whether a value is about the reply as a whole.

    It stands in its envelope, or the only file stands in a list, and the value in none.
    """
    if not entry.is_whole:
        return False
    if place.parent is not None and _is_envelope(place.parent, entry.anchor):
        return True
    ends = [number for number, step in enumerate(entry.anchor.path, 1) if isinstance(step, int)]
    is_beside = bool(ends) and place.path[: ends[-1]] != entry.anchor.path[: ends[-1]]
    return is_beside and not any(isinstance(step, int) for step in place.path)


def _is_envelope(holder: Place, anchor: Place) -> bool:
    """Whether an object says how the call went, and holds what it is about under a name that says nothing."""
    depth = len(holder.path)
    if not isinstance(holder.value, Mapping) or len(anchor.path) <= depth or anchor.path[:depth] != holder.path:
        return False
    return squash(anchor.path[depth]) in _HOLDERS and bool(_MARKS & squashed(holder.value).keys())


def _without_key(path: Path, entry: Entry) -> Path:
    """Return a path without the key of the entry's own places in maps: it differs from entry to entry."""
    if entry.is_whole:
        return path
    for part in entry.parts:
        root = part.path
        if path[: len(root)] == root and isinstance(root[-1], str):
            return (*root[:-1], *path[len(root) :])
    return path


def _field_of(path: Path) -> tuple[str, ...]:
    """Return the names that tell what a value is: its own, and the one above it where that is a field's name."""
    names = [step for step in path if isinstance(step, str)]
    if not names:
        return ()
    above = [name for name in names[-2:-1] if is_field_name(name)]
    return (*above, names[-1])


def _hinted(
    entries: Sequence[Entry], told: Sequence[list[tuple[tuple[str, ...], str]]], hint: tuple[str, ...]
) -> list[str] | None:
    """Return what stands where the description says: a field by its name, or the key of a map."""
    values: list[str | None]
    if hint[-1] == "*":
        values = [next((value for field, value in each if field == ("*",)), None) for each in told]
        keys = [_key_at(entry, hint) for entry in entries]
        values = [value or key for value, key in zip(values, keys, strict=True)]
    else:
        values = [_at_hint(entry, hint) for entry in entries]
    found = [value for value in values if value is not None]
    return found if len(found) == len(entries) and len(set(found)) == len(found) else None


def _key_at(entry: Entry, hint: tuple[str, ...]) -> str | None:
    """Return the name under which the entry stands in the map that is meant."""
    here = next((part for part in entry.parts if part.names[:-1] == hint[:-1] and part.names), None)
    if here is None:
        return None if entry.is_whole else next(iter(entry.keyed_by()), None)
    return str(here.path[-1])


def _at_hint(entry: Entry, hint: tuple[str, ...]) -> str | None:
    places = [place for place in entry.scalars() if place.name == hint[-1] and told_text(place) is not None]
    whole = [place for place in places if _fits(place.names, hint)]
    others = [place for place in places if not _is_of_reply(place, entry)]
    return next((told_text(place) for place in whole or others), None)


def _fits(names: tuple[str, ...], hint: tuple[str, ...]) -> bool:
    tail = names[-len(hint) :]
    return len(tail) == len(hint) and all(own in {"*", told} for told, own in zip(tail, hint, strict=True))


def _score(field: tuple[str, ...]) -> int:
    """Return how surely a field is the identifier by its name alone."""
    if not field:
        return 0
    if field == ("*",):
        return 65
    own = frozenset(word.removesuffix("s") for word in _words(field[-1]))  # lists side by side have plurals
    squashed = squash(field[-1]).removesuffix("s")
    above = _words(field[-2]) if len(field) > 1 else frozenset()
    for points, is_meant in (
        (100, squashed == "assetid"),
        (98, squashed in {"id", "uuid", "uid"} and bool(above & {"asset", "assets"}) and not above & {"upload"}),
        (96, ("asset" in own and bool(own & _IDS)) or squashed in {"asset", "assetuuid", "assetref", "assetkey"}),
        (94, bool(own & _IDS) and bool(above & {"asset"})),
        (80, squashed in {"id", "uuid", "uid", "identifier", "guid", "oid"} and not above & {"upload"}),
        (75, bool(own & _THINGS) and bool(own & _IDS)),
        (72, squashed in {"fileid", "imageid", "mediaid"} or (bool(above & _THINGS) and bool(own & _IDS))),
        (61, squashed in {"uploadid", "id"} or ("upload" in own and "id" in own)),
        (62, squashed in {"key", "ref", "handle", "reference"}),
        (20, bool(own & _IDS)),
    ):
        if is_meant:
            return points
    return 10


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name[:100]))


def _surest(told: list[tuple[tuple[str, ...], str]]) -> str | None:
    """Return what is the identifier beyond doubt, where each entry spells it in its own way."""
    ranked = sorted(((_score(field), value) for field, value in told), reverse=True)
    return ranked[0][1] if ranked and ranked[0][0] > 90 else None  # noqa: PLR2004  names with `asset` in them


def _left_over(entries: Sequence[Entry], names: Sequence[str], best: dict[int, list[list[str]]]) -> list[str] | None:
    """Return the only texts that are no name, position, state, instant, size, media type or url."""
    left: list[list[str]] = []
    for points in sorted(best, reverse=True):
        for values in best[points]:
            says_id = points > 10  # noqa: PLR2004  a name that says id, if only somehow
            is_open = all(
                _may_be_id(value, names[position], position) or (says_id and _PLAIN_ID.fullmatch(value) is not None)
                for position, value in enumerate(values)
            )
            if is_open and values not in left and not _is_counted(values):
                left.append(values)
        if left and says_id:
            return left[0] if len(left) == 1 else None
    return left[0] if len(left) == 1 and entries else None


def _is_counted(values: list[str]) -> bool:
    """Whether the texts are alike but for a number that counts them."""
    matches = [_NUMBERED.fullmatch(value) for value in values]
    if len(values) < 2 or not all(matches):  # noqa: PLR2004  one alone counts nothing
        return False
    numbers = [int(match[2]) for match in matches if match]
    is_alike = len({match[1] for match in matches if match}) == 1
    return is_alike and numbers in (list(range(len(values))), list(range(1, len(values) + 1)))


def _is_never(path: Path) -> bool:
    names = [step for step in path if isinstance(step, str)]
    if any(squash(name) in _CONTENT for name in names):
        return True
    # What stands below `request` or `account` is about that, and not about the asset.
    own = _words(names[-1]) if names else frozenset()
    around = frozenset().union(*(_words(name) for name in names[:-1] if is_field_name(name)))
    is_aside = around & {"request", "account", "user", "meta", "trace", "limits", "quota", "pagination", "links"}
    squashed = squash(names[-1]) if names else ""
    is_never = bool(own & _NEVER) or squashed in {"requestid", "traceid", "contenttype", "filename", "accountid"}
    return (is_never and not ("asset" in own and own & _IDS)) or bool(is_aside)


def _is_sayable(value: str) -> bool:
    return 0 < len(value) <= _ID_MAX_CHARACTERS and value.isprintable() and " " not in value and "://" not in value


def _may_be_id(value: str, name: str, position: int) -> bool:
    """Whether a text is none of what stands beside an identifier."""
    return (
        _is_sayable(value)
        and value != name
        and _TOKEN.fullmatch(value) is not None
        and not _COMMON.fullmatch(value)
        and not _MEDIA_TYPE.fullmatch(value)
        and not value.startswith("/")
        and not _looks_like_file(value)
        and not _is_position(value, position)
        and not _SIGNATURE.fullmatch(value)
        and read_instant(value) is None
    )


def _looks_like_file(value: str) -> bool:
    return value.lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".bin"))


def _is_position(value: str, position: int) -> bool:
    return value in {str(position), str(position + 1)}
