"""Compares the service's OpenAPI document with the client's requests, and finds two undocumented fields in it.

Only what the document describes is compared: an operation without a schema is not a mismatch (contract, section 8). The
walk through the document is bounded, and its texts are redacted before they are shown. Replies are not compared,
because they are read by their structure, whatever the document says.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from batchkiln.client.asset_ids import name_score
from batchkiln.client.json_tree import Path, normalize_name
from batchkiln.client.redact import safe_text
from batchkiln.client.reply_mapping import FieldHints
from batchkiln.core import provider

Schema = Mapping[str, object]

_REFERENCES_MAX: Final = 12
_DEPTH_MAX: Final = 10
_STEPS_MAX: Final = 2000  # per body: a schema that refers to itself in several ways never ends
_NAME_MAX_CHARACTERS: Final = 60
_SHOWN: Final = 8
_KEY: Final = "bk-" + "0" * 40  # the form of our keys; see `idempotency_key` in `core/request.py`
_SIMPLE: Final = re.compile(r"\^?\[[^\[\]]{1,40}\](\{\d{1,4},\d{0,4}\}|[+*])\$?")
_QUOTE: Final = frozenset({"model", "mode", "prompt", "inputs", "parameters"})
_CREATE: Final = _QUOTE | {"max_cost_credits"}
_ABOUT_ASSET: Final = re.compile(r"\basset\b.{0,40}\b(id|identifier|identif\w+)\b|\basset_ids?\b|uploads/complete")
_BY_ASSET: Final = re.compile(r"\b(keyed|by)\b.{0,20}\basset")
_ABOUT_BALANCE: Final = re.compile(r"\b(remaining|balance|left|available)\b")
_ABOUT_NAMES: Final = re.compile(r"\b(name|filename|index|position|place|order)s?\b")
_DESCRIBED_POINTS: Final = 200  # for a description that names the asset id; a name alone has at most 100
_DESCRIBED_KEY_POINTS: Final = 190  # for a description of a map by asset id


class _Call(Struct, frozen=True):
    """A call of the client, and the fields that it sends. Every run uses the calls that are `required`."""

    method: str
    path: str
    sends: frozenset[str] = frozenset()
    required: bool = False

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path.replace('{}', '{id}')}"


_CALLS: Final = (
    _Call("get", provider.MODELS),
    _Call("get", provider.BALANCE),
    _Call("post", provider.QUOTES, _QUOTE, required=True),
    _Call("post", provider.VIDEOS, _CREATE, required=True),
    _Call("post", provider.IMAGES, _CREATE, required=True),
    _Call("get", f"{provider.GENERATIONS}/{{}}", required=True),
    _Call("post", provider.UPLOADS, frozenset({"files"})),
    _Call("post", provider.UPLOADS_COMPLETE, frozenset({"asset_ids"})),
)


class Mismatch(Struct, frozen=True):
    """A difference between document and client. If `is_breaking`, requests would fail or could be charged twice."""

    what: str
    is_breaking: bool = False


def mismatches(document: Schema) -> list[Mismatch]:
    """Return the differences, in the order of the service's own list of calls."""
    known = _operations(document)
    if not known:
        return [Mismatch("it describes no paths", is_breaking=True)]
    found = []
    for call in _CALLS:
        operation = _as_map(known.get(call.path, {}).get(call.method))
        if not operation:
            found.append(Mismatch(f"{call} is not described", is_breaking=call.required))
            continue
        if call.sends == _CREATE:
            found += [Mismatch(f"{call} {what}", is_breaking=True) for what in _key_mismatch(operation, document)]
        found += [
            Mismatch(f"{call} {what}", is_breaking=True) for what in _request_mismatches(call, operation, document)
        ]
    return found


def hints_from_openapi(document: Schema) -> FieldHints:
    """Return the paths of the asset id and the balance, as far as descriptions state them."""
    return FieldHints(_described_asset(document), _described_balance(document))


# --- requests ---


def _key_mismatch(operation: Schema, document: Schema) -> Iterator[str]:
    """Yield the mismatches of the idempotency key: without it, a replay could be charged twice (Service rule 4.1)."""
    parameters = [_resolve(entry, document) for entry in _as_list(operation.get("parameters"))]
    keys = [entry for entry in parameters if str(entry.get("name", "")).lower() == provider.IDEMPOTENCY_HEADER.lower()]
    if not keys:
        yield f"takes no {provider.IDEMPOTENCY_HEADER}, so a replay could be charged again"
        return
    schema = _resolve(keys[0].get("schema"), document)
    shortest, longest, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    is_short = isinstance(longest, int) and longest < len(_KEY)
    is_long = isinstance(shortest, int) and shortest > len(_KEY)
    if is_short or is_long or (isinstance(pattern, str) and not _matches(pattern)):
        own = f"({len(_KEY)} letters, digits and hyphens)"
        yield f"requires another form of {provider.IDEMPOTENCY_HEADER} than batchkiln's {own}"


def _matches(pattern: str) -> bool:
    """Return whether our keys match a pattern; True for all but simple patterns, since some take very long."""
    try:
        return _SIMPLE.fullmatch(pattern) is None or re.search(pattern, _KEY) is not None
    except re.error:
        return True


def _request_mismatches(call: _Call, operation: Schema, document: Schema) -> Iterator[str]:
    shapes = list(_variants(_body_schema(operation.get("requestBody"), document), document))
    if not call.sends or not any(shapes):
        return
    taken = {name for shape in shapes for name in _as_map(shape.get("properties"))}
    is_closed = all(shape.get("additionalProperties") is False for shape in shapes)
    if taken and is_closed and (unknown := call.sends - taken):
        yield f"does not take {_names(unknown)}"
    required = [{str(name) for name in _as_list(shape.get("required"))} for shape in shapes]
    if lacking := set.intersection(*required) - call.sends:
        yield f"requires {_names(lacking)}, which batchkiln does not send"


def _names(names: set[str] | frozenset[str]) -> str:
    shown = [safe_text(name, _NAME_MAX_CHARACTERS) for name in sorted(names)[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _variants(node: Schema, document: Schema) -> Iterator[Schema]:
    """Yield the schemas that a schema allows: itself, or the parts of its `oneOf`, `anyOf` and `allOf`."""
    waiting: deque[object] = deque([node])
    for _ in range(_STEPS_MAX):
        if not waiting:
            return
        here = _resolve(waiting.popleft(), document)
        parts = [part for word in ("oneOf", "anyOf", "allOf") for part in _as_list(here.get(word))]
        if not parts or "properties" in here:
            yield here
        elif len(waiting) < _STEPS_MAX:
            waiting.extend(parts)


# --- described fields ---


def _described_asset(document: Schema) -> tuple[str, ...]:
    """Return the path of the asset id by its description; a name alone is no better evidence than a reply."""
    best: Path = ()
    most = 0
    for place, node in _properties(_reply_schema(document, "post", provider.UPLOADS), document):
        path = place
        text = f"{node.get('title', '')} {node.get('description', '')}".lower()
        points = 0
        if isinstance(node.get("additionalProperties"), Mapping):
            is_by_asset = _BY_ASSET.search(text) or _ABOUT_ASSET.search(str(node.get("propertyNames")).lower())
            if is_by_asset or (_ABOUT_ASSET.search(text) and not _ABOUT_NAMES.search(text)):
                path, points = (*path, "*"), _DESCRIBED_KEY_POINTS
        elif path and path[-1] not in {"*", 0} and "properties" not in node and "items" not in node:
            is_url = normalize_name(path[-1]).endswith(("url", "headers"))
            is_described = _ABOUT_ASSET.search(str(node.get("description", "")).lower())
            points = name_score(path) + _DESCRIBED_POINTS if is_described and not is_url else 0
        if points > most:
            best, most = path, points
    return _as_hint(best)


def _described_balance(document: Schema) -> tuple[str, ...]:
    found = [
        path
        for path, node in _properties(_reply_schema(document, "get", provider.BALANCE), document)
        if path
        and not {"properties", "items"} & node.keys()
        and node.get("type") not in ("boolean", "object")
        and _ABOUT_BALANCE.search(f"{path[-1]} {node.get('description', '')}".lower())
    ]
    return _as_hint(found[0]) if len(found) == 1 else ()


def _as_hint(path: Path) -> tuple[str, ...]:
    return tuple(step if step == "*" else normalize_name(step) for step in path if isinstance(step, str))


def _properties(schema: Schema, document: Schema) -> Iterator[tuple[Path, Schema]]:
    """Yield every property of a reply with its path, in which 0 means a list, and `*` the keys of a map."""
    waiting: deque[tuple[Path, object]] = deque([((), schema)])
    for _ in range(_STEPS_MAX):
        if not waiting:
            return
        path, raw = waiting.popleft()
        node = _merged(raw, document)
        yield path, node
        if len(path) < _DEPTH_MAX:
            waiting += [((*path, name), value) for name, value in _as_map(node.get("properties")).items()]
            waiting += [((*path, 0), node["items"])] if "items" in node else []
            if isinstance(node.get("additionalProperties"), Mapping):
                waiting.append(((*path, "*"), node["additionalProperties"]))


def _merged(raw: object, document: Schema) -> Schema:
    """Return a schema merged with the parts of its `allOf` and with its first choice that is not null.

    The schema's own fields have priority.
    """
    node: dict[str, object] = {}
    waiting: deque[object] = deque([raw])
    for _ in range(_REFERENCES_MAX):
        if not waiting:
            break
        holder = _as_map(waiting.popleft())
        here = _resolve(holder, document)
        choices = [_resolve(each, document) for word in ("oneOf", "anyOf") for each in _as_list(here.get(word))]
        waiting += [*_as_list(here.get("allOf")), *[each for each in choices if each.get("type") != "null"][:1]]
        properties = {**_as_map(here.get("properties")), **_as_map(node.get("properties"))}
        node = {**here, **{name: value for name, value in holder.items() if name == "description"}, **node}
        node |= {"properties": properties} if properties else {}
    return node


# --- the document ---


def _reply_schema(document: Schema, method: str, path: str) -> Schema:
    """Return the schema of a call's success; empty if none is described."""
    responses = _as_map(_as_map(_operations(document).get(path, {}).get(method)).get("responses"))
    schemas = (_body_schema(holder, document) for status, holder in responses.items() if status[:1] == "2")
    return next((schema for schema in schemas if schema), {})


def _body_schema(holder: object, document: Schema) -> Schema:
    """Return the schema of a JSON body; empty if none is described."""
    content = _as_map(_resolve(holder, document).get("content"))
    media = next((value for name, value in content.items() if "json" in name.lower()), None)
    return _as_map(_as_map(media).get("schema"))


def _resolve(node: object, document: Schema) -> Schema:
    """Follow references within the document; return an empty schema for a broken or circular one."""
    here = _as_map(node)
    for _ in range(_REFERENCES_MAX):
        reference = here.get("$ref")
        if not isinstance(reference, str):
            return here
        place: object = document if reference.startswith("#/") else None
        for step in reference.removeprefix("#/").split("/"):
            place = _as_map(place).get(step.replace("~1", "/").replace("~0", "~"))
        here = _as_map(place)
    return {}


def _operations(document: Schema) -> Mapping[str, Schema]:
    """Return the described path items by path, without the servers' prefix and the names of parameters."""
    urls = [_as_map(server).get("url") for server in _as_list(document.get("servers"))]
    servers = [urlsplit(url).path.rstrip("/") for url in urls if isinstance(url, str) and "[" not in url]
    prefixes = tuple(f"{path}/" for path in (*servers, "/api/v1") if path)
    found = {}
    for path, item in _as_map(document.get("paths")).items():
        prefix = next((prefix for prefix in prefixes if path.startswith(prefix)), "/")
        found[re.sub(r"\{[^{}]*\}", "{}", path.removeprefix(prefix.rstrip("/"))).rstrip("/")] = _as_map(item)
    return found


def _as_map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
