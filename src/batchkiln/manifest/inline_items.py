"""An entry of `items` that is written out, to its items; and what such entries share with templated ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from batchkiln.core import filenames
from batchkiln.core.catalogue import Objection, PlacedObjection, against_prompt
from batchkiln.core.job import ItemSpec
from batchkiln.manifest.diagnostics import Diagnostics, Location
from batchkiln.manifest.prompts import InvalidValue, checked_id, checked_prompt
from batchkiln.manifest.schema import MAX_REPEAT, InlineItem
from batchkiln.manifest.settings import SettingsReader, describe
from batchkiln.manifest.templates import text_of
from batchkiln.manifest.validation import check_names, suggestion
from batchkiln.manifest.yaml_parser import ScalarEvent
from batchkiln.manifest.yaml_tree import MapNode, Node, SeqNode, scalar_value

_INLINE_FIELDS: Final = frozenset(InlineItem.model_fields)
_ALONE: Final = frozenset({"id", "prompt"})
MAX_COMBINATIONS: Final = 10_000_000


@dataclass(slots=True)
class Allowance:
    """What is left, for a whole manifest, of work that a few words of it can ask for."""

    combinations: int = MAX_COMBINATIONS


@dataclass(slots=True)
class LocatedItem:
    """An item and where it stands: `line` (from 1) of the manifest, or of the source file of its row.

    `objections` are what the service's catalogue says against it.
    """

    spec: ItemSpec
    file: str
    line: int
    objections: tuple[PlacedObjection, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestContext:
    """What all entries of a manifest share. `stem` begins the ids of items without one."""

    diagnostics: Diagnostics
    settings: SettingsReader
    pattern: str
    pattern_fields: frozenset[str]  # those that are not built in
    stem: str
    folder: Path
    shown_folder: str
    allowance: Allowance = field(default_factory=Allowance)


class InvalidEntry(Exception):
    """No item can be made of an entry or row; the reason is in the diagnostics."""


def inline_items(context: ManifestContext, node: Node, position: int) -> Iterable[LocatedItem]:
    """Give the items of an entry that is written out; `position` counts from 1. Mistakes go to the diagnostics."""
    try:
        return _inline(context, node, position)
    except InvalidEntry:
        return ()


def _inline(context: ManifestContext, node: Node, position: int) -> Iterable[LocatedItem]:
    if isinstance(node, SeqNode):
        context.diagnostics.at(
            node.start_mark, "an item is a text or a mapping, not a list", "as in `- prompt: A red fox`"
        )
        raise InvalidEntry
    entry = node if isinstance(node, MapNode) else MapNode(node.start_mark, {})
    pairs = entry.pairs
    if not pairs.keys() <= _INLINE_FIELDS:
        check_names(entry, [*InlineItem.model_fields, "from", "matrix"], context.diagnostics)
    prompt_node = node if not isinstance(node, MapNode) else pairs["prompt"][1] if "prompt" in pairs else None
    if prompt_node is None:
        context.diagnostics.at(entry.start_mark, "`prompt` is missing", "an item says what is to be made: `prompt: …`")
    prompt = None if prompt_node is None else _text(context, prompt_node, "prompt")
    name = _text(context, pairs["id"][1], "id") if "id" in pairs else _default_id(context, entry, position)
    inputs = context.settings.inputs(entry)
    settled = context.settings.settled(entry, context.settings.inputs_count(entry) if inputs is None else len(inputs))
    metadata = context.settings.metadata(pairs["metadata"][1] if "metadata" in pairs else None)
    repeat = read_repeat(context, entry)
    if prompt is None or name is None or inputs is None or settled is None or metadata is None:
        raise InvalidEntry
    line = entry.start_mark.line + 1
    values, text = metadata
    try:
        file_name = file_name_for(context, values, {}) if context.pattern_fields else None
    except InvalidValue as error:
        context.diagnostics.at(entry.start_mark, error.reason, error.remedy)
        raise InvalidEntry from error
    spec = ItemSpec(name, settled.recipe, prompt, inputs, settled.priority, text, file_name)
    objections = settled.objections
    mark = (prompt_node or node).start_mark
    place = Location(context.diagnostics.file, mark.line + 1, mark.column + 1)
    if settled.prompt_limit is not None and (found := against_prompt(prompt, settled.prompt_limit)):
        objections = (*objections, placed_objection(found, place))
    return repeated(context, spec, repeat, Location(context.diagnostics.file, line), objections)


def _default_id(context: ManifestContext, entry: MapNode, position: int) -> str | None:
    """Give the manifest's name and the position; a file may have a name that no id can have."""
    try:
        return checked_id(f"{context.stem}-{position}")
    except InvalidValue as error:
        context.diagnostics.at(
            entry.start_mark, f"by the manifest's own name, {error.reason}", "set `id`, or rename it"
        )
        return None


def _text(context: ManifestContext, node: Node, field: str) -> str | None:
    """Check the text of a prompt or an id."""
    if not isinstance(node, ScalarEvent) or (node.implicit[0] and not isinstance(scalar_value(node), str)):
        found = describe(node) or "nothing"
        remedy = "quote it to make it text" if isinstance(node, ScalarEvent) else None
        context.diagnostics.at(node.start_mark, f"`{field}` must be text, and is {found}", remedy)
        return None
    try:
        return checked_prompt(node.value) if field == "prompt" else checked_id(node.value)
    except InvalidValue as error:
        context.diagnostics.at(node.start_mark, error.reason, error.remedy)
        return None


def read_repeat(context: ManifestContext, entry: MapNode) -> int | None:
    """Give how many items of each are wanted, where that is said."""
    pair = entry.pairs.get("repeat")
    if pair is None:
        return None
    node = pair[1]
    value = scalar_value(node) if isinstance(node, ScalarEvent) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REPEAT:
        reason = f"`repeat` must be a whole number, and is {describe(node) or 'nothing'}"
        context.diagnostics.at(node.start_mark, reason, f"1 to {MAX_REPEAT:,}")
        raise InvalidEntry
    return value


def placed_objection(objection: Objection, place: Location, *, where: str = "") -> PlacedObjection:
    """Give an objection with its place; `where` is said after the remedy."""
    remedy = f"{objection.remedy}{where}"
    return PlacedObjection(
        place.file, place.line or 0, place.column, objection.reason, remedy, is_clear=objection.is_clear
    )


def repeated(
    context: ManifestContext,
    spec: ItemSpec,
    repeat: int | None,
    place: Location,
    objections: tuple[PlacedObjection, ...] = (),
) -> Iterable[LocatedItem]:
    """Give the item itself, or as many as `repeat` says."""
    line = place.line or 0
    if repeat is None:
        return (LocatedItem(spec, place.file, line, objections),)
    try:
        checked_id(f"{spec.name}-{repeat}")
    except InvalidValue as error:
        context.diagnostics.add(place, error.reason, error.remedy)
        return ()
    return _repetitions(LocatedItem(spec, place.file, line, objections), repeat)


def _repetitions(placed: LocatedItem, repeat: int) -> Iterator[LocatedItem]:
    spec = placed.spec
    for number in range(1, repeat + 1):
        name = f"{spec.name}-{number}"
        yield LocatedItem(
            ItemSpec(name, spec.recipe, spec.prompt, spec.inputs, spec.priority, spec.metadata, spec.file_name),
            placed.file,
            placed.line,
            placed.objections,
        )


def file_name_for(context: ManifestContext, metadata: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Fill the item's metadata and variables into the pattern. Raises `InvalidValue` where one is missing."""
    texts: dict[str, str] = {}
    for name in context.pattern_fields:
        source = metadata if name in metadata else variables
        if name not in source:
            known = {*filenames.BUILT_IN_FIELDS, *variables, *metadata} - {"col"}
            raise InvalidValue(
                f"`output.filename` names {{{name}}}, which this item has not", partial(suggestion, name, known)
            )
        try:
            texts[name] = text_of(source[name])
        except TypeError as error:
            raise InvalidValue(f"`output.filename` names {{{name}}}: {error}") from error
    file_name = filenames.prerender(context.pattern, texts)
    if len(file_name) > filenames.MAX_PATTERN_LENGTH:
        raise InvalidValue(
            f"`output.filename` becomes {len(file_name):,} characters long with this item's values",
            f"at most {filenames.MAX_PATTERN_LENGTH:,}: let it name fewer fields",
        )
    return file_name
