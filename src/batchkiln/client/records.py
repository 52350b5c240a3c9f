"""Finds the generation record in a reply by its documented fields, whatever surrounds it (Service section 2.1).

The object with the most documented fields is the record; synonyms only decide between equals. If two objects may be the
record, neither is used: polling a wrong id would lose the generation that was paid for.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final, TypeVar

from msgspec import Struct

from batchkiln.client.error_responses import read_error_object
from batchkiln.client.http_response import RawReply
from batchkiln.client.json_tree import (
    JsonNode,
    children,
    is_field_name,
    normalize_fields,
    read_cost,
    read_instant,
    read_text,
    unwrap,
    walk,
    walk_below,
)
from batchkiln.client.record_links import read_links
from batchkiln.client.redact import safe_text
from batchkiln.client.reply_mapping import ReplyMapping
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import GenerationRecord, GenerationStatus

T = TypeVar("T")

STATUS_WORD_MAX_CHARACTERS: Final = 60
_ID_MAX_CHARACTERS: Final = 500
_STATUS_WORDS: Final = frozenset(status.value for status in GenerationStatus) - {GenerationStatus.UNKNOWN.value}
_UNFINISHED: Final = frozenset({GenerationStatus.PENDING, GenerationStatus.PROCESSING})

# Objects of these names are never the record: errors, then other records, then objects beside the record.
_ERRORS: Final = frozenset({"error", "errors", "failure", "fault"})
_OTHERS: Final = frozenset(
    {
        *("parent", "previous", "source", "original", "retryof", "replaces", "replacedby", "related", "history"),
        *("children", "siblings", "prior", "last", "next", "inputs", "input", "parameters", "params"),
    }
)
_ASIDE: Final = frozenset(
    {
        *("outputs", "files", "assets", "media", "urls", "request", "meta", "metadata", "trace", "links", "context"),
        *("account", "user", "headers", "pagination", "paging", "queue", "quota", "limits"),
    }
)
_ID_SYNONYMS: Final = ("generationid", "taskid", "jobid", "videoid", "imageid", "predictionid", "uuid", "uid", "gid")
_OWN_IDS: Final = ("generationid", "taskid", "jobid", "predictionid")
_STATUS_SYNONYMS: Final = ("state", "generationstatus", "taskstatus", "jobstatus", "phase")
_CREATED_SYNONYMS: Final = ("created", "createtime", "creationtime", "submittedat", "timestamp")
_OUTPUT_SYNONYMS: Final = ("output", "files", "assets", "media", "urls", "results", "artifacts")
# The more specific names first; of equally specific ones the highest value counts.
_COST_NAMES: Final = (
    ("cost",),
    ("costcredits", "creditscost", "creditcost", "creditscharged", "chargedcredits", "creditsused"),
    ("charged", "credits", "price", "spent", "used"),
    ("amount", "total"),
)
# An object of this name contains the rest of a record whose id is above it, as in JSON:API.
_PARTS: Final = frozenset(
    {
        *("attributes", "properties", "fields", "values", "record", "generation", "task", "job", "video", "image"),
        *("prediction", "resource", "object", "body", "details", "info"),
    }
)
_IDENTITIES: Final = frozenset({"identity", "identifier", "ref", "resource", "generation", "task", "job"})
_ENVELOPE_MARKS: Final = frozenset({"status", "success", "ok", "message", "code", "requestid", "errors", "error"})
_POINTS: Final[Mapping[str, int]] = {"cost": 20, "model": 15, "outputs": 15, "createdat": 10}


class _Candidate(Struct, frozen=True):
    node: JsonNode
    fields: Mapping[str, object]
    documented: frozenset[str]  # besides id and status
    points: int

    @property
    def id(self) -> str | None:
        return _id_of(self.fields)


def find_record(raw: RawReply, mapping: ReplyMapping, asked_id: str | None = None) -> GenerationRecord | None:
    """Return the record of a reply; None if there is none or two objects may be it.

    In the reply to a poll of `asked_id`, a record without an id, or with the same id in other letter case, counts as
    the requested one. A record with another id is returned with that id.
    """
    document = raw.document()
    if mapping.has(ReplyField.GENERATION):
        document = mapping.find(ReplyField.GENERATION, document)
    chosen = _choose(document, asked_id)
    configured_id = read_text(mapping.find(ReplyField.GENERATION_ID, raw.document()))
    if mapping.has(ReplyField.GENERATION_ID) and configured_id is None:
        return None
    if chosen is None:
        if configured_id is None:
            return None
        root = JsonNode((), document, None, "")
        chosen = _Candidate(root, normalize_fields(document) if isinstance(document, Mapping) else {}, frozenset(), 0)
    if configured_id is not None and asked_id is not None and configured_id.casefold() == asked_id.casefold():
        configured_id = asked_id
    generation_id = configured_id or _resolve_id(chosen, asked_id)
    if generation_id is None or len(generation_id) > _ID_MAX_CHARACTERS or not generation_id.isprintable():
        return None
    return _record(raw, mapping, chosen, generation_id)


def _record(raw: RawReply, mapping: ReplyMapping, chosen: _Candidate, generation_id: str) -> GenerationRecord:
    document = raw.document()
    word = _status_word(chosen.fields) or _status_nearby(chosen.node) or ""
    if mapping.has(ReplyField.STATUS):
        word = read_text(mapping.find(ReplyField.STATUS, document)) or ""
    if mapping.has(ReplyField.COST):
        cost = read_cost(mapping.find(ReplyField.COST, document))
    else:
        cost = _cost_of(chosen.fields) if "credits" in chosen.fields else None
        cost = _nearby(chosen.node, "credits", _documented_cost) if cost is None else cost
        cost = _cost_of(chosen.fields) if cost is None else cost
    if mapping.has(ReplyField.CREATED_AT):
        created_at = read_instant(mapping.find(ReplyField.CREATED_AT, document))
    else:
        created_at = _created_at(chosen)
    outputs = mapping.values(ReplyField.OUTPUTS, document) if mapping.has(ReplyField.OUTPUTS) else _outputs(chosen)
    return GenerationRecord(
        id=generation_id,
        status=GenerationStatus.of(word),
        status_word=safe_text(word, STATUS_WORD_MAX_CHARACTERS, raw.secrets),
        created_at=created_at,
        cost_credits=cost,
        outputs=tuple(read_links(outputs, mapping)),
        error=read_error_object(_error(chosen), raw.secrets),
    )


# --- choosing the object ---


def _choose(document: object, asked_id: str | None) -> _Candidate | None:
    candidates = list(_candidates(document))
    if asked_id is not None:
        own = [each for each in candidates if _has_id(each, asked_id)]
        candidates = own or candidates
    if not candidates:
        return None
    best = max(candidate.points for candidate in candidates)
    equals = [candidate for candidate in candidates if candidate.points == best]
    if len(equals) == 1:
        return equals[0]
    return _break_tie(equals)


def _break_tie(equals: list[_Candidate]) -> _Candidate | None:
    """Choose between equally good objects: the inner one of an envelope, else the outer one, else none."""
    outermost, *others = equals
    if all(outermost.node in other.node.self_and_ancestors() for other in others):
        # Both envelope and record may have an id and a status; only a record has more documented fields.
        return outermost if outermost.documented else (others[0] if len(others) == 1 else None)
    return outermost if len({candidate.id for candidate in equals}) == 1 else None


def _candidates(document: object) -> Iterator[_Candidate]:
    for node in walk(document, skip=lambda node: node.name in _ERRORS or node.name in _OTHERS):
        if not isinstance(node.value, Mapping):
            continue
        fields = normalize_fields(node.value)
        documented = frozenset(_documented(fields))
        word = _status_word(fields)
        points = sum(_POINTS[name] for name in documented)
        points += 40 if (word or "").casefold() in _STATUS_WORDS else 4 if word is not None else 0
        points += 10 if read_text(unwrap(fields.get("id"))) else 3 if _id_of(fields) else 0
        is_record = word is not None or documented or (_id_of(fields) is not None and not _ERRORS & fields.keys())
        if is_record:
            points -= 30 if _ASIDE.intersection(node.names) else 0
            yield _Candidate(node, fields, documented, points)


def _documented(fields: Mapping[str, object]) -> Iterator[str]:
    if _documented_cost(fields.get("credits")) is not None:
        yield "cost"
    if read_text(fields.get("model")) is not None:
        yield "model"
    if isinstance(fields.get("outputs"), list | Mapping):
        yield "outputs"
    if read_instant(fields.get("createdat")) is not None:
        yield "createdat"


def _resolve_id(chosen: _Candidate, asked_id: str | None) -> str | None:
    """Return the record's id, from the objects around it if it has none; in a poll, the id asked for."""
    if asked_id is not None and _has_id(chosen, asked_id):
        return asked_id
    own = chosen.id
    is_ended = GenerationStatus.of(_status_word(chosen.fields)) not in _UNFINISHED
    if own is not None:
        # `{"id": …, "status": "failed", "error": …}` in the reply to a create is an error, and the id is the request's.
        is_error = is_ended and _ERRORS & chosen.fields.keys() and not chosen.documented and asked_id is None
        return None if is_error and _status_word(chosen.fields) else own
    found = _id_nearby(chosen)
    if asked_id is None:
        return found
    if found is not None and found.casefold() == asked_id.casefold():
        return asked_id
    has_status = _status_word(chosen.fields) is not None and (not is_ended or bool(chosen.documented))
    return asked_id if has_status else None


def _has_id(candidate: _Candidate, asked_id: str) -> bool:
    """Return whether an object has the requested id under any usual name of an id."""
    found = [read_text(unwrap(candidate.fields.get(name))) for name in ("id", *_ID_SYNONYMS)]
    return any(text.casefold() == asked_id.casefold() for text in found if text is not None)


def _id_of(fields: Mapping[str, object]) -> str | None:
    return next((text for name in ("id", *_ID_SYNONYMS) if (text := read_text(unwrap(fields.get(name))))), None)


def _id_nearby(chosen: _Candidate) -> str | None:
    """Return the id of a record that is split into parts: it is below, above or beside it, or its key in a map."""
    below = _identity_among(children(chosen.node))
    above = chosen.node.parent
    if below is not None or above is None or not isinstance(above.value, Mapping):
        return below
    fields = normalize_fields(above.value)
    named = [name for name in _OWN_IDS if name in fields]
    kind = f"{fields.get('type', '')} {fields.get('object', '')} {fields.get('kind', '')}".lower()
    is_whole = any(word in kind for word in ("generation", "task", "video", "image", "job"))
    is_part = chosen.node.name in _PARTS and not _ENVELOPE_MARKS & fields.keys()
    if named or ("id" in fields and (is_part or is_whole)):
        return read_text(unwrap(fields[named[0] if named else "id"]))
    beside = _identity_among(part for part in children(above) if part.path != chosen.node.path)
    key = chosen.node.path[-1]
    # A key is the id only if the object is certainly a record.
    is_keyed = beside is None and not is_field_name(key) and bool(chosen.documented)
    return str(key) if is_keyed else beside


def _identity_among(parts: Iterator[JsonNode]) -> str | None:
    objects = (part.value for part in parts if part.name in _IDENTITIES)
    return next((_id_of(normalize_fields(fields)) for fields in objects if isinstance(fields, Mapping)), None)


# --- its fields ---


def _status_word(fields: Mapping[str, object]) -> str | None:
    found = [text for name in ("status", *_STATUS_SYNONYMS) if (text := read_text(unwrap(fields.get(name))))]
    if "status" in fields:
        return read_text(unwrap(fields["status"])) or next(iter(found), None)
    return next((text for text in found if text.casefold() in _STATUS_WORDS), next(iter(found), None))


def _status_nearby(node: JsonNode) -> str | None:
    def read(value: object) -> str | None:
        word = read_text(unwrap(value))
        return word if word is not None and word.casefold() in _STATUS_WORDS else None

    return _nearby(node, "status", read)


def _documented_cost(value: object) -> int | None:
    return read_cost(unwrap(normalize_fields(value).get("cost"))) if isinstance(value, Mapping) else None


def _cost_of(fields: Mapping[str, object]) -> int | None:
    """Return `credits.cost`, else the value of a synonym; of equally specific synonyms the highest."""
    inner = fields.get("credits")
    for holder in (normalize_fields(inner), fields) if isinstance(inner, Mapping) else (fields,):
        for names in _COST_NAMES:
            found = [read_cost(unwrap(holder.get(name))) for name in names]
            costs = [cost for cost in found if cost is not None]
            if costs:
                return max(costs)
    return None


def _created_at(chosen: _Candidate) -> datetime | None:
    own = read_instant(chosen.fields.get("createdat")) or _nearby(chosen.node, "createdat", read_instant)
    found = (read_instant(chosen.fields.get(name)) for name in _CREATED_SYNONYMS)
    return own or next((instant for instant in found if instant is not None), None)


def _outputs(chosen: _Candidate) -> object:
    """Return the record's outputs: `outputs` in the record or near it, else a synonym in the record."""

    def read(value: object) -> object:
        return value if isinstance(value, list | Mapping) and value else None

    if "outputs" in chosen.fields:
        return chosen.fields["outputs"]
    nearby: object = _nearby(chosen.node, "outputs", read)
    if nearby is not None:
        return nearby
    return next((chosen.fields[name] for name in _OUTPUT_SYNONYMS if name in chosen.fields), [])


def _error(chosen: _Candidate) -> object:
    for here in chosen.node.self_and_ancestors():
        fields = normalize_fields(here.value) if isinstance(here.value, Mapping) else {}
        for name in ("error", "failure", "failurereason", "errormessage"):
            if name in fields:
                return fields[name]
    return None


def _nearby(node: JsonNode, name: str, read: Callable[[object], T | None]) -> T | None:
    """Return the value of a documented name below the record, else elsewhere in the reply if it occurs only once."""

    def is_other(here: JsonNode) -> bool:
        return here.name in _ERRORS or here.name in _OTHERS

    for here in walk_below(node, skip=is_other):
        is_named = here.name == name and bool(here.path) and isinstance(here.path[-1], str)
        if is_named and (found := read(here.value)) is not None:
            return found
    *_, root = node.self_and_ancestors()
    candidates = [
        here for here in walk_below(root, skip=is_other) if here.name == name and isinstance(here.path[-1], str)
    ]
    return read(candidates[0].value) if len(candidates) == 1 else None
