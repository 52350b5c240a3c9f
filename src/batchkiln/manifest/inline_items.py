"""An entry of `items` that is written out, to its items; and what such entries share with templated ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from batchkiln.core import filenames
from batchkiln.core.catalogue import Objection, PlacedObjection, against_prompt
from batchkiln.core.job import ItemSpec
from batchkiln.manifest.diagnostics import Diagnostics, Place
from batchkiln.manifest.prompts import NotAllowed, checked_id, checked_prompt
from batchkiln.manifest.schema import MAX_REPEAT, InlineItem
from batchkiln.manifest.settings import SettingsReader, describe
from batchkiln.manifest.templates import text_of
from batchkiln.manifest.validation import check_names, suggestion
from batchkiln.manifest.yaml_events import ScalarEvent
from batchkiln.manifest.yaml_tree import MapNode, Node, SeqNode, scalar_value

_INLINE_FIELDS: Final = frozenset(InlineItem.model_fields)
_ALONE: Final = frozenset({"id", "prompt"})
MAX_COMBINATIONS: Final = 10_000_000


@dataclass(slots=True)
class Allowance:
    """What is left, for a whole manifest, of work that a few words of it can ask for."""

    combinations: int = MAX_COMBINATIONS


@dataclass(slots=True)
class PlacedItem:
    """An item and where it stands: `line` (from 1) of the manifest, or of the source file of its row.

    `objections` are what the service's catalogue says against it.
    """

    spec: ItemSpec
    file: str
    line: int
    objections: tuple[PlacedObjection, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """What all entries of a manifest share. `stem` begins the ids of items without one."""

    findings: Diagnostics
    settings: SettingsReader
    pattern: str
    pattern_fields: frozenset[str]  # those that are not built in
    stem: str
    folder: Path
    shown_folder: str
    allowance: Allowance = field(default_factory=Allowance)


class NotMade(Exception):
    """No item can be made of an entry or row; the reason is in the findings."""


def inline_items(frame: Frame, node: Node, position: int) -> Iterable[PlacedItem]:
    """Give the items of an entry that is written out; `position` counts from 1. Mistakes go to the findings."""
    try:
        return _inline(frame, node, position)
    except NotMade:
        return ()


def _inline(frame: Frame, node: Node, position: int) -> Iterable[PlacedItem]:
    if isinstance(node, SeqNode):
        frame.findings.at(node.start_mark, "an item is a text or a mapping, not a list", "as in `- prompt: A red fox`")
        raise NotMade
    entry = node if isinstance(node, MapNode) else MapNode(node.start_mark, {})
    pairs = entry.pairs
    if not pairs.keys() <= _INLINE_FIELDS:
        check_names(entry, [*InlineItem.model_fields, "from", "matrix"], frame.findings)
    prompt_node = node if not isinstance(node, MapNode) else pairs["prompt"][1] if "prompt" in pairs else None
    if prompt_node is None:
        frame.findings.at(entry.start_mark, "`prompt` is missing", "an item says what is to be made: `prompt: …`")
    prompt = None if prompt_node is None else _text(frame, prompt_node, "prompt")
    name = _text(frame, pairs["id"][1], "id") if "id" in pairs else _default_id(frame, entry, position)
    inputs = frame.settings.inputs(entry)
    settled = frame.settings.settled(entry, frame.settings.inputs_count(entry) if inputs is None else len(inputs))
    metadata = frame.settings.metadata(pairs["metadata"][1] if "metadata" in pairs else None)
    repeat = read_repeat(frame, entry)
    if prompt is None or name is None or inputs is None or settled is None or metadata is None:
        raise NotMade
    line = entry.start_mark.line + 1
    values, text = metadata
    try:
        file_name = file_name_for(frame, values, {}) if frame.pattern_fields else None
    except NotAllowed as error:
        frame.findings.at(entry.start_mark, error.reason, error.remedy)
        raise NotMade from error
    spec = ItemSpec(name, settled.recipe, prompt, inputs, settled.priority, text, file_name)
    objections = settled.objections
    mark = (prompt_node or node).start_mark
    place = Place(frame.findings.file, mark.line + 1, mark.column + 1)
    if settled.prompt_limit is not None and (found := against_prompt(prompt, settled.prompt_limit)):
        objections = (*objections, placed_objection(found, place))
    return repeated(frame, spec, repeat, Place(frame.findings.file, line), objections)


def _default_id(frame: Frame, entry: MapNode, position: int) -> str | None:
    """Give the manifest's name and the position; a file may have a name that no id can have."""
    try:
        return checked_id(f"{frame.stem}-{position}")
    except NotAllowed as error:
        frame.findings.at(entry.start_mark, f"by the manifest's own name, {error.reason}", "set `id`, or rename it")
        return None


def _text(frame: Frame, node: Node, field: str) -> str | None:
    """Check the text of a prompt or an id."""
    if not isinstance(node, ScalarEvent) or (node.implicit[0] and not isinstance(scalar_value(node), str)):
        found = describe(node) or "nothing"
        remedy = "quote it to make it text" if isinstance(node, ScalarEvent) else None
        frame.findings.at(node.start_mark, f"`{field}` must be text, and is {found}", remedy)
        return None
    try:
        return checked_prompt(node.value) if field == "prompt" else checked_id(node.value)
    except NotAllowed as error:
        frame.findings.at(node.start_mark, error.reason, error.remedy)
        return None


def read_repeat(frame: Frame, entry: MapNode) -> int | None:
    """Give how many items of each are wanted, where that is said."""
    pair = entry.pairs.get("repeat")
    if pair is None:
        return None
    node = pair[1]
    value = scalar_value(node) if isinstance(node, ScalarEvent) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REPEAT:
        reason = f"`repeat` must be a whole number, and is {describe(node) or 'nothing'}"
        frame.findings.at(node.start_mark, reason, f"1 to {MAX_REPEAT:,}")
        raise NotMade
    return value


def placed_objection(objection: Objection, place: Place, *, where: str = "") -> PlacedObjection:
    """Give an objection with its place; `where` is said after the remedy."""
    remedy = f"{objection.remedy}{where}"
    return PlacedObjection(
        place.file, place.line or 0, place.column, objection.reason, remedy, is_clear=objection.is_clear
    )


def repeated(
    frame: Frame, spec: ItemSpec, repeat: int | None, place: Place, objections: tuple[PlacedObjection, ...] = ()
) -> Iterable[PlacedItem]:
    """Give the item itself, or as many as `repeat` says."""
    line = place.line or 0
    if repeat is None:
        return (PlacedItem(spec, place.file, line, objections),)
    try:
        checked_id(f"{spec.name}-{repeat}")
    except NotAllowed as error:
        frame.findings.add(place, error.reason, error.remedy)
        return ()
    return _repetitions(PlacedItem(spec, place.file, line, objections), repeat)


def _repetitions(placed: PlacedItem, repeat: int) -> Iterator[PlacedItem]:
    spec = placed.spec
    for number in range(1, repeat + 1):
        name = f"{spec.name}-{number}"
        yield PlacedItem(
            ItemSpec(name, spec.recipe, spec.prompt, spec.inputs, spec.priority, spec.metadata, spec.file_name),
            placed.file,
            placed.line,
            placed.objections,
        )


def file_name_for(frame: Frame, metadata: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Fill the item's metadata and variables into the pattern. Raises `NotAllowed` where one is missing."""
    texts: dict[str, str] = {}
    for name in frame.pattern_fields:
        source = metadata if name in metadata else variables
        if name not in source:
            known = {*filenames.BUILT_IN_FIELDS, *variables, *metadata} - {"col"}
            raise NotAllowed(
                f"`output.filename` names {{{name}}}, which this item has not", partial(suggestion, name, known)
            )
        try:
            texts[name] = text_of(source[name])
        except TypeError as error:
            raise NotAllowed(f"`output.filename` names {{{name}}}: {error}") from error
    file_name = filenames.prerender(frame.pattern, texts)
    if len(file_name) > filenames.MAX_PATTERN_LENGTH:
        raise NotAllowed(
            f"`output.filename` becomes {len(file_name):,} characters long with this item's values",
            f"at most {filenames.MAX_PATTERN_LENGTH:,}: let it name fewer fields",
        )
    return file_name
