"""What `/openapi.json` says otherwise than the client expects: named before it costs anything (contract, section 8).

Only what is described is held against it: an operation without a schema says nothing, and a document may leave out
much. Foreign documents are walked with bounds, and their texts are made safe before anybody sees them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from batchkiln.client.redact import safe_text
from batchkiln.client.schemas import STEPS_MAX, Node, as_map, content, operations, resolved, texts, variants

_NAME_MAX_CHARACTERS: Final = 60
_SHOWN: Final = 8
_KEY: Final = "bk-" + "0" * 40  # of the shape that our keys have; see `idempotency_key` in `core/request.py`
_SIMPLE: Final = re.compile(r"\^?\[[^\[\]]{1,40}\](\{\d{1,4},\d{0,4}\}|[+*])\$?")
_STATUSES: Final = frozenset({"pending", "processing", "success", "failed", "canceled", "expired"})
_REQUEST: Final = frozenset({"model", "mode", "prompt", "inputs", "parameters", "max_cost_credits"})


@dataclass(frozen=True, slots=True)
class Expected:
    """One call of the client: what it sends, and the fields of the reply that it needs; `is_vital` for every run."""

    method: str
    path: str
    sends: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    status: str | None = None
    is_create: bool = False
    is_vital: bool = False


def _create(path: str) -> Expected:
    needs = frozenset({"id", "status"})
    return Expected("post", path, sends=_REQUEST, needs=needs, status="202", is_create=True, is_vital=True)


EXPECTED: Final = (
    Expected("get", "/models"),
    Expected("get", "/credits/balance"),
    Expected(
        "post",
        "/quotes",
        sends=_REQUEST - {"max_cost_credits"},
        needs=frozenset({"cost_credits"}),
        is_vital=True,
    ),
    _create("/videos"),
    _create("/images"),
    Expected("get", "/generations/{}", needs=frozenset({"id", "status", "outputs"}), is_vital=True),
    Expected("post", "/uploads", sends=frozenset({"files"}), needs=frozenset({"upload_url", "upload_headers"})),
    Expected("post", "/uploads/complete", sends=frozenset({"asset_ids"}), needs=frozenset({"url"})),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is described otherwise. `is_grave`: requests would fail, or could not be sent safely."""

    what: str
    is_grave: bool = False


def differences(document: Node) -> list[Difference]:
    """Return what the description says otherwise, the calls in the order of the service's own list."""
    known = operations(document)
    if not known:
        return [Difference("it describes no paths", is_grave=True)]
    found = list(_of_version(document))
    for expected in EXPECTED:
        operation = as_map(known.get(expected.path, {}).get(expected.method))
        call = f"{expected.method.upper()} {expected.path.replace('{}', '{id}')}"
        if not operation:
            found.append(Difference(f"{call} is not described", is_grave=expected.is_vital))
            continue
        found += [Difference(f"{call} {what}", is_grave) for what, is_grave in _of_call(expected, operation, document)]
    return found


def _of_version(document: Node) -> Iterator[Difference]:
    version = document.get("openapi")
    if not isinstance(version, str) or not version.startswith("3."):
        yield Difference(f"it is of the version {_shown(str(version))}, and 3.1 is expected")


def _of_call(expected: Expected, operation: Node, document: Node) -> Iterator[tuple[str, bool]]:
    if expected.is_create:
        yield from _of_key(operation, document)
    yield from _of_request(expected, operation, document)
    yield from _of_reply(expected, operation, document)


def _of_key(operation: Node, document: Node) -> Iterator[tuple[str, bool]]:
    """Look at the idempotency key, without which a replay could be charged twice (Service rule 4.1)."""
    listed = operation.get("parameters")
    parameters = [resolved(entry, document) for entry in listed] if isinstance(listed, list) else []
    keys = [entry for entry in parameters if str(entry.get("name", "")).lower() == "idempotency-key"]
    if not keys:
        yield "takes no Idempotency-Key, so that a replay could be charged again", True
        return
    schema = resolved(keys[0].get("schema"), document)
    shortest, longest, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    is_short = isinstance(longest, int) and longest < len(_KEY)
    is_long = isinstance(shortest, int) and shortest > len(_KEY)
    if is_short or is_long or (isinstance(pattern, str) and not _matches(pattern)):
        yield f"wants another form of Idempotency-Key than batchkiln's ({len(_KEY)} letters, digits and hyphens)", True


def _matches(pattern: str) -> bool:
    """Tell whether our keys fit; of all but the simplest patterns nothing is said, since some take for ever."""
    try:
        return _SIMPLE.fullmatch(pattern) is None or re.search(pattern, _KEY) is not None
    except re.error:
        return True


def _of_request(expected: Expected, operation: Node, document: Node) -> Iterator[tuple[str, bool]]:
    schema = content(operation.get("requestBody"), document)
    shapes = list(variants(schema, document))
    if not expected.sends or not any(shapes):
        return
    taken = {name for variant in shapes for name in as_map(variant.get("properties"))}
    is_closed = all(variant.get("additionalProperties") is False for variant in shapes)
    if taken and is_closed and (unknown := expected.sends - taken):
        yield f"does not take {_names(unknown)}", True
    required = [frozenset(texts(variant.get("required"))) for variant in shapes]
    if lacking := frozenset.intersection(*required) - expected.sends:
        yield f"requires {_names(lacking)}, which batchkiln does not send", True


def _of_reply(expected: Expected, operation: Node, document: Node) -> Iterator[tuple[str, bool]]:
    responses = as_map(operation.get("responses"))
    successes = [status for status in responses if status[:1] == "2"]
    if expected.status is not None and successes and expected.status not in successes:
        yield f"answers {_names(frozenset(successes))} and not {expected.status}", False
    for status in successes:
        fields = _fields(content(responses[status], document), document)
        if not fields:
            continue
        if missing := expected.needs - fields.keys():
            yield f"answers without {_names(missing)}; other names and envelopes are tried", False
        words = {word for node in fields.get("status", ()) for word in texts(node.get("enum"))}
        if expected.is_create and words and (new := frozenset(words) - _STATUSES):
            yield f"knows states that count as not ended here: {_names(new)}", False


def _fields(schema: Node, document: Node) -> dict[str, list[Node]]:
    """Gather the properties of a reply by name, also those inside of envelopes and lists."""
    fields: dict[str, list[Node]] = {}
    waiting, steps = [schema], 0
    while waiting and steps < STEPS_MAX:
        for variant in variants(waiting.pop(), document):
            steps += 1
            for name, value in as_map(variant.get("properties")).items():
                found = resolved(value, document)
                if not any(found is known for known in fields.setdefault(name, [])):
                    fields[name].append(found)
                    waiting.append(found)
            if "items" in variant:
                waiting.append(resolved(variant["items"], document))
    return fields


def _names(names: frozenset[str]) -> str:
    shown = [_shown(name) for name in sorted(names)[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _shown(text: str) -> str:
    return safe_text(text, _NAME_MAX_CHARACTERS)
