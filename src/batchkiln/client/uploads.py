"""Parses upload tickets and completed uploads by their documented fields `upload_url` and `url` (Service section 2.3).

The field of the asset id is not documented. It is the field that the user or the service's OpenAPI document names, else
one whose name looks like an asset id, else the only text that is nothing else.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from batchkiln.client.asset_ids import choose_asset_ids
from batchkiln.client.json_tree import JsonNode, normalize_fields, read_text, read_url, walk, walk_below, words_in
from batchkiln.client.list_entries import FileEntry, columns_to_rows, entries_around, in_requested_order, scalar_text
from batchkiln.client.reply_mapping import NO_MAPPING, ReplyMapping
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
# Words of links that are not the asset's; of links beside it; and of links to the file itself.
_ELSEWHERE: Final = frozenset(
    {
        *("preview", "previews", "thumbnail", "thumbnails", "thumb", "poster", "icon", "avatar", "cover", "sample"),
        *("docs", "doc", "documentation", "help", "support", "self", "next", "prev", "previous", "related"),
        *("owner", "user", "account", "author", "profile", "project", "license", "terms", "policy", "moderation"),
        *("delete", "report", "webhook", "callback", "console", "dashboard", "error", "pagination", "billing"),
    }
)
_OTHER_OBJECTS: Final = frozenset({"upload", "links", "meta", "request", "status", "complete", "download", "source"})
_ASSET_OBJECTS: Final = frozenset(
    {"asset", "image", "file", "content", "media", "input", "inputs", "object", "resource"}
)
_HEADERS_MAX: Final = 50
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REFERENCE: Final = re.compile(r"[^\s\x00-\x1f\x7f]+")


class MissingField(Exception):
    """Raised for a reply without a usable field. The user can configure the path of `field`."""

    def __init__(self, lacking: str, field: ReplyField) -> None:
        super().__init__(lacking)
        self.lacking = lacking
        self.field = field


def read_tickets(
    document: object, names: Sequence[str], mapping: ReplyMapping = NO_MAPPING
) -> tuple[UploadTicket, ...]:
    """Return one ticket per name, in the order requested. Raise `MissingField`."""
    raw, document = document, columns_to_rows(document, len(names))
    anchors = list(_upload_anchors(document, len(names), mapping, raw))
    entries = in_requested_order(entries_around(document, anchors), names) if len(anchors) == len(names) else None
    if entries is None:
        raise MissingField(f"has no usable upload for each of {len(names)} files", ReplyField.UPLOAD_URL)
    headers = _headers(document, entries, mapping, raw)
    if mapping.has(ReplyField.ASSET_ID):
        ids = [read_text(value) for value in mapping.values(ReplyField.ASSET_ID, raw)]
        if len(ids) == len(names):
            positions = [anchors.index(entry.anchor) for entry in entries]
            ids = [ids[position] for position in positions]
    else:
        ids = list(choose_asset_ids(entries, names, mapping.hints.asset_id) or [])
    if len(ids) != len(names) or not all(ids):
        raise MissingField(f"names no asset for each of {len(names)} files", ReplyField.ASSET_ID)
    return tuple(
        UploadTicket(str(asset_id), str(entry.anchor.value), pairs)
        for asset_id, entry, pairs in zip(ids, entries, headers, strict=True)
    )


def read_asset_urls(document: object, asset_ids: Sequence[str], mapping: ReplyMapping = NO_MAPPING) -> tuple[str, ...]:
    """Return one URL per asset, in the order requested: by id if the reply names ids, else by position.

    Raise `MissingField`.
    """
    if mapping.has(ReplyField.ASSET_URL):
        urls = [_read_reference(value) for value in mapping.values(ReplyField.ASSET_URL, document)]
    else:
        document = columns_to_rows(document, len(asset_ids))
        by_id = _urls_by_id(document, asset_ids)
        urls = by_id if by_id is not None else [url for url, _ in _urls_by_position(document, len(asset_ids))]
    found = [url for url in urls if url is not None]
    if len(found) != len(asset_ids) or len(urls) != len(asset_ids):
        raise MissingField(f"has no url for each of {len(asset_ids)} assets", ReplyField.ASSET_URL)
    return tuple(found)


def numeric_ids(document: object, asset_ids: Sequence[str]) -> frozenset[str]:
    """Return the asset ids that a reply gave as numbers, because a completion has to send them as numbers."""
    values = [node.value for node in walk(document)]
    numbers = {str(value) for value in values if isinstance(value, int) and not isinstance(value, bool)}
    texts = {value for value in values if isinstance(value, str)}
    return frozenset(asset_ids) & (numbers - texts)


# --- anchors ---


def _upload_anchors(document: object, wanted: int, mapping: ReplyMapping, raw: object) -> Iterator[JsonNode]:
    """Yield the nodes of the upload URLs in reply order; a configured path applies to the unmodified reply."""
    if mapping.has(ReplyField.UPLOAD_URL):
        urls = mapping.values(ReplyField.UPLOAD_URL, raw)
        nodes = [node for node in walk(document) if isinstance(node.value, str) and read_url(node.value)]
        yield from _without_repeats(node for url in urls for node in nodes if node.value == url)
        return
    documented, *others = (_in_document_order(_nodes_named(document, names, read_url)) for names in _UPLOAD_URLS)
    if documented:
        yield from _without_repeats(documented) if len(documented) > wanted else documented
        return
    yield from next((found for found in others if len(found) == wanted), [node for found in others for node in found])


def _nodes_named(document: object, names: frozenset[str], read: Callable[[object], str | None]) -> list[JsonNode]:
    """Return the texts under one of the names, also in a list, map or object below it."""
    found = []
    for node in walk(document):
        above = node.parent
        is_below = above is not None and above.name in names and not isinstance(above.value, str)
        is_listed = is_below and (node.name in {"href", "url", "uri", "value"} or _is_map_of_texts(above))
        if (node.name in names or is_listed) and isinstance(node.value, str) and read(node.value) is not None:
            found.append(node)
    return found


def _is_map_of_texts(above: JsonNode | None) -> bool:
    """Return whether a map contains only URLs."""
    if above is None or not isinstance(above.value, Mapping):
        return False
    return all(read_url(value) is not None for value in above.value.values())


def _in_document_order(nodes: list[JsonNode]) -> list[JsonNode]:
    """Sort in the order of the document; `walk` yields nodes nearer to the root first."""
    return sorted(nodes, key=lambda node: [step if isinstance(step, int) else -1 for step in node.path])


def _without_repeats(nodes: Iterator[JsonNode] | list[JsonNode]) -> Iterator[JsonNode]:
    """Yield each URL once if all occur equally often, as in a list and again by name; else yield all."""
    found: dict[object, list[JsonNode]] = {}
    for node in nodes:
        found.setdefault(node.value, []).append(node)
    is_repeated = len({len(alike) for alike in found.values()}) == 1
    for alike in found.values():
        yield from alike[:1] if is_repeated else alike


def _headers(
    document: object, entries: list[FileEntry], mapping: ReplyMapping, raw: object
) -> list[tuple[tuple[str, str], ...]]:
    """Return the headers of each upload, empty if the reply has none. Raise `MissingField`."""
    if mapping.has(ReplyField.UPLOAD_HEADERS):
        found = mapping.find(ReplyField.UPLOAD_HEADERS, raw)
        each = found if isinstance(found, list) and len(found) == len(entries) else [found] * len(entries)
        pairs = [header_pairs(value) for value in each]
    else:
        pairs = _found_headers(document, entries)
    if None in pairs:
        raise MissingField(f"has no usable headers for each of {len(entries)} files", ReplyField.UPLOAD_HEADERS)
    return [each for each in pairs if each is not None]


def _found_headers(document: object, entries: list[FileEntry]) -> list[tuple[tuple[str, str], ...] | None]:
    found: list[JsonNode | None] = [
        next((node for names in _HEADERS if (node := _header_node(entry, names))), None) for entry in entries
    ]
    if not any(found):
        shared = [node for node in walk(document) if node.name in _HEADERS[0] and isinstance(node.value, Mapping)]
        found = [shared[0]] * len(entries) if len(shared) == 1 else found
    return [() if node is None else header_pairs(node.value) for node in found]


def _header_node(entry: FileEntry, names: frozenset[str]) -> JsonNode | None:
    for part in entry.parts:
        for node in walk_below(part):
            above = node.parent
            is_meant = node.name in names or (node is part and above is not None and above.name in names)
            if is_meant and isinstance(node.value, Mapping | list) and header_pairs(node.value) != ():
                return node
    return None


def header_pairs(value: object) -> tuple[tuple[str, str], ...] | None:
    """Return headers given as an object, as pairs, or as objects of name and value; None if one cannot be sent."""
    if isinstance(value, Mapping):
        raw: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list):
        raw = [_header_pair(entry) for entry in value]
    else:
        return None
    pairs = [(str(name), ", ".join(map(str, each)) if isinstance(each, list) else str(each)) for name, each in raw]
    is_sendable = all(_HEADER_NAME.fullmatch(name) and text.isprintable() for name, text in pairs)
    return tuple(pairs) if is_sendable and len(pairs) <= _HEADERS_MAX else None


def _header_pair(entry: object) -> tuple[object, object]:
    match entry:
        case [name, value]:
            return name, value
        case Mapping():
            fields = normalize_fields(entry)
            if "value" in fields:
                return fields.get("name", fields.get("key", fields.get("header"))), fields["value"]
            if len(entry) == 1:
                return next(iter(entry.items()))
        case _:
            pass
    return "", ""


# --- completions ---


def _urls_by_id(document: object, asset_ids: Sequence[str]) -> list[str | None] | None:
    """Return the URL of each asset that the reply names; None unless it names all of them."""
    wanted = {asset_id: position for position, asset_id in enumerate(asset_ids)}
    nodes: dict[str, JsonNode] = {}
    for node in walk(document):
        key = node.path[-1] if node.path else None
        found = key if isinstance(key, str) and key in wanted else scalar_text(node)
        if found in wanted and found is not None:
            nodes.setdefault(found, node)
    if set(nodes) != set(wanted):
        return None
    anchors = [nodes[asset_id] for asset_id in asset_ids]
    entries = entries_around(document, anchors)
    urls = [_url_of(entry) for entry in entries]
    if all(urls) and len(set(urls)) == len(urls):
        return urls
    # In another order than requested: by position, one image would be taken for another.
    return None if list(nodes) == list(asset_ids) else [None] * len(urls)


def _url_of(entry: FileEntry) -> str | None:
    own = entry.anchor
    if isinstance(own.path[-1] if own.path else None, str) and isinstance(own.value, str) and read_url(own.value):
        return own.value  # {"ast_1": "https://…"}
    for part in entry.parts:
        if found := _urls_below(part):
            return found.pop() if len(found) == 1 else None
    return None


def _urls_below(part: JsonNode) -> set[str]:
    """Return the possible URLs of a part: its own documented link, else all links deeper in it."""
    nodes = list(walk_below(part))
    for number, names in enumerate(_ASSET_URLS):
        read = _read_reference if number == 0 else read_url
        found = [
            (node, url)
            for node in _asset_links([node for node in nodes if _is_link(node, names)], part)
            if (url := read(node.value)) is not None
        ]
        if found:
            own = {url for node, url in found if len(node.path) <= len(part.path) + 1}
            named = {url for node, url in found if _words_around(node, len(part.path)) & _ASSET_OBJECTS}
            return own or named or {url for _, url in found}
    return set()


def _is_link(node: JsonNode, names: frozenset[str]) -> bool:
    """Return whether a text has one of the names, or is the link in an object with one of them."""
    if not isinstance(node.value, str):
        return False
    above = node.parent
    is_within = above is not None and above.name in names and node.name in {"href", "url", "uri", "value"}
    return node.name in names or is_within


def _asset_links(nodes: list[JsonNode], part: JsonNode | None = None) -> list[JsonNode]:
    """Return the links, except those whose names show another purpose: previews, owners, documents."""
    depth = 0 if part is None else len(part.path)
    kept = [node for node in nodes if not _words_around(node, depth) & _ELSEWHERE]
    return [node for node in kept if not _words_around(node, depth) & _OTHER_OBJECTS] or kept


def is_unrelated_link(node: JsonNode) -> bool:
    """Return whether the name of a node, or of an object around it, shows that its link is not the file's."""
    own = words_in(node.path[-1:])
    return bool((own | _words_around(node, 0)) & _ELSEWHERE)


def _words_around(node: JsonNode, depth: int) -> frozenset[str]:
    """Return the words of the names between a part and a link in it, without the link's own name."""
    names = [str(step) for step in node.path[depth:-1] if isinstance(step, str)]
    return frozenset().union(*map(words_in, names))


def _urls_by_position(document: object, wanted: int) -> list[tuple[str, JsonNode]]:
    """Return the URLs by position: those at alike paths, as many as assets were requested."""
    for number, names in enumerate(_ASSET_URLS):
        found = _nodes_named(document, names, _read_reference if number == 0 else read_url)
        nodes = _asset_links(_in_document_order(found))
        alike: dict[tuple[str, ...], list[JsonNode]] = {}
        for node in nodes:
            alike.setdefault(tuple("" if isinstance(step, int) else step for step in node.path), []).append(node)
        fitting = [group for group in alike.values() if len(group) == wanted]
        if fitting:
            nearest = min(len(group[0].path) for group in fitting)
            chosen = [group for group in fitting if len(group[0].path) == nearest]
            named = [group for group in chosen if _words_around(group[0], len(group[0].path) - 2) & _ASSET_OBJECTS]
            chosen = named if len(chosen) > 1 else chosen
            return [(str(node.value), node) for node in chosen[0]] if len(chosen) == 1 else []
        if len(nodes) == wanted:
            return [(str(node.value), node) for node in nodes]
    listed = [node for node in walk(document) if isinstance(node.value, str) and read_url(node.value)]
    is_bare = listed and all(node.path and isinstance(node.path[-1], int) for node in listed)
    return [(str(node.value), node) for node in listed] if is_bare else []


def _read_reference(value: object) -> str | None:
    """Return a text that can be sent back as an input's `url`; it need not be a URL. None for anything else."""
    if not isinstance(value, str) or not 0 < len(value) <= _URL_MAX_CHARACTERS:
        return None
    return value if _REFERENCE.fullmatch(value) else None
