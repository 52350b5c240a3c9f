"""Finds the asset id among the texts of an upload entry: by name, else by elimination (Service section 2.3)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from batchkiln.client.json_tree import (
    JsonNode,
    Path,
    as_jmespath,
    is_field_name,
    normalize_fields,
    normalize_name,
    read_instant,
    words_in,
)
from batchkiln.client.list_entries import FileEntry, scalar_text

_ID_MAX_CHARACTERS: Final = 500
_SURE: Final = 60  # from this score on, the name alone decides
_FLOORS: Final = (90, 75, _SURE)
_IDS: Final = frozenset(
    {"id", "uid", "uuid", "guid", "identifier", "key", "ref", "handle", "token", "reference", "oid"}
)
_THINGS: Final = frozenset({"file", "image", "media", "object", "resource", "blob", "document", "item", "attachment"})
# Words of names that are never the asset id.
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
_PLAIN_ID: Final = re.compile(r"\d{3,20}|[A-Fa-f0-9]{64}")  # only if the name has a word for id
_SIGNATURE: Final = re.compile(r"[A-Fa-f0-9]{64}|[A-Za-z0-9+/]{22,}={1,2}")
_COMMON: Final = re.compile(r"[a-z]+|[A-Z]+|v?\d+(\.\d+)*")


def choose_asset_ids(
    entries: Sequence[FileEntry], names: Sequence[str], hint: tuple[str, ...] = ()
) -> list[str] | None:
    """Return one id per entry; None if no field, or more than one, may be the id.

    `hint` is the field's path according to the service's OpenAPI document.
    """
    found = [
        _candidates(entry, name, position) for position, (entry, name) in enumerate(zip(entries, names, strict=True))
    ]
    if hint and (hinted := _hinted(entries, found, hint)):
        return hinted
    if len(entries) == 1 and (nearest := _nearest_to_anchor(entries[0], names[0])):
        return [nearest]
    shared = set.intersection(*({field for field, _ in each} for each in found)) if found else set()
    best: dict[int, list[list[str]]] = {}
    for field in sorted(shared):
        values = [next(value for own, value in each if own == field) for each in found]
        if len(set(values)) == len(values):
            best.setdefault(_score(field), []).append(values)
    sure = [points for points in best if points >= _SURE]
    if sure:
        return best[max(sure)][0]
    mixed = [_best_by_name(each) for each in found]
    if all(mixed) and len(set(mixed)) == len(mixed):
        return [each for each in mixed if each is not None]
    return _by_elimination(entries, names, best)


def candidate_paths(entry: FileEntry, name: str = "") -> Iterator[str]:
    """Yield the JMESPaths of fields that a user might mean."""
    for node in entry.scalars():
        value = scalar_text(node)
        is_open = value is not None and _may_be_id(value, name)
        if is_open and not _is_excluded(node.path) and not _is_of_reply(node, entry):
            yield as_jmespath(node.path)


def name_score(path: Path) -> int:
    """Return the certainty that a field is an asset id, by its name, from 0 to 100."""
    return 0 if _is_excluded(path) else _score(_field_of(path))


def _nearest_to_anchor(entry: FileEntry, name: str) -> str | None:
    """Return the best-named id near the only anchor; an id farther away may identify the whole reply."""
    nearer = [replace(entry, parts=entry.parts[: count + 1]) for count in range(len(entry.parts))]
    levels = [_candidates(each, name, 0) for each in nearer]
    for least in _FLOORS:
        for level in levels:
            points, value = max(((_score(field), value) for field, value in level), default=(0, ""))
            if points >= least:
                return value
    return None


def _candidates(entry: FileEntry, name: str, position: int) -> list[tuple[tuple[str, ...], str]]:
    """Return the possible ids, those nearest to the anchor first, each after the names that `_field_of` returns."""
    found: dict[tuple[str, ...], str] = {}
    for node in entry.scalars():
        value = scalar_text(node)
        if value is None or _is_of_reply(node, entry):
            continue
        if not _is_excluded(node.path) and _is_token(value) and value != name:
            found.setdefault(_field_of(_without_key(node.path, entry)), value)
    for key in entry.map_keys():
        is_named = key != name and not is_field_name(key) and not _is_position(key, position)
        if is_named and _is_token(key) and not _looks_like_file(key):
            found.setdefault(("*",), key)
    return list(found.items())


def _is_of_reply(node: JsonNode, entry: FileEntry) -> bool:
    """Return whether a value concerns the reply as a whole.

    That is so if it is in the envelope, or if the only file is in a list and the value is not.
    """
    if not entry.is_only:
        return False
    if node.parent is not None and _is_envelope(node.parent, entry.anchor):
        return True
    ends = [number for number, step in enumerate(entry.anchor.path, 1) if isinstance(step, int)]
    is_beside = bool(ends) and node.path[: ends[-1]] != entry.anchor.path[: ends[-1]]
    return is_beside and not any(isinstance(step, int) for step in node.path)


def _is_envelope(holder: JsonNode, anchor: JsonNode) -> bool:
    """Return whether an object reports the call's outcome, and has its content under a generic name."""
    depth = len(holder.path)
    if not isinstance(holder.value, Mapping) or len(anchor.path) <= depth or anchor.path[:depth] != holder.path:
        return False
    return normalize_name(anchor.path[depth]) in _HOLDERS and bool(_MARKS & normalize_fields(holder.value).keys())


def _without_key(path: Path, entry: FileEntry) -> Path:
    """Return a path without the map key of the entry, because the key differs between entries."""
    if entry.is_only:
        return path
    for part in entry.parts:
        root = part.path
        if path[: len(root)] == root and isinstance(root[-1], str):
            return (*root[:-1], *path[len(root) :])
    return path


def _field_of(path: Path) -> tuple[str, ...]:
    """Return the names that identify a value: its own, and the one above it if that is a field's name."""
    names = [step for step in path if isinstance(step, str)]
    if not names:
        return ()
    above = [name for name in names[-2:-1] if is_field_name(name)]
    return (*above, names[-1])


def _hinted(
    entries: Sequence[FileEntry], candidates: Sequence[list[tuple[tuple[str, ...], str]]], hint: tuple[str, ...]
) -> list[str] | None:
    """Return the values at the hinted path: a field by its name, or the key of a map."""
    values: list[str | None]
    if hint[-1] == "*":
        values = [next((value for field, value in each if field == ("*",)), None) for each in candidates]
        keys = [_key_at(entry, hint) for entry in entries]
        values = [value or key for value, key in zip(values, keys, strict=True)]
    else:
        values = [_value_at_hint(entry, hint) for entry in entries]
    found = [value for value in values if value is not None]
    return found if len(found) == len(entries) and len(set(found)) == len(found) else None


def _key_at(entry: FileEntry, hint: tuple[str, ...]) -> str | None:
    """Return the key of the entry in the hinted map."""
    here = next((part for part in entry.parts if part.names[:-1] == hint[:-1] and part.names), None)
    if here is None:
        return None if entry.is_only else next(iter(entry.map_keys()), None)
    return str(here.path[-1])


def _value_at_hint(entry: FileEntry, hint: tuple[str, ...]) -> str | None:
    nodes = [node for node in entry.scalars() if node.name == hint[-1] and scalar_text(node) is not None]
    whole = [node for node in nodes if _path_matches(node.names, hint)]
    others = [node for node in nodes if not _is_of_reply(node, entry)]
    return next((scalar_text(node) for node in whole or others), None)


def _path_matches(names: tuple[str, ...], hint: tuple[str, ...]) -> bool:
    tail = names[-len(hint) :]
    return len(tail) == len(hint) and all(own in {"*", found} for found, own in zip(tail, hint, strict=True))


def _score(field: tuple[str, ...]) -> int:
    """Return the certainty that a field is the id, by its name alone, from 0 to 100."""
    if not field:
        return 0
    if field == ("*",):
        return 65
    own = frozenset(word.removesuffix("s") for word in words_in(field[-1]))  # parallel lists have plural names
    name = normalize_name(field[-1]).removesuffix("s")
    above = words_in(field[-2]) if len(field) > 1 else frozenset()
    for points, is_meant in (
        (100, name == "assetid"),
        (98, name in {"id", "uuid", "uid"} and bool(above & {"asset", "assets"}) and not above & {"upload"}),
        (96, ("asset" in own and bool(own & _IDS)) or name in {"asset", "assetuuid", "assetref", "assetkey"}),
        (94, bool(own & _IDS) and bool(above & {"asset"})),
        (80, name in {"id", "uuid", "uid", "identifier", "guid", "oid"} and not above & {"upload"}),
        (75, bool(own & _THINGS) and bool(own & _IDS)),
        (72, name in {"fileid", "imageid", "mediaid"} or (bool(above & _THINGS) and bool(own & _IDS))),
        (61, name in {"uploadid", "id"} or ("upload" in own and "id" in own)),
        (62, name in {"key", "ref", "handle", "reference"}),
        (20, bool(own & _IDS)),
    ):
        if is_meant:
            return points
    return 10


def _best_by_name(found: list[tuple[tuple[str, ...], str]]) -> str | None:
    """Return the value whose name contains the word `asset`, for entries that spell the field differently."""
    ranked = sorted(((_score(field), value) for field, value in found), reverse=True)
    return ranked[0][1] if ranked and ranked[0][0] > 90 else None  # noqa: PLR2004  scores of names with `asset`


def _by_elimination(
    entries: Sequence[FileEntry], names: Sequence[str], best: dict[int, list[list[str]]]
) -> list[str] | None:
    """Return the ids at the only field whose texts can be ids; None if no field, or more than one, is left."""
    left: list[list[str]] = []
    for points in sorted(best, reverse=True):
        for values in best[points]:
            names_id = points > 10  # noqa: PLR2004  scores of names with any word for id
            is_open = all(
                _may_be_id(value, names[position]) or (names_id and _PLAIN_ID.fullmatch(value) is not None)
                for position, value in enumerate(values)
            )
            if is_open and values not in left and not _is_enumeration(values):
                left.append(values)
        if left and names_id:
            return left[0] if len(left) == 1 else None
    return left[0] if len(left) == 1 and entries else None


def _is_enumeration(values: list[str]) -> bool:
    """Return whether the texts differ only by a counter."""
    matches = [_NUMBERED.fullmatch(value) for value in values]
    if len(values) < 2 or not all(matches):  # noqa: PLR2004  one alone is no enumeration
        return False
    numbers = [int(match[2]) for match in matches if match]
    is_alike = len({match[1] for match in matches if match}) == 1
    return is_alike and numbers in (list(range(len(values))), list(range(1, len(values) + 1)))


def _is_excluded(path: Path) -> bool:
    names = [step for step in path if isinstance(step, str)]
    if any(normalize_name(name) in _CONTENT for name in names):
        return True
    # Fields below `request` or `account` are not about the asset.
    own = words_in(names[-1]) if names else frozenset()
    around = frozenset().union(*(words_in(name) for name in names[:-1] if is_field_name(name)))
    is_aside = around & {"request", "account", "user", "meta", "trace", "limits", "quota", "pagination", "links"}
    name = normalize_name(names[-1]) if names else ""
    is_never = bool(own & _NEVER) or name in {"requestid", "traceid", "contenttype", "filename", "accountid"}
    return (is_never and not ("asset" in own and own & _IDS)) or bool(is_aside)


def _is_token(value: str) -> bool:
    return 0 < len(value) <= _ID_MAX_CHARACTERS and value.isprintable() and " " not in value and "://" not in value


def _may_be_id(value: str, name: str) -> bool:
    """Return whether a text is none of the values that commonly accompany an id."""
    return (
        value != name
        and _TOKEN.fullmatch(value) is not None  # at least three characters, so no position
        and "://" not in value
        and not _COMMON.fullmatch(value)
        and not _MEDIA_TYPE.fullmatch(value)
        and not _looks_like_file(value)
        and not _SIGNATURE.fullmatch(value)
        and read_instant(value) is None
    )


def _looks_like_file(value: str) -> bool:
    return value.lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".bin"))


def _is_position(value: str, position: int) -> bool:
    return value in {str(position), str(position + 1)}
