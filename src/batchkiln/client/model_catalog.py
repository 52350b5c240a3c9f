"""Parses the model catalog, whose fields the service does not document (Service section 2.4).

An entry is searched for lists of the known kinds, at any depth. Values that differ between modes are combined, because
a wrong "not supported" would stop a request that the service accepts.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from batchkiln.client.error_responses import not_an_api_reply, transient_error
from batchkiln.client.http_response import RawReply
from batchkiln.client.json_tree import (
    JsonNode,
    normalize_fields,
    normalize_name,
    read_number,
    read_text,
    walk,
    words_in,
)
from batchkiln.client.list_entries import entries_around
from batchkiln.client.reply_mapping import NO_MAPPING, ReplyMapping, search_path
from batchkiln.core.provider import DOCUMENTED_MODELS
from batchkiln.core.response_rules import ReplyField
from batchkiln.core.responses import CatalogRead, CatalogReply, ModelEntry

_MODELS_MAX: Final = 1000
_DEPTH_MAX: Final = 6
_VALUES_MAX: Final = 500
_LISTS: Final = ("models", "data", "items", "catalog", "results", "result", "entries")
_IDS: Final = ("id", "model", "modelid", "publicid", "slug", "name")
_PREFIX: Final = re.compile(r"^(supported|available|allowed|valid|accepted)|(supported|available|allowed|options)$")
_VALUE_LISTS: Final = ("values", "enum", "options", "allowed", "supported", "items", "choices", "list")
_VALUE_NAMES: Final = ("value", "id", "name", "mode", "resolution", "aspectratio", "ratio", "seconds", "duration")

_MODES: Final = frozenset({"modes", "mode", "generationmodes"})
_RESOLUTIONS: Final = frozenset({"resolutions", "resolution", "sizes"})
_ASPECT_RATIOS: Final = frozenset({"aspectratios", "aspectratio", "ratios", "aspects"})
_DURATIONS: Final = frozenset({"durations", "duration", "durationseconds", "durationsseconds", "seconds", "durationss"})
# A limit's name is made of these words: `max_prompt_length`, `prompt_limit_characters`, `max_input_images`.
_LIMIT_WORDS: Final = frozenset({"max", "maximum", "limit", "length"})
_FILLING_WORDS: Final = frozenset(
    {"characters", "character", "chars", "count", "number", "of", "per", "request", "size"}
)
_PROMPT_WORDS: Final = frozenset({"prompt"})
_IMAGE_WORDS: Final = frozenset({"image", "images", "input", "inputs", "reference", "references"})
_PROMPT_OBJECTS: Final = frozenset({"prompt", "promptlimits"})
_IMAGE_OBJECTS: Final = frozenset({"images", "imageinputs", "inputimages", "inputs", "inputlimits", "imageinput"})
_BOUNDS: Final = (
    *("max", "maximum", "maxlength", "maxcharacters", "maxchars", "limit", "length", "maxcount", "count"),
    *("maxitems", "maximages", "images"),
)


def parse_catalog(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> CatalogReply:
    """Parse the reply to the catalog; models that cannot be read are left out."""
    document = raw.document()
    if not raw.is_success or not isinstance(document, list | Mapping):
        return transient_error(raw, mapping) or not_an_api_reply(raw)
    models: dict[str, ModelEntry] = {}
    if mapping.has(ReplyField.MODELS):
        document = search_path(mapping.rules.fields[ReplyField.MODELS], document)
    for entries in (_model_entries(document), _entries_of_known(document)):
        for entry in entries:
            model = _model(entry)
            if model is not None and len(models) < _MODELS_MAX:
                models.setdefault(model.id, model)
        if models.keys() & DOCUMENTED_MODELS:
            break
    return CatalogRead(tuple(models.values()))


def _entries_of_known(document: object) -> Iterator[object]:
    """Yield the part of the reply about each documented model."""
    anchors: dict[str, JsonNode] = {}
    for node in walk(document):
        key = node.path[-1] if node.path else None
        for found in (key, node.value):
            if isinstance(found, str) and found in DOCUMENTED_MODELS:
                anchors.setdefault(found, node)
    for model_id, entry in zip(anchors, entries_around(document, list(anchors.values())), strict=True):
        parts = [part.value for part in entry.parts if isinstance(part.value, Mapping)]
        fields = {name: value for name, value in parts[-1].items() if normalize_name(name) != "id"} if parts else {}
        yield {"id": model_id, **fields}


def _model_entries(document: object, depth: int = 0) -> Iterator[object]:
    """Yield the entries of a list, or of a map by id, under any usual name and grouping."""
    if isinstance(document, list):
        yield from document
    if not isinstance(document, Mapping) or depth > _DEPTH_MAX:
        return
    fields = normalize_fields(document)
    wrapped = [fields[name] for name in _LISTS if isinstance(fields.get(name), list | Mapping)]
    if wrapped:
        yield from _model_entries(wrapped[0], depth + 1)
        return
    for name, value in document.items():
        if isinstance(value, list) and name.lower() in {"video", "image", "videos", "images"}:
            yield from value
        elif isinstance(value, Mapping):
            yield {"id": name, **value}


def _model(entry: object) -> ModelEntry | None:
    if isinstance(entry, str):
        entry = {"id": entry}
    if not isinstance(entry, Mapping):
        return None
    fields = normalize_fields(entry)
    model_id = next((text for name in _IDS if (text := read_text(fields.get(name)))), None)
    if model_id is None:
        return None
    return ModelEntry(
        id=model_id,
        modes=frozenset(_texts(entry, _MODES)),
        resolutions=frozenset(_texts(entry, _RESOLUTIONS)),
        aspect_ratios=frozenset(_texts(entry, _ASPECT_RATIOS)),
        durations_seconds=frozenset(_durations(entry)),
        prompt_max_characters=_largest_limit(entry, _PROMPT_WORDS, _PROMPT_OBJECTS),
        images_max=_largest_limit(entry, _IMAGE_WORDS, _IMAGE_OBJECTS),
    )


def _named(entry: Mapping[str, object], is_meant: Callable[[str], bool]) -> Iterator[object]:
    """Yield every value whose name matches, at any depth."""
    for node in walk(entry):
        if node.path and isinstance(node.path[-1], str) and is_meant(node.path[-1]):
            yield node.value


def _has_name(names: frozenset[str]) -> Callable[[str], bool]:
    return lambda name: bool({normalize_name(name), _PREFIX.sub("", normalize_name(name))} & names)


def _is_limit_of(about: frozenset[str]) -> Callable[[str], bool]:
    def is_meant(name: str) -> bool:
        words = words_in(name)
        return bool(words & about and words & _LIMIT_WORDS) and words <= about | _LIMIT_WORDS | _FILLING_WORDS

    return is_meant


def _texts(fields: Mapping[str, object], names: frozenset[str]) -> Iterator[str]:
    for value in _named(fields, _has_name(names)):
        yield from _flat_texts(value)


def _flat_texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield texts from a text, a list, objects that name themselves, or a map whose keys are the values."""
    match value:
        case str() if value.strip():
            yield value.strip()
        case list() if depth < _DEPTH_MAX:
            for entry in value[:_VALUES_MAX]:
                yield from _flat_texts(entry, depth + 1)
        case Mapping() if depth < _DEPTH_MAX:
            inner = normalize_fields(value)
            listed = next((inner[name] for name in _VALUE_LISTS if isinstance(inner.get(name), list)), None)
            own = next((text for name in _VALUE_NAMES if isinstance(text := inner.get(name), str)), None)
            if listed is not None:
                yield from _flat_texts(listed, depth + 1)
            elif own is not None:
                yield own
            elif all(isinstance(each, Mapping | list | bool) for each in value.values()):
                yield from (str(key) for key, each in value.items() if each is not False)


def _durations(fields: Mapping[str, object]) -> Iterator[int]:
    for value in _named(fields, _has_name(_DURATIONS)):
        yield from _flat_durations(value)


def _flat_durations(value: object, depth: int = 0) -> Iterator[int]:
    """Yield whole seconds from numbers, texts such as `5s`, lists, or a range of min, max and step."""
    if isinstance(value, list) and depth < _DEPTH_MAX:
        for entry in value[:_VALUES_MAX]:
            yield from _flat_durations(entry, depth + 1)
    elif isinstance(value, Mapping) and depth < _DEPTH_MAX:
        yield from _ranged_durations(normalize_fields(value), depth)
    else:
        text = re.fullmatch(r"(\d{1,5})(\.0+)? ?(s|sec|seconds?)?", str(value).strip().lower())
        if text is not None and not isinstance(value, bool):
            yield int(text[1])


def _ranged_durations(fields: Mapping[str, object], depth: int) -> Iterator[int]:
    shortest = read_number(fields.get("min", fields.get("minimum")))
    longest = read_number(fields.get("max", fields.get("maximum")))
    if shortest is not None and longest is not None:
        step = read_number(fields.get("step")) or 1
        if step >= 1 and shortest >= 0:
            yield from range(int(shortest), min(int(longest), int(shortest) + _VALUES_MAX) + 1, int(step))
        return
    for name in (*_VALUE_LISTS, *_VALUE_NAMES):
        if name in fields:
            yield from _flat_durations(fields[name], depth + 1)
            return


def _largest_limit(fields: Mapping[str, object], about: frozenset[str], objects: frozenset[str]) -> int | None:
    """Return the largest limit, by its own name or as the maximum of an object; None if there is none."""
    found = [read_number(value) for value in _named(fields, _is_limit_of(about))]
    for value in _named(fields, _has_name(objects)):
        if isinstance(value, Mapping):
            inner = normalize_fields(value)
            found += [read_number(inner.get(name)) for name in _BOUNDS]
    limits = [int(number) for number in found if number is not None and number >= 0]
    return max(limits, default=None)
