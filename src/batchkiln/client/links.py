"""The links in a record's outputs: by `url`, wherever it stands in them (Service section 2.1)."""

from collections.abc import Iterator, Mapping
from typing import Final

from batchkiln.client.coercion import read_instant, read_text, read_url
from batchkiln.client.guide import Guide, search
from batchkiln.client.json_tree import Place, is_field_name, plain, squashed, walk
from batchkiln.client.redact import safe_text
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import OutputLink

OUTPUTS_MAX: Final = 64
_WORD_MAX_CHARACTERS: Final = 60
_NAME_MAX_CHARACTERS: Final = 200
_URLS: Final = ("url", "downloadurl", "signedurl", "href", "uri", "link", "src")
_TYPES: Final = ("type", "kind", "mediatype", "mimetype", "contenttype")
_EXPIRIES: Final = ("expiresat", "urlexpiresat", "expires", "expiry", "expiration")
_IDENTITIES: Final = ("id", "outputid", "assetid", "fileid", "name", "filename", "key")
_LOOSE: Final = frozenset({"outputs", "output", "files", "urls", "links", "items", "data", "results"})
# An output's other links lead to something smaller, or to no file.
_NOT_FILES: Final = ("thumbnail", "thumb", "preview", "poster", "cover", "self", "status", "webhook", "delete")


def read_links(outputs: object, guide: Guide) -> Iterator[OutputLink]:
    """Give the links that can be fetched, in the order told, at most 64: of a list, of one object, of a map by name."""
    path = guide.rules.fields.get(ReplyField.OUTPUT_URL)
    if path is not None:
        yield from _at(path, outputs)
        return
    seen: set[str] = set()
    for place in _in_order(outputs):
        for link in _links_of(place):
            if link.url not in seen and len(seen) < OUTPUTS_MAX:
                seen.add(link.url)
                yield link


def _at(path: str, outputs: object) -> Iterator[OutputLink]:
    """Read the configured place in each output."""
    entries = outputs if isinstance(outputs, list) else [outputs]
    for entry in entries[:OUTPUTS_MAX]:
        url = read_url(search(path, entry))
        if url is not None:
            fields = squashed(entry) if isinstance(entry, Mapping) else {}
            yield _link(fields, Place((), entry, None, ""), url)


def _in_order(outputs: object) -> list[Place]:
    """Return the places in the order of the reply, those of one output together."""
    return sorted(walk(outputs), key=lambda place: [step for step in place.path if isinstance(step, int)][:1])


def _links_of(place: Place) -> Iterator[OutputLink]:
    if isinstance(place.value, str):
        # A bare address counts in a list, or in a map of links by name.
        url = read_url(place.value)
        is_listed = not place.path or isinstance(place.path[-1], int)
        if url is not None and is_listed and (place.name in _LOOSE or not place.name):
            yield OutputLink("", url, None)
        return
    if not isinstance(place.value, Mapping):
        return
    fields = squashed(place.value)
    own = next((url for name in _URLS if (url := read_url(fields.get(name)))), None)
    if own is not None:
        if not _is_aside(place):
            yield _link(fields, place, own)
        return
    for name, value in fields.items():
        url = read_url(value)
        if url is not None and not name.endswith(("id", "type")):
            told = _link(fields, place, url)
            yield OutputLink(told.type or name.removesuffix("url"), url, told.expires_at, told.identity)


def _is_aside(place: Place) -> bool:
    """Whether this is a link within an output that has one of its own, as to its small picture."""
    above = place.parent
    if above is None or not place.name.startswith(_NOT_FILES):
        return False
    return isinstance(above.value, Mapping) and any(name in _URLS for name in squashed(above.value))


def _link(fields: Mapping[str, object], place: Place, url: str) -> OutputLink:
    """Read what stands beside a link, or above it within the same output."""
    levels = [fields, *(squashed(here.value) for here in _above(place) if isinstance(here.value, Mapping))]
    kind = next((text for level in levels for word in _TYPES if (text := read_text(plain(level.get(word))))), None)
    expires_at = next((at for level in levels for word in _EXPIRIES if (at := read_instant(level.get(word)))), None)
    name = next((text for level in levels for word in _IDENTITIES if (text := read_text(plain(level.get(word))))), None)
    key = place.path[-1] if place.path else None
    if kind is None and isinstance(key, str) and is_field_name(key) and key.lower() not in _LOOSE:
        kind = key
    told = None if name is None else safe_text(name, _NAME_MAX_CHARACTERS)
    return OutputLink((kind or "").lower()[:_WORD_MAX_CHARACTERS], url, expires_at, told)


def _above(place: Place) -> Iterator[Place]:
    """Give what is above a link's object and belongs to the same output: each has no other object in it."""
    here = place
    while here.parent is not None and isinstance(here.path[-1], str) and isinstance(here.parent.value, Mapping):
        if sum(isinstance(value, Mapping | list) for value in here.parent.value.values()) > 1:
            return
        here = here.parent
        yield here
