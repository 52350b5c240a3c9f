"""Lists side by side, one per field, with an entry per file: turned into one object per file.

`{"upload_url": [a, b], "refs": [1, 2]}` says what `[{"upload_url": a, "refs": 1}, {"upload_url": b, "refs": 2}]` says.
"""

from collections.abc import Mapping
from typing import Final

from batchkiln.client.coercion import read_url
from batchkiln.client.json_tree import DEPTH_MAX, NODES_MAX, squash, squashed

_LINK_ENDS: Final = ("url", "urls", "href", "hrefs", "uri", "uris")
_PAIRS: Final = ({"name", "value"}, {"key", "value"}, {"header", "value"})


def turned(document: object, count: int, depth: int = 0) -> object:
    """Return a document with its lists of `count` entries side by side, one of them of links, as a list of objects.

    What else stands in such an object is about every file, and is repeated in each. Anything else stays as it is.
    """
    if depth > DEPTH_MAX:
        return document
    if isinstance(document, list):
        return [turned(each, count, depth + 1) for each in document[:NODES_MAX]]
    if not isinstance(document, Mapping):
        return document
    columns = {
        name: value
        for name, value in document.items()
        if isinstance(value, list) and len(value) == count and not _is_of_pairs(value)
    }
    if len(columns) > 1 and any(_is_of_links(name, values) for name, values in columns.items()):
        beside = {name: value for name, value in document.items() if name not in columns}
        return [beside | {name: values[row] for name, values in columns.items()} for row in range(count)]
    return {name: turned(value, count, depth + 1) for name, value in document.items()}


def _is_of_links(name: object, values: list[object]) -> bool:
    is_named = squash(name).endswith(_LINK_ENDS)
    return is_named and all(isinstance(value, str) and _is_address(value) for value in values)


def _is_address(value: str) -> bool:
    return read_url(value) is not None or value.startswith("/") or "://" in value


def _is_of_pairs(values: list[object]) -> bool:
    """Whether these are headers, one by one, and not those of one file after the other."""
    if all(isinstance(value, Mapping) for value in values):
        return all(squashed(value).keys() in _PAIRS for value in values if isinstance(value, Mapping))
    return all(isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) for value in values)  # noqa: PLR2004  name and value
