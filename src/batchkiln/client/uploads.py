"""Upload preparations and completions, read by their anchors `upload_url` and `url` (Service section 2.3).

The field of the asset's identifier is not shown: it is what a person or the service's own description says, else what
looks like one by its name beside or above the anchor, else the only text that can be nothing else.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from batchkiln.client.coercion import read_text, read_url
from batchkiln.client.columns import turned
from batchkiln.client.guide import UNGUIDED, Guide
from batchkiln.client.identifiers import choose_ids
from batchkiln.client.json_tree import Place, walk, walk_below
from batchkiln.client.list_entries import Entry, entries_around, in_order, told_text
from batchkiln.client.schemas_strict import header_pairs
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import UploadTicket

_URL_MAX_CHARACTERS: Final = 8192
_UPLOAD_URLS: Final = (
    frozenset({"uploadurl", "uploadurls"}),
    frozenset({"puturl", "puturls"}),
    frozenset({"signedurl", "signedurls", "presignedurl", "presignedurls"}),
    frozenset({"upload", "url", "urls", "href"}),
)
_HEADERS: Final = (frozenset({"uploadheaders"}), frozenset({"headers", "requiredheaders", "putheaders"}))
_ASSET_URLS: Final = (
    frozenset({"url", "urls"}),
    frozenset({"asseturl", "asseturls", "inputurl", "publicurl", "fileurl", "imageurl"}),
    frozenset({"href", "uri", "link"}),
)
# An asset's other links: to something smaller, to somebody, or to no file at all. Then what names the file itself.
_ELSEWHERE: Final = frozenset(
    {
        *("preview", "previews", "thumbnail", "thumbnails", "thumb", "poster", "icon", "avatar", "cover", "sample"),
        *("docs", "doc", "documentation", "help", "support", "self", "next", "prev", "previous", "related"),
        *("owner", "user", "account", "author", "profile", "project", "license", "terms", "policy", "moderation"),
        *("delete", "report", "webhook", "callback", "console", "dashboard", "error", "pagination", "billing"),
    }
)
_BESIDE: Final = frozenset({"upload", "links", "meta", "request", "status", "complete", "download", "source"})
_ITSELF: Final = frozenset({"asset", "image", "file", "content", "media", "input", "inputs", "object", "resource"})
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_REFERENCE: Final = re.compile(r"[^\s\x00-\x1f\x7f]+")


class Lacking(Exception):
    """The reply cannot be used: what it lacks, and for which field a person could tell the place."""

    def __init__(self, lacking: str, field: ReplyField) -> None:
        super().__init__(lacking)
        self.lacking = lacking
        self.field = field


def read_tickets(document: object, names: Sequence[str], guide: Guide = UNGUIDED) -> tuple[UploadTicket, ...]:
    """Return one ticket per name, in the order asked. Raises `Lacking`."""
    raw, document = document, turned(document, len(names))
    anchors = list(_upload_anchors(document, len(names), guide, raw))
    entries = in_order(entries_around(document, anchors), names) if len(anchors) == len(names) else None
    if entries is None:
        raise Lacking(f"has no usable upload for each of {len(names)} files", ReplyField.UPLOAD_URL)
    headers = _headers(document, entries, guide, raw)
    if guide.has(ReplyField.ASSET_ID):
        ids = [read_text(value) for value in guide.values(ReplyField.ASSET_ID, raw)]
        if len(ids) == len(names):
            positions = [anchors.index(entry.anchor) for entry in entries]
            ids = [ids[position] for position in positions]
    else:
        ids = list(choose_ids(entries, names, guide.hints.asset_id) or [])
    if len(ids) != len(names) or not all(ids):
        raise Lacking(f"names no asset for each of {len(names)} files", ReplyField.ASSET_ID)
    return tuple(
        UploadTicket(str(asset_id), str(entry.anchor.value), pairs)
        for asset_id, entry, pairs in zip(ids, entries, headers, strict=True)
    )


def read_asset_urls(document: object, asset_ids: Sequence[str], guide: Guide = UNGUIDED) -> tuple[str, ...]:
    """Return one url per asset, in the order asked: by id where ids are told, else by position. Raises `Lacking`."""
    if guide.has(ReplyField.ASSET_URL):
        urls = [_reference(value) for value in guide.values(ReplyField.ASSET_URL, document)]
    else:
        document = turned(document, len(asset_ids))
        by_id = _urls_by_id(document, asset_ids)
        urls = by_id if by_id is not None else [url for url, _ in _urls(document, len(asset_ids))]
    found = [url for url in urls if url is not None]
    if len(found) != len(asset_ids) or len(urls) != len(asset_ids):
        raise Lacking(f"has no url for each of {len(asset_ids)} assets", ReplyField.ASSET_URL)
    return tuple(found)


def told_as_numbers(document: object, asset_ids: Sequence[str]) -> frozenset[str]:
    """Return which of the identifiers a preparation told as numbers: a completion has to name them alike."""
    values = [place.value for place in walk(document)]
    numbers = {str(value) for value in values if isinstance(value, int) and not isinstance(value, bool)}
    texts = {value for value in values if isinstance(value, str)}
    return frozenset(asset_ids) & (numbers - texts)


# --- anchors ---


def _upload_anchors(document: object, wanted: int, guide: Guide, raw: object) -> Iterator[Place]:
    """Give where the upload urls stand, in the order of the reply; a person's path is about the reply as it came."""
    if guide.has(ReplyField.UPLOAD_URL):
        urls = guide.values(ReplyField.UPLOAD_URL, raw)
        places = [place for place in walk(document) if isinstance(place.value, str) and read_url(place.value)]
        yield from _once(place for url in urls for place in places if place.value == url)
        return
    documented, *others = (_in_document_order(_valued(document, names, read_url)) for names in _UPLOAD_URLS)
    if documented:
        yield from _once(documented) if len(documented) > wanted else documented
        return
    yield from next((found for found in others if len(found) == wanted), [place for found in others for place in found])


def _valued(document: object, names: frozenset[str], read: Callable[[object], str | None]) -> list[Place]:
    """Return the texts that stand under one of the names, also in a list, a map or an object below it."""
    found = []
    for place in walk(document):
        above = place.parent
        is_below = above is not None and above.name in names and not isinstance(above.value, str)
        is_listed = is_below and (place.name in {"href", "url", "uri", "value"} or _is_map_of_texts(above))
        if (place.name in names or is_listed) and isinstance(place.value, str) and read(place.value) is not None:
            found.append(place)
    return found


def _is_map_of_texts(above: Place | None) -> bool:
    """Whether a map holds nothing but addresses, by file or asset."""
    if above is None or not isinstance(above.value, Mapping):
        return False
    return all(read_url(value) is not None for value in above.value.values())


def _in_document_order(places: list[Place]) -> list[Place]:
    """Order as the document is written: `walk` gives what is nearer to the root first."""
    return sorted(places, key=lambda place: [step if isinstance(step, int) else -1 for step in place.path])


def _once(places: Iterator[Place] | list[Place]) -> Iterator[Place]:
    """Give each address once where all are told equally often, as in a list and once more by name; else all."""
    told: dict[object, list[Place]] = {}
    for place in places:
        told.setdefault(place.value, []).append(place)
    is_repeated = len({len(alike) for alike in told.values()}) == 1
    for alike in told.values():
        yield from alike[:1] if is_repeated else alike


def _headers(document: object, entries: list[Entry], guide: Guide, raw: object) -> list[tuple[tuple[str, str], ...]]:
    """Return the headers of each upload; none where the reply tells none at all."""
    if guide.has(ReplyField.UPLOAD_HEADERS):
        told = guide.find(ReplyField.UPLOAD_HEADERS, raw)
        each = told if isinstance(told, list) and len(told) == len(entries) else [told] * len(entries)
        pairs = [header_pairs(value) for value in each]
    else:
        pairs = _found_headers(document, entries)
    if None in pairs:
        raise Lacking(f"has no usable headers for each of {len(entries)} files", ReplyField.UPLOAD_HEADERS)
    return [each for each in pairs if each is not None]


def _found_headers(document: object, entries: list[Entry]) -> list[tuple[tuple[str, str], ...] | None]:
    told: list[Place | None] = [
        next((place for names in _HEADERS if (place := _header_place(entry, names))), None) for entry in entries
    ]
    if not any(told):
        shared = [place for place in walk(document) if place.name in _HEADERS[0] and isinstance(place.value, Mapping)]
        told = [shared[0]] * len(entries) if len(shared) == 1 else told
    return [() if place is None else header_pairs(place.value) for place in told]


def _header_place(entry: Entry, names: frozenset[str]) -> Place | None:
    for part in entry.parts:
        for place in walk_below(part):
            above = place.parent
            is_meant = place.name in names or (place is part and above is not None and above.name in names)
            if is_meant and isinstance(place.value, Mapping | list) and header_pairs(place.value) != ():
                return place
    return None


# --- completions ---


def _urls_by_id(document: object, asset_ids: Sequence[str]) -> list[str | None] | None:
    """Return the url of each asset that is named in the reply; None where not each one is."""
    wanted = {asset_id: position for position, asset_id in enumerate(asset_ids)}
    places: dict[str, Place] = {}
    for place in walk(document):
        key = place.path[-1] if place.path else None
        told = key if isinstance(key, str) and key in wanted else told_text(place)
        if told in wanted and told is not None:
            places.setdefault(told, place)
    if set(places) != set(wanted):
        return None
    anchors = [places[asset_id] for asset_id in asset_ids]
    entries = entries_around(document, anchors)
    urls = [_url_of(entry) for entry in entries]
    if all(urls) and len(set(urls)) == len(urls):
        return urls
    # Told in another order than asked: by position, one picture would be taken for another.
    return None if list(places) == list(asset_ids) else [None] * len(urls)


def _url_of(entry: Entry) -> str | None:
    own = entry.anchor
    if isinstance(own.path[-1] if own.path else None, str) and isinstance(own.value, str) and read_url(own.value):
        return own.value  # {"ast_1": "https://…"}
    for part in entry.parts:
        if found := _urls_below(part):
            return found.pop() if len(found) == 1 else None
    return None


def _urls_below(part: Place) -> set[str]:
    """Return what may be the url in a part: of its own links the documented one, else all that stand deeper."""
    places = list(walk_below(part))
    for number, names in enumerate(_ASSET_URLS):
        read = _reference if number == 0 else read_url
        told = [
            (place, url)
            for place in _without_others([place for place in places if _is_link(place, names)], part)
            if (url := read(place.value)) is not None
        ]
        if told:
            own = {url for place, url in told if len(place.path) <= len(part.path) + 1}
            named = {url for place, url in told if _words_around(place, len(part.path)) & _ITSELF}
            return own or named or {url for _, url in told}
    return set()


def _is_link(place: Place, names: frozenset[str]) -> bool:
    """Whether a text stands under one of the names, or as the link of an object that does."""
    if not isinstance(place.value, str):
        return False
    above = place.parent
    is_within = above is not None and above.name in names and place.name in {"href", "url", "uri", "value"}
    return place.name in names or is_within


def _without_others(places: list[Place], part: Place | None = None) -> list[Place]:
    """Leave out the links that are named as something else than the asset: its preview, its owner's, documents."""
    depth = 0 if part is None else len(part.path)
    kept = [place for place in places if not _words_around(place, depth) & _ELSEWHERE]
    return [place for place in kept if not _words_around(place, depth) & _BESIDE] or kept


def is_other_link(place: Place) -> bool:
    """Whether a place, or what is around it, is named as something else than the file itself."""
    own = frozenset(word.lower() for word in _WORD.findall(str(place.path[-1:])[:100]))
    return bool((own | _words_around(place, 0)) & _ELSEWHERE)


def _words_around(place: Place, depth: int) -> frozenset[str]:
    """Return the words of the names between a part and a link in it, without the link's own."""
    names = [str(step) for step in place.path[depth:-1] if isinstance(step, str)]
    return frozenset(word.lower() for name in names for word in _WORD.findall(name[:100]))


def _urls(document: object, wanted: int) -> list[tuple[str, Place]]:
    """Return the urls by position: those that stand alike, in as many places as assets were asked for."""
    for number, names in enumerate(_ASSET_URLS):
        found = _valued(document, names, _reference if number == 0 else read_url)
        places = _without_others(_in_document_order(found))
        alike: dict[tuple[str, ...], list[Place]] = {}
        for place in places:
            alike.setdefault(tuple("" if isinstance(step, int) else step for step in place.path), []).append(place)
        fitting = [group for group in alike.values() if len(group) == wanted]
        if fitting:
            nearest = min(len(group[0].path) for group in fitting)
            chosen = [group for group in fitting if len(group[0].path) == nearest]
            named = [group for group in chosen if _words_around(group[0], len(group[0].path) - 2) & _ITSELF]
            chosen = named if len(chosen) > 1 else chosen
            return [(str(place.value), place) for place in chosen[0]] if len(chosen) == 1 else []
        if len(places) == wanted:
            return [(str(place.value), place) for place in places]
    listed = [place for place in walk(document) if isinstance(place.value, str) and read_url(place.value)]
    is_bare = listed and all(place.path and isinstance(place.path[-1], int) for place in listed)
    return [(str(place.value), place) for place in listed] if is_bare else []


def _reference(value: object) -> str | None:
    """Read what stands under `url`: any text that can be sent back as it is, for inputs of a generation."""
    if not isinstance(value, str) or not 0 < len(value) <= _URL_MAX_CHARACTERS:
        return None
    return value if _REFERENCE.fullmatch(value) else None
