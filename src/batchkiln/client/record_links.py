"""Finds the download links in a record's outputs: a `url`, however deep (Service section 2.1)."""

from collections.abc import Iterator, Mapping
from typing import Final

from batchkiln.client.json_tree import (
    JsonNode,
    is_field_name,
    normalize_fields,
    read_instant,
    read_text,
    read_url,
    unwrap,
    walk,
)
from batchkiln.client.redact import safe_text
from batchkiln.client.reply_mapping import ReplyMapping, search_path
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
# Names of an output's other links, which lead to previews or to no file.
_NOT_FILES: Final = ("thumbnail", "thumb", "preview", "poster", "cover", "self", "status", "webhook", "delete")


def read_links(outputs: object, mapping: ReplyMapping) -> Iterator[OutputLink]:
    """Yield the links that can be fetched, in the order of the reply, at most 64.

    `outputs` may be a list, one object, or a map by name.
    """
    path = mapping.rules.fields.get(ReplyField.OUTPUT_URL)
    if path is not None:
        yield from _configured_links(path, outputs)
        return
    seen: set[str] = set()
    for node in _in_reply_order(outputs):
        for link in _links_of(node):
            if link.url not in seen and len(seen) < OUTPUTS_MAX:
                seen.add(link.url)
                yield link


def _configured_links(path: str, outputs: object) -> Iterator[OutputLink]:
    """Yield the URL at the configured path in each output."""
    entries = outputs if isinstance(outputs, list) else [outputs]
    for entry in entries[:OUTPUTS_MAX]:
        url = read_url(search_path(path, entry))
        if url is not None:
            fields = normalize_fields(entry) if isinstance(entry, Mapping) else {}
            yield _link(fields, JsonNode((), entry, None, ""), url)


def _in_reply_order(outputs: object) -> list[JsonNode]:
    """Return the nodes in the order of the reply, those of one output together."""
    return sorted(walk(outputs), key=lambda node: [step for step in node.path if isinstance(step, int)][:1])


def _links_of(node: JsonNode) -> Iterator[OutputLink]:
    if isinstance(node.value, str):
        # A bare URL counts in a list, or in a map of links by name.
        url = read_url(node.value)
        is_listed = not node.path or isinstance(node.path[-1], int)
        if url is not None and is_listed and (node.name in _LOOSE or not node.name):
            yield OutputLink("", url, None)
        return
    if not isinstance(node.value, Mapping):
        return
    fields = normalize_fields(node.value)
    own = next((url for name in _URLS if (url := read_url(fields.get(name)))), None)
    if own is not None:
        if not _is_secondary(node):
            yield _link(fields, node, own)
        return
    for name, value in fields.items():
        url = read_url(value)
        if url is not None and not name.endswith(("id", "type")):
            found = _link(fields, node, url)
            yield OutputLink(found.type or name.removesuffix("url"), url, found.expires_at, found.identity)


def _is_secondary(node: JsonNode) -> bool:
    """Return whether a link is within an output that has its own, such as the link to a thumbnail."""
    above = node.parent
    if above is None or not node.name.startswith(_NOT_FILES):
        return False
    return isinstance(above.value, Mapping) and any(name in _URLS for name in normalize_fields(above.value))


def _link(fields: Mapping[str, object], node: JsonNode, url: str) -> OutputLink:
    """Return a link with the type, expiry and name beside it, or above it in the same output."""
    levels = [
        fields,
        *(normalize_fields(here.value) for here in _enclosing_objects(node) if isinstance(here.value, Mapping)),
    ]
    kind = next((text for level in levels for word in _TYPES if (text := read_text(unwrap(level.get(word))))), None)
    expires_at = next((at for level in levels for word in _EXPIRIES if (at := read_instant(level.get(word)))), None)
    name = next(
        (text for level in levels for word in _IDENTITIES if (text := read_text(unwrap(level.get(word))))), None
    )
    key = node.path[-1] if node.path else None
    if kind is None and isinstance(key, str) and is_field_name(key) and key.lower() not in _LOOSE:
        kind = key
    found = None if name is None else safe_text(name, _NAME_MAX_CHARACTERS)
    return OutputLink((kind or "").lower()[:_WORD_MAX_CHARACTERS], url, expires_at, found)


def _enclosing_objects(node: JsonNode) -> Iterator[JsonNode]:
    """Yield the objects above a link that belong to the same output: those without another object or list in them."""
    here = node
    while here.parent is not None and isinstance(here.path[-1], str) and isinstance(here.parent.value, Mapping):
        if sum(isinstance(value, Mapping | list) for value in here.parent.value.values()) > 1:
            return
        here = here.parent
        yield here
