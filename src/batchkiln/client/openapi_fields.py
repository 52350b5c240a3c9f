"""Finds out where the service's OpenAPI document places undocumented fields, and whether our readers find them there.

An example of each reply is built from its schema, with distinct values, and read by the readers of real replies. The
value that they return shows the place. Work is bounded, and no foreign document raises.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from batchkiln.client.asset_ids import name_score
from batchkiln.client.error_responses import read_error
from batchkiln.client.http_response import RawReply
from batchkiln.client.json_tree import Path, as_jmespath, keys_as_jmespath, normalize_name
from batchkiln.client.model_catalog import parse_catalog
from batchkiln.client.openapi_check import Schema, as_list, as_map, json_body_schema, operations, resolve_ref, strings
from batchkiln.client.parse import parse_balance, parse_complete, parse_create, parse_prepare, parse_quote
from batchkiln.client.reply_mapping import NO_MAPPING, FieldHints, ReplyMapping
from batchkiln.core import provider
from batchkiln.core.provider import DOCUMENTED_MODELS
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import Accepted, AssetsReady, BalanceRead, CatalogRead, Quoted, UploadsPrepared

_NODES_MAX: Final = 2000
_DEPTH_MAX: Final = 10
_FILE_NAMES: Final = ("batchkiln-a.png", "batchkiln-b.png")
_ASSET_IDS: Final = ("ast_0001a", "ast_0002b")
_LINK_NAMES: Final = re.compile(r"url$|^href$|^uri$|link$")
_HEADERS: Final = frozenset({"uploadheaders", "headers", "requiredheaders", "putheaders"})
_ABOUT_ASSET: Final = re.compile(r"\basset\b.{0,40}\b(id|identifier|identif\w+)\b|\basset_ids?\b|uploads/complete")
_ABOUT_BALANCE: Final = re.compile(r"\b(remaining|balance|left|available)\b")
_ABOUT_NAMES: Final = re.compile(r"\b(name|filename|index|position|place|order)s?\b")
_DESCRIBED_POINTS: Final = 200  # for a description that names the asset id; a name alone has at most 100
_DESCRIBED_KEY_POINTS: Final = 190  # for a description of a map by asset id
_DATES: Final = frozenset({"date-time", "date"})


@dataclass(frozen=True, slots=True)
class UndocumentedField:
    """A field whose place the service's text leaves open.

    `described` is its path according to the OpenAPI document, `found` the path that our readers take; both are
    JMESPaths, or None. `sends` says what the client does with the value.
    """

    name: ReplyField
    what: str
    described: str | None
    found: str | None
    sends: str

    @property
    def is_found(self) -> bool:
        """Whether the field is found, and at the described place if there is one."""
        return self.found is not None and self.described in {None, self.found}


def hints_from_openapi(document: Schema) -> FieldHints:
    """Return the places of fields that no documented name identifies."""
    asset = _described_asset(_reply_schema(document, "post", provider.UPLOADS), document)
    balance = _described_balance(_reply_schema(document, "get", provider.BALANCE), document)
    return FieldHints(_as_hint(asset), _as_hint(balance))


def undocumented_fields(document: Schema, mapping: ReplyMapping = NO_MAPPING) -> list[UndocumentedField]:
    """Return each open field that the document may describe, in the order of the service's own list of calls."""
    mapping = ReplyMapping(mapping.rules, hints_from_openapi(document))
    return [read(document, mapping) for read in _READERS]


# --- examples ---


@dataclass(slots=True)
class _Example:
    """An example reply, and the path of each of its values."""

    document: Schema
    is_catalog: bool = False
    paths: dict[str, Path] = field(default_factory=dict)
    nodes: int = 0

    def make(self, schema: object, path: Path = (), position: int = 0) -> object:
        self.nodes += 1
        node = _merged(schema, self.document)
        if self.nodes > _NODES_MAX or len(path) > _DEPTH_MAX:
            return None
        if as_map(node.get("properties")) or isinstance(node.get("additionalProperties"), Mapping):
            return self._object(node, path, position)
        if "items" in node:
            return [self.make(node["items"], (*path, number), number) for number in range(2)]
        return self._scalar(node, path, position)

    def _object(self, node: Schema, path: Path, position: int) -> object:
        if path and normalize_name(path[-1]) in _HEADERS:
            return {"Content-Length": "3"}
        made = {
            name: self.make(value, (*path, name), position) for name, value in as_map(node.get("properties")).items()
        }
        if not made:
            is_of_objects = bool(_merged(node["additionalProperties"], self.document).get("properties"))
            for number in range(2):
                is_model = self.is_catalog and is_of_objects
                key = sorted(DOCUMENTED_MODELS)[number] if is_model else f"key_{number}a{self.nodes:05d}"
                self.paths.setdefault(key, (*path, key))
                made[key] = self.make(node["additionalProperties"], (*path, key), number)
        return made

    def _scalar(self, node: Schema, path: Path, position: int) -> object:
        name = next((normalize_name(step) for step in reversed(path) if isinstance(step, str)), "")
        kind, shape, words = _kind(node), str(node.get("format")), list(strings(node.get("enum")))
        value: object = f"x{self.nodes:05d}q"
        if words:
            value = words[0]
        elif kind in {"integer", "number"}:
            value = 1000 + self.nodes
        elif kind == "boolean":
            value = True
        elif kind == "null":
            value = None
        elif shape in _DATES or name.endswith("at"):
            value = "2026-01-01T00:00:00.000Z"
        elif shape in {"uri", "url"} or _LINK_NAMES.search(name):
            value = f"https://storage.example/{self.nodes:05d}"
        elif self.is_catalog and name in {"id", "model", "modelid", "publicid", "slug"}:
            value = sorted(DOCUMENTED_MODELS)[position % len(DOCUMENTED_MODELS)]
        elif name in {"name", "filename"}:
            value = _FILE_NAMES[position % 2]
        elif name in {"type", "contenttype", "mediatype", "mimetype"}:
            value = "image/png"
        self.paths.setdefault(str(value), path)
        return value

    def jmespath_of(self, value: object) -> str | None:
        """Return the path of a value; for a key of a map, the path of all its keys."""
        path = self.paths.get(str(value))
        if path is None:
            return None
        is_key = bool(path) and path[-1] == value
        return keys_as_jmespath(path[:-1]) if is_key else as_jmespath(path)


def _kind(node: Schema) -> str:
    """Return a schema's type; of several, the first that is not null."""
    kind = node.get("type")
    return str(next((each for each in as_list(kind) if each != "null"), kind))


def _merged(schema: object, document: Schema) -> Schema:
    """Return a schema merged with all parts of its `allOf` and with the first choice that is not null."""
    node: Schema = resolve_ref(schema, document)
    for _ in range(_DEPTH_MAX):
        choices = [resolve_ref(each, document) for word in ("oneOf", "anyOf") for each in as_list(node.get(word))]
        parts = [resolve_ref(each, document) for each in as_list(node.get("allOf"))]
        chosen = next((each for each in choices if each.get("type") != "null"), None)
        parts += [chosen] if chosen is not None and not node.get("properties") else []
        if not parts:
            return node
        rest = {name: value for name, value in node.items() if name not in {"oneOf", "anyOf", "allOf"}}
        properties = {name: each for part in [rest, *parts] for name, each in as_map(part.get("properties")).items()}
        node = {name: value for part in [*parts, rest] for name, value in part.items()}
        node = {**node, "properties": properties} if properties else node
    return node


def _reply_schema(document: Schema, method: str, path: str, *, success: bool = True) -> Schema:
    """Return the schema of a reply: the first success, or the first client error."""
    operation = as_map(as_map(operations(document).get(path)).get(method))
    responses = as_map(operation.get("responses"))
    wanted = "2" if success else "4"
    schemas = (json_body_schema(holder, document) for status, holder in responses.items() if status[:1] == wanted)
    return next((schema for schema in schemas if schema), {})


def _example_of(
    document: Schema, schema: Schema, *, status: int = 200, is_catalog: bool = False
) -> tuple[_Example, RawReply]:
    example = _Example(document, is_catalog)
    body = json.dumps(example.make(schema)).encode("utf-8", "replace")
    return example, RawReply(status, {"content-type": "application/json"}, body)


# --- described places ---


def _described_properties(schema: Schema, document: Schema) -> Iterator[tuple[Path, Schema]]:
    """Yield every property of a reply with its path; 0 stands for lists, `*` for keys of maps."""
    waiting: list[tuple[Path, object]] = [((), schema)]
    for _ in range(_NODES_MAX):
        if not waiting:
            return
        path, raw = waiting.pop(0)
        node = _merged(raw, document)
        own = {**node, "description": as_map(raw).get("description", node.get("description"))}
        yield path, own
        if len(path) < _DEPTH_MAX:
            waiting += [((*path, name), value) for name, value in as_map(node.get("properties")).items()]
            waiting += [((*path, 0), node["items"])] if "items" in node else []
            if isinstance(node.get("additionalProperties"), Mapping):
                waiting.append(((*path, "*"), node["additionalProperties"]))


def _described_asset(schema: Schema, document: Schema) -> Path | None:
    """Return the path that descriptions give for the asset id; names alone say no more than a reply does."""
    ranked: list[tuple[int, Path]] = []
    for path, node in _described_properties(schema, document):
        is_value = not as_map(node.get("properties")) and "items" not in node and path and path[-1] not in {"*", 0}
        text = f"{node.get('title', '')} {node.get('description', '')}"
        if is_value and _kind(node) not in {"boolean", "object"}:
            is_described = bool(_ABOUT_ASSET.search(str(node.get("description", "")).lower()))
            is_url = normalize_name(path[-1]).endswith(("url", "headers"))
            points = 0 if is_url else name_score(path) + (_DESCRIBED_POINTS if is_described else 0)
            ranked.append((points, path))
        keys = as_map(node.get("propertyNames"))
        is_of_ids = _ABOUT_ASSET.search(text.lower()) and not _ABOUT_NAMES.search(text.lower())
        is_by_asset = re.search(r"\b(keyed|by)\b.{0,20}\basset", text.lower()) or _ABOUT_ASSET.search(str(keys).lower())
        if isinstance(node.get("additionalProperties"), Mapping) and (is_of_ids or is_by_asset):
            ranked.append((_DESCRIBED_KEY_POINTS, (*path, "*")))
    points, best = max(ranked, key=lambda pair: pair[0], default=(0, ()))
    return best if points >= _DESCRIBED_KEY_POINTS else None


def _described_balance(schema: Schema, document: Schema) -> Path | None:
    found = [
        path
        for path, node in _described_properties(schema, document)
        if path
        and _kind(node) in {"integer", "number", "string"}
        and _ABOUT_BALANCE.search(f"{path[-1]} {node.get('description', '')}".lower())
    ]
    return found[0] if len(found) == 1 else None


def _as_hint(path: Path | None) -> tuple[str, ...]:
    return tuple(step if step == "*" else normalize_name(step) for step in path or () if isinstance(step, str))


def _shown(path: Path | None) -> str | None:
    if path is None:
        return None
    return keys_as_jmespath(path[:-1]) if path[-1:] == ("*",) else as_jmespath(path)


# --- the fields ---


def _generation(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    schema = _reply_schema(document, "post", provider.IMAGES) or _reply_schema(document, "post", provider.VIDEOS)
    if not schema:
        return UndocumentedField(ReplyField.GENERATION_ID, "the generation's id", None, None, _POLLED)
    example, raw = _example_of(document, schema, status=202)
    reply = parse_create(raw, mapping)
    found = example.jmespath_of(reply.record.id) if isinstance(reply, Accepted) else None
    return UndocumentedField(ReplyField.GENERATION_ID, "the generation's id", None, found, _POLLED)


def _price(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    example, raw = _example_of(document, _reply_schema(document, "post", provider.QUOTES))
    reply = parse_quote(raw, mapping)
    found = example.jmespath_of(reply.cost_credits) if isinstance(reply, Quoted) else None
    return UndocumentedField(ReplyField.PRICE, "the price of a quote", None, found, "sent back as max_cost_credits")


def _balance(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    schema = _reply_schema(document, "get", provider.BALANCE)
    example, raw = _example_of(document, schema)
    reply = parse_balance(raw, mapping)
    found = example.jmespath_of(reply.credits) if isinstance(reply, BalanceRead) and reply.credits is not None else None
    described = _shown(_described_balance(schema, document))
    return UndocumentedField(ReplyField.BALANCE, "the balance", described, found, "shown, and nothing is decided by it")


def _asset_id(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    schema = _reply_schema(document, "post", provider.UPLOADS)
    example, raw = _example_of(document, schema)
    reply = parse_prepare(raw, _FILE_NAMES, mapping)
    found = example.jmespath_of(reply.tickets[0].asset_id) if isinstance(reply, UploadsPrepared) else None
    described = _shown(_described_asset(schema, document))
    return UndocumentedField(ReplyField.ASSET_ID, "the asset's identifier", described, found, "sent back in asset_ids")


def _asset_url(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    example, raw = _example_of(document, _reply_schema(document, "post", provider.UPLOADS_COMPLETE))
    reply = parse_complete(raw, _ASSET_IDS, mapping)
    found = example.jmespath_of(reply.urls[0]) if isinstance(reply, AssetsReady) else None
    return UndocumentedField(ReplyField.ASSET_URL, "the url of an asset", None, found, "sent back in inputs[].url")


def _models(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    schema = _reply_schema(document, "get", provider.MODELS)
    example, raw = _example_of(document, schema, is_catalog=True)
    reply = parse_catalog(raw, mapping)
    known = [model for model in reply.models if model.id in DOCUMENTED_MODELS] if isinstance(reply, CatalogRead) else []
    found = example.jmespath_of(known[0].id) if known else None
    return UndocumentedField(
        ReplyField.MODELS, "the models of the catalog", None, found, "items are checked against them"
    )


def _error(document: Schema, mapping: ReplyMapping) -> UndocumentedField:
    schema = _reply_schema(document, "post", provider.IMAGES, success=False) or _reply_schema(
        document, "post", provider.VIDEOS, success=False
    )
    example, raw = _example_of(document, schema, status=400)
    code = read_error(raw, mapping).code
    return UndocumentedField(
        ReplyField.ERROR_CODE, "the code of an error", None, example.jmespath_of(code), "it decides what happens next"
    )


_POLLED: Final = f"polled as {provider.GENERATIONS}/{{id}}"
_READERS: Final[tuple[Callable[[Schema, ReplyMapping], UndocumentedField], ...]] = (
    *(_models, _balance, _price, _generation, _asset_id, _asset_url, _error),
)
