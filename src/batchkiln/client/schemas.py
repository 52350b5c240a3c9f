"""Foreign OpenAPI documents, walked with bounds: references, variants, bodies. Nothing here raises."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

Node = Mapping[str, object]

_DEPTH_MAX: Final = 12
STEPS_MAX: Final = 5000  # of one body: a schema that refers to itself in several ways has no end


def variants(node: Node, document: Node) -> Iterator[Node]:
    """Give the shapes that a schema allows: itself, or those it is made of."""
    waiting, steps = deque([node]), 0
    while waiting and steps < STEPS_MAX:
        steps += 1
        here = resolved(waiting.popleft(), document)
        parts = [as_map(part) for word in ("oneOf", "anyOf", "allOf") for part in as_list(here.get(word))]
        if not parts or "properties" in here:
            yield here
        elif len(waiting) < STEPS_MAX:
            waiting.extend(parts)


def content(holder: object, document: Node) -> Node:
    """Return the schema of a JSON body; empty where none is described."""
    content = as_map(resolved(holder, document).get("content"))
    media = next((value for name, value in content.items() if "json" in name.lower()), None)
    return as_map(as_map(media).get("schema"))


def resolved(node: object, document: Node) -> Node:
    """Follow references within the document; one that leads nowhere, or in a circle, is an empty schema."""
    here = as_map(node)
    for _ in range(_DEPTH_MAX):
        reference = here.get("$ref")
        if not isinstance(reference, str):
            return here
        place: object = document if reference.startswith("#/") else None
        for step in reference.removeprefix("#/").split("/"):
            place = as_map(place).get(step.replace("~1", "/").replace("~0", "~"))
        here = as_map(place)
    return {}


def prefixes(document: Node) -> tuple[str, ...]:
    """Return the paths of the servers: a document may describe its paths with or without them."""
    urls = [as_map(server).get("url") for server in as_list(document.get("servers"))]
    found = [urlsplit(url).path.rstrip("/") for url in urls if isinstance(url, str) and "[" not in url]
    return tuple(path for path in (*found, "/api/v1") if path)


def plain_path(path: str, prefixes: tuple[str, ...]) -> str:
    """Write a path without its prefix, and without the names of what it holds."""
    prefix = next((prefix for prefix in prefixes if path.startswith(prefix + "/")), "")
    return re.sub(r"\{[^{}]*\}", "{}", path.removeprefix(prefix)).rstrip("/")


def as_map(value: object) -> Mapping[str, object]:
    """Return an object, an empty one in the place of anything else."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[object]:
    """Return a list, an empty one in the place of anything else."""
    return value if isinstance(value, list) else []


def texts(value: object) -> Iterator[str]:
    """Give the texts of a list."""
    return (entry for entry in as_list(value) if isinstance(entry, str))


def operations(document: Node) -> Mapping[str, Node]:
    """Return the described paths without their prefix, and without the names of what they hold."""
    known = prefixes(document)
    return {plain_path(path, known): as_map(item) for path, item in as_map(document.get("paths")).items()}
