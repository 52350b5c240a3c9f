"""The generation record in a reply, found by its documented fields, whatever is around it (Service section 2.1).

The object that holds most of the documented fields is the record; other names only break ties. Where two objects
could be meant, none is: a wrong id would be polled in the place of the one that was paid for.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from batchkiln.client.coercion import read_cost, read_instant, read_text
from batchkiln.client.error_responses import read_error_object
from batchkiln.client.guide import Guide
from batchkiln.client.http_response import RawReply
from batchkiln.client.json_tree import Place, children, is_field_name, plain, squashed, walk, walk_below
from batchkiln.client.links import read_links
from batchkiln.client.redact import safe_text
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import GenerationRecord, GenerationStatus

T = TypeVar("T")

STATUS_WORD_MAX_CHARACTERS: Final = 60
_ID_MAX_CHARACTERS: Final = 500
_WORDS: Final = frozenset(status.value for status in GenerationStatus) - {GenerationStatus.UNKNOWN.value}
_GOING_ON: Final = frozenset({GenerationStatus.PENDING, GenerationStatus.PROCESSING})

# Names whose objects are never the record, nor part of it; then those that hold another one, or something beside it.
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
# The stronger names first; of equally strong ones the dearer counts.
_COST_NAMES: Final = (
    ("cost",),
    ("costcredits", "creditscost", "creditcost", "creditscharged", "chargedcredits", "creditsused"),
    ("charged", "credits", "price", "spent", "used"),
    ("amount", "total"),
)
# An object of this name carries the rest of a record whose id stands above it (JSON:API and its like).
_PARTS: Final = frozenset(
    {
        *("attributes", "properties", "fields", "values", "record", "generation", "task", "job", "video", "image"),
        *("prediction", "resource", "object", "body", "details", "info"),
    }
)
_IDENTITIES: Final = frozenset({"identity", "identifier", "ref", "resource", "generation", "task", "job"})
_ENVELOPE_MARKS: Final = frozenset({"status", "success", "ok", "message", "code", "requestid", "errors", "error"})
_POINTS: Final[Mapping[str, int]] = {"cost": 20, "model": 15, "outputs": 15, "createdat": 10}


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: Place
    fields: Mapping[str, object]
    documented: frozenset[str]  # besides id and status
    points: int

    @property
    def id(self) -> str | None:
        return _id_of(self.fields)


def find_record(raw: RawReply, guide: Guide, asked_id: str | None = None) -> GenerationRecord | None:
    """Return the record of a reply, None where there is none or two could be meant.

    In the reply to a read of `asked_id`, a record without an id, or with that one in other letter case, is the record
    asked for; one with another id is given as it is.
    """
    document = raw.document()
    if guide.has(ReplyField.GENERATION):
        document = guide.find(ReplyField.GENERATION, document)
    chosen = _choose(document, asked_id)
    configured_id = read_text(guide.find(ReplyField.GENERATION_ID, raw.document()))
    if guide.has(ReplyField.GENERATION_ID) and configured_id is None:
        return None
    if chosen is None:
        if configured_id is None:
            return None
        root = Place((), document, None, "")
        chosen = _Candidate(root, squashed(document) if isinstance(document, Mapping) else {}, frozenset(), 0)
    if configured_id is not None and asked_id is not None and configured_id.casefold() == asked_id.casefold():
        configured_id = asked_id
    generation_id = configured_id or _settled_id(chosen, asked_id)
    if generation_id is None or len(generation_id) > _ID_MAX_CHARACTERS or not generation_id.isprintable():
        return None
    return _record(raw, guide, chosen, generation_id)


def _record(raw: RawReply, guide: Guide, chosen: _Candidate, generation_id: str) -> GenerationRecord:
    document = raw.document()
    word = _status_word(chosen.fields) or _status_nearby(chosen.place) or ""
    if guide.has(ReplyField.STATUS):
        word = read_text(guide.find(ReplyField.STATUS, document)) or ""
    if guide.has(ReplyField.COST):
        cost = read_cost(guide.find(ReplyField.COST, document))
    else:
        cost = _cost_of(chosen.fields) if "credits" in chosen.fields else None
        cost = _nearby(chosen.place, "credits", _documented_cost) if cost is None else cost
        cost = _cost_of(chosen.fields) if cost is None else cost
    if guide.has(ReplyField.CREATED_AT):
        created_at = read_instant(guide.find(ReplyField.CREATED_AT, document))
    else:
        created_at = _created_at(chosen)
    outputs = guide.values(ReplyField.OUTPUTS, document) if guide.has(ReplyField.OUTPUTS) else _outputs(chosen)
    return GenerationRecord(
        id=generation_id,
        status=GenerationStatus.of(word),
        status_word=safe_text(word, STATUS_WORD_MAX_CHARACTERS, raw.secrets),
        created_at=created_at,
        cost_credits=cost,
        outputs=tuple(read_links(outputs, guide)),
        error=read_error_object(_error(chosen), raw.secrets),
    )


# --- which object it is ---


def _choose(document: object, asked_id: str | None) -> _Candidate | None:
    candidates = list(_candidates(document))
    if asked_id is not None:
        own = [each for each in candidates if _names(each, asked_id)]
        candidates = own or candidates
    if not candidates:
        return None
    best = max(candidate.points for candidate in candidates)
    equals = [candidate for candidate in candidates if candidate.points == best]
    if len(equals) == 1:
        return equals[0]
    return _of_equals(equals)


def _of_equals(equals: list[_Candidate]) -> _Candidate | None:
    """Choose between objects that look alike: the inner one of an envelope, else the outer one, else none."""
    outermost, *others = equals
    if all(outermost.place in other.place.climb() for other in others):
        # An envelope has an id and a status as the record has; a record holds more than these.
        return outermost if outermost.documented else (others[0] if len(others) == 1 else None)
    return outermost if len({candidate.id for candidate in equals}) == 1 else None


def _candidates(document: object) -> Iterator[_Candidate]:
    for place in walk(document, skip=lambda place: place.name in _ERRORS or place.name in _OTHERS):
        if not isinstance(place.value, Mapping):
            continue
        fields = squashed(place.value)
        documented = frozenset(_documented(fields))
        word = _status_word(fields)
        points = sum(_POINTS[name] for name in documented)
        points += 40 if (word or "").casefold() in _WORDS else 4 if word is not None else 0
        points += 10 if read_text(plain(fields.get("id"))) else 3 if _id_of(fields) else 0
        is_record = word is not None or documented or (_id_of(fields) is not None and not _ERRORS & fields.keys())
        if is_record:
            points -= 30 if _ASIDE.intersection(place.names) else 0
            yield _Candidate(place, fields, documented, points)


def _documented(fields: Mapping[str, object]) -> Iterator[str]:
    if _documented_cost(fields.get("credits")) is not None:
        yield "cost"
    if read_text(fields.get("model")) is not None:
        yield "model"
    if isinstance(fields.get("outputs"), list | Mapping):
        yield "outputs"
    if read_instant(fields.get("createdat")) is not None:
        yield "createdat"


def _settled_id(chosen: _Candidate, asked_id: str | None) -> str | None:
    """Return the record's id, from where it stands beside the record if need be; in a read, the one asked for."""
    if asked_id is not None and _names(chosen, asked_id):
        return asked_id
    own = chosen.id
    is_ended = GenerationStatus.of(_status_word(chosen.fields)) not in _GOING_ON
    if own is not None:
        # `{"id": …, "status": "failed", "error": …}` in the reply to a create is an error with the request's id.
        is_error = is_ended and _ERRORS & chosen.fields.keys() and not chosen.documented and asked_id is None
        return None if is_error and _status_word(chosen.fields) else own
    found = _id_beside(chosen)
    if asked_id is None:
        return found
    if found is not None and found.casefold() == asked_id.casefold():
        return asked_id
    is_told = _status_word(chosen.fields) is not None and (not is_ended or bool(chosen.documented))
    return asked_id if is_told else None


def _names(candidate: _Candidate, asked_id: str) -> bool:
    """Whether an object holds the id that was asked for, under any name that an id has."""
    told = [read_text(plain(candidate.fields.get(name))) for name in ("id", *_ID_SYNONYMS)]
    return any(text.casefold() == asked_id.casefold() for text in told if text is not None)


def _id_of(fields: Mapping[str, object]) -> str | None:
    return next((text for name in ("id", *_ID_SYNONYMS) if (text := read_text(plain(fields.get(name))))), None)


def _id_beside(chosen: _Candidate) -> str | None:
    """Return the id of a record that is told in parts: below it, above it, beside it, or as its key in a map."""
    below = _identity_among(children(chosen.place))
    above = chosen.place.parent
    if below is not None or above is None or not isinstance(above.value, Mapping):
        return below
    fields = squashed(above.value)
    named = [name for name in _OWN_IDS if name in fields]
    kind = f"{fields.get('type', '')} {fields.get('object', '')} {fields.get('kind', '')}".lower()
    is_whole = any(word in kind for word in ("generation", "task", "video", "image", "job"))
    is_part = chosen.place.name in _PARTS and not _ENVELOPE_MARKS & fields.keys()
    if named or ("id" in fields and (is_part or is_whole)):
        return read_text(plain(fields[named[0] if named else "id"]))
    beside = _identity_among(part for part in children(above) if part.path != chosen.place.path)
    key = chosen.place.path[-1]
    # A key is an id only where the object is a record beyond doubt.
    is_keyed = beside is None and not is_field_name(key) and bool(chosen.documented)
    return str(key) if is_keyed else beside


def _identity_among(parts: Iterator[Place]) -> str | None:
    objects = (part.value for part in parts if part.name in _IDENTITIES)
    return next((_id_of(squashed(fields)) for fields in objects if isinstance(fields, Mapping)), None)


# --- what it says ---


def _status_word(fields: Mapping[str, object]) -> str | None:
    found = [text for name in ("status", *_STATUS_SYNONYMS) if (text := read_text(plain(fields.get(name))))]
    if "status" in fields:
        return read_text(plain(fields["status"])) or next(iter(found), None)
    return next((text for text in found if text.casefold() in _WORDS), next(iter(found), None))


def _status_nearby(place: Place) -> str | None:
    def read(value: object) -> str | None:
        word = read_text(plain(value))
        return word if word is not None and word.casefold() in _WORDS else None

    return _nearby(place, "status", read)


def _documented_cost(value: object) -> int | None:
    return read_cost(plain(squashed(value).get("cost"))) if isinstance(value, Mapping) else None


def _cost_of(fields: Mapping[str, object]) -> int | None:
    """Return `credits.cost`, else what another name says; of two readings alike the dearer."""
    inner = fields.get("credits")
    for holder in (squashed(inner), fields) if isinstance(inner, Mapping) else (fields,):
        for names in _COST_NAMES:
            told = [read_cost(plain(holder.get(name))) for name in names]
            costs = [cost for cost in told if cost is not None]
            if costs:
                return max(costs)
    return None


def _created_at(chosen: _Candidate) -> datetime | None:
    own = read_instant(chosen.fields.get("createdat")) or _nearby(chosen.place, "createdat", read_instant)
    told = (read_instant(chosen.fields.get(name)) for name in _CREATED_SYNONYMS)
    return own or next((instant for instant in told if instant is not None), None)


def _outputs(chosen: _Candidate) -> object:
    """Return what the record holds as outputs: by the documented name here or nearby, else by another one here."""

    def read(value: object) -> object:
        return value if isinstance(value, list | Mapping) and value else None

    if "outputs" in chosen.fields:
        return chosen.fields["outputs"]
    nearby: object = _nearby(chosen.place, "outputs", read)
    if nearby is not None:
        return nearby
    return next((chosen.fields[name] for name in _OUTPUT_SYNONYMS if name in chosen.fields), [])


def _error(chosen: _Candidate) -> object:
    for here in chosen.place.climb():
        fields = squashed(here.value) if isinstance(here.value, Mapping) else {}
        for name in ("error", "failure", "failurereason", "errormessage"):
            if name in fields:
                return fields[name]
    return None


def _nearby(place: Place, name: str, read: Callable[[object], T | None]) -> T | None:
    """Return what a documented name says below the record, else elsewhere in the reply where it stands only once."""

    def is_other(here: Place) -> bool:
        return here.name in _ERRORS or here.name in _OTHERS

    for here in walk_below(place, skip=is_other):
        is_named = here.name == name and bool(here.path) and isinstance(here.path[-1], str)
        if is_named and (found := read(here.value)) is not None:
            return found
    *_, root = place.climb()
    told = [here for here in walk_below(root, skip=is_other) if here.name == name and isinstance(here.path[-1], str)]
    return read(told[0].value) if len(told) == 1 else None
