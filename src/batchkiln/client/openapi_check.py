"""Compares the service's OpenAPI document with what the client sends and needs, before it costs anything.

Only what the document describes is compared: an operation without a schema is no mismatch (contract, section 8).
Foreign documents are walked with bounds, and their texts are redacted before they are shown.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from batchkiln.client.redact import safe_text
from batchkiln.core import provider

Schema = Mapping[str, object]

_DEPTH_MAX: Final = 12
STEPS_MAX: Final = 5000  # per body: a schema that refers to itself in several ways never ends
_NAME_MAX_CHARACTERS: Final = 60
_SHOWN: Final = 8
_KEY: Final = "bk-" + "0" * 40  # the form of our keys; see `idempotency_key` in `core/request.py`
_SIMPLE: Final = re.compile(r"\^?\[[^\[\]]{1,40}\](\{\d{1,4},\d{0,4}\}|[+*])\$?")
_STATUSES: Final = frozenset({"pending", "processing", "success", "failed", "canceled", "expired"})
_REQUEST: Final = frozenset({"model", "mode", "prompt", "inputs", "parameters", "max_cost_credits"})


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call of the client: the fields that it sends and needs. Every run uses the calls that are `required`."""

    method: str
    path: str
    sends: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    status: str | None = None
    is_create: bool = False
    required: bool = False


def _create(path: str) -> ExpectedCall:
    needs = frozenset({"id", "status"})
    return ExpectedCall("post", path, sends=_REQUEST, needs=needs, status="202", is_create=True, required=True)


EXPECTED: Final = (
    ExpectedCall("get", provider.MODELS),
    ExpectedCall("get", provider.BALANCE),
    ExpectedCall(
        "post",
        provider.QUOTES,
        sends=_REQUEST - {"max_cost_credits"},
        needs=frozenset({"cost_credits"}),
        required=True,
    ),
    _create(provider.VIDEOS),
    _create(provider.IMAGES),
    ExpectedCall("get", f"{provider.GENERATIONS}/{{}}", needs=frozenset({"id", "status", "outputs"}), required=True),
    ExpectedCall(
        "post", provider.UPLOADS, sends=frozenset({"files"}), needs=frozenset({"upload_url", "upload_headers"})
    ),
    ExpectedCall("post", provider.UPLOADS_COMPLETE, sends=frozenset({"asset_ids"}), needs=frozenset({"url"})),
)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A difference between document and client. If `is_breaking`, requests would fail or could be charged twice."""

    what: str
    is_breaking: bool = False


def mismatches(document: Schema) -> list[Mismatch]:
    """Return the differences, in the order of the service's own list of calls."""
    known = operations(document)
    if not known:
        return [Mismatch("it describes no paths", is_breaking=True)]
    found = list(_version_mismatch(document))
    for expected in EXPECTED:
        operation = as_map(known.get(expected.path, {}).get(expected.method))
        call = f"{expected.method.upper()} {expected.path.replace('{}', '{id}')}"
        if not operation:
            found.append(Mismatch(f"{call} is not described", is_breaking=expected.required))
            continue
        found += [
            Mismatch(f"{call} {what}", is_breaking)
            for what, is_breaking in _call_mismatches(expected, operation, document)
        ]
    return found


def _version_mismatch(document: Schema) -> Iterator[Mismatch]:
    version = document.get("openapi")
    if not isinstance(version, str) or not version.startswith("3."):
        yield Mismatch(f"it has the version {_shown(str(version))}; 3.1 is expected")


def _call_mismatches(expected: ExpectedCall, operation: Schema, document: Schema) -> Iterator[tuple[str, bool]]:
    if expected.is_create:
        yield from _key_mismatch(operation, document)
    yield from _request_mismatches(expected, operation, document)
    yield from _reply_mismatches(expected, operation, document)


def _key_mismatch(operation: Schema, document: Schema) -> Iterator[tuple[str, bool]]:
    """Yield what is wrong with the idempotency key: without it, a replay could be charged twice (Service rule 4.1)."""
    listed = operation.get("parameters")
    parameters = [resolve_ref(entry, document) for entry in listed] if isinstance(listed, list) else []
    keys = [entry for entry in parameters if str(entry.get("name", "")).lower() == provider.IDEMPOTENCY_HEADER.lower()]
    if not keys:
        yield f"takes no {provider.IDEMPOTENCY_HEADER}, so a replay could be charged again", True
        return
    schema = resolve_ref(keys[0].get("schema"), document)
    shortest, longest, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    is_short = isinstance(longest, int) and longest < len(_KEY)
    is_long = isinstance(shortest, int) and shortest > len(_KEY)
    if is_short or is_long or (isinstance(pattern, str) and not _matches(pattern)):
        own = f"({len(_KEY)} letters, digits and hyphens)"
        yield f"requires another form of {provider.IDEMPOTENCY_HEADER} than batchkiln's {own}", True


def _matches(pattern: str) -> bool:
    """Return whether our keys match a pattern; True for all but simple patterns, since some take very long."""
    try:
        return _SIMPLE.fullmatch(pattern) is None or re.search(pattern, _KEY) is not None
    except re.error:
        return True


def _request_mismatches(expected: ExpectedCall, operation: Schema, document: Schema) -> Iterator[tuple[str, bool]]:
    schema = json_body_schema(operation.get("requestBody"), document)
    shapes = list(variants(schema, document))
    if not expected.sends or not any(shapes):
        return
    taken = {name for variant in shapes for name in as_map(variant.get("properties"))}
    is_closed = all(variant.get("additionalProperties") is False for variant in shapes)
    if taken and is_closed and (unknown := expected.sends - taken):
        yield f"does not take {_names(unknown)}", True
    required = [frozenset(strings(variant.get("required"))) for variant in shapes]
    if lacking := frozenset.intersection(*required) - expected.sends:
        yield f"requires {_names(lacking)}, which batchkiln does not send", True


def _reply_mismatches(expected: ExpectedCall, operation: Schema, document: Schema) -> Iterator[tuple[str, bool]]:
    responses = as_map(operation.get("responses"))
    successes = [status for status in responses if status[:1] == "2"]
    if expected.status is not None and successes and expected.status not in successes:
        yield f"answers {_names(frozenset(successes))} and not {expected.status}", False
    for status in successes:
        fields = _fields(json_body_schema(responses[status], document), document)
        if not fields:
            continue
        if missing := expected.needs - fields.keys():
            yield f"replies without {_names(missing)}; other names and envelopes are tried", False
        words = {word for node in fields.get("status", ()) for word in strings(node.get("enum"))}
        if expected.is_create and words and (new := frozenset(words) - _STATUSES):
            yield f"has statuses that count as not ended here: {_names(new)}", False


def _fields(schema: Schema, document: Schema) -> dict[str, list[Schema]]:
    """Return the properties of a reply by name, including those in envelopes and lists."""
    fields: dict[str, list[Schema]] = {}
    waiting, steps = [schema], 0
    while waiting and steps < STEPS_MAX:
        for variant in variants(waiting.pop(), document):
            steps += 1
            for name, value in as_map(variant.get("properties")).items():
                found = resolve_ref(value, document)
                if not any(found is known for known in fields.setdefault(name, [])):
                    fields[name].append(found)
                    waiting.append(found)
            if "items" in variant:
                waiting.append(resolve_ref(variant["items"], document))
    return fields


def _names(names: frozenset[str]) -> str:
    shown = [_shown(name) for name in sorted(names)[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _shown(text: str) -> str:
    return safe_text(text, _NAME_MAX_CHARACTERS)


def variants(node: Schema, document: Schema) -> Iterator[Schema]:
    """Yield the schemas that a schema allows: itself, or the parts of its `oneOf`, `anyOf` and `allOf`."""
    waiting, steps = deque([node]), 0
    while waiting and steps < STEPS_MAX:
        steps += 1
        here = resolve_ref(waiting.popleft(), document)
        parts = [as_map(part) for word in ("oneOf", "anyOf", "allOf") for part in as_list(here.get(word))]
        if not parts or "properties" in here:
            yield here
        elif len(waiting) < STEPS_MAX:
            waiting.extend(parts)


def json_body_schema(holder: object, document: Schema) -> Schema:
    """Return the schema of a JSON body; empty if none is described."""
    content = as_map(resolve_ref(holder, document).get("content"))
    media = next((value for name, value in content.items() if "json" in name.lower()), None)
    return as_map(as_map(media).get("schema"))


def resolve_ref(node: object, document: Schema) -> Schema:
    """Follow references within the document; return an empty schema for a broken or circular one."""
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


def _server_prefixes(document: Schema) -> tuple[str, ...]:
    """Return the paths of the document's servers; paths of operations may or may not begin with one."""
    urls = [as_map(server).get("url") for server in as_list(document.get("servers"))]
    found = [urlsplit(url).path.rstrip("/") for url in urls if isinstance(url, str) and "[" not in url]
    return tuple(path for path in (*found, "/api/v1") if path)


def _plain_path(path: str, prefixes: tuple[str, ...]) -> str:
    """Return a path without its prefix and without the names of its parameters."""
    prefix = next((prefix for prefix in prefixes if path.startswith(prefix + "/")), "")
    return re.sub(r"\{[^{}]*\}", "{}", path.removeprefix(prefix)).rstrip("/")


def as_map(value: object) -> Mapping[str, object]:
    """Return a mapping unchanged, and an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[object]:
    """Return a list unchanged, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def strings(value: object) -> Iterator[str]:
    """Yield the strings of a list."""
    return (entry for entry in as_list(value) if isinstance(entry, str))


def operations(document: Schema) -> Mapping[str, Schema]:
    """Return the described path items by path, without prefix and names of parameters."""
    known = _server_prefixes(document)
    return {_plain_path(path, known): as_map(item) for path, item in as_map(document.get("paths")).items()}
