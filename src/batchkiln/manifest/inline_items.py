"""Reads the items that are written in the manifest; items made from rows share its checks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from batchkiln.core import filenames
from batchkiln.core.catalog_checks import Objection, PlacedObjection, against_prompt
from batchkiln.core.errors import Diagnostic
from batchkiln.core.job import ItemSpec, VariantGroup
from batchkiln.core.located_items import LocatedItem
from batchkiln.core.unread_items import UnreadItems
from batchkiln.manifest.content_hashes import ReadSources
from batchkiln.manifest.file_access import FileAccess
from batchkiln.manifest.remote_sources import RemoteSources
from batchkiln.manifest.schema import MAX_REPEAT, InlineItem
from batchkiln.manifest.settings import ResolvedSettings, SettingsReader, describe
from batchkiln.manifest.templates import text_of
from batchkiln.manifest.validation import check_names, checked_id, checked_prompt, suggestion
from batchkiln.yaml_reading.diagnostics import Diagnostics, InvalidValue, Location, Mark, Remedy, quoted
from batchkiln.yaml_reading.yaml_parser import ScalarEvent
from batchkiln.yaml_reading.yaml_tree import MapNode, Node, SeqNode, scalar_value

MAX_COMBINATIONS: Final = 10_000_000
DEFAULT_ID: Final = "item"
"""The beginning of the id of an item that names none. It holds no file name: a renamed manifest makes nothing again."""

_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_INLINE_FIELDS: Final = frozenset(InlineItem.model_fields)


class InvalidEntry(Exception):
    """Raised for an invalid entry or row. Its diagnostic has been added already."""


class ManifestContext(Struct):
    """The state that all entries of a manifest share.

    `pattern_fields` are the fields of the file name `pattern` that are not built in. Source files are relative to
    `folder`, which the person wrote as `shown_folder`; those at URLs are in `remote`. `combinations_left` limits the
    matrices of the whole manifest together, because a few words can ask for many combinations. `warnings` name the
    entries without rows. `unread` is what is known of invalid items, and `read_sources` the sources that were read.
    """

    diagnostics: Diagnostics
    settings: SettingsReader
    pattern: str
    pattern_fields: frozenset[str]
    folder: Path
    shown_folder: str
    remote: RemoteSources
    warnings: list[Diagnostic]
    unread: UnreadItems
    read_sources: ReadSources
    access: FileAccess | None = None
    combinations_left: int = MAX_COMBINATIONS

    def keep_unread(self, entry: MapNode, name: str | None, location: Location) -> None:
        """Remember the id of an invalid item, for other mistakes about it. `name` is None if it is not known."""
        if name is None or self.settings.makes_several(entry):
            self.unread.has_unnamed = True
        elif (earlier := self.unread.names.get(name)) is not None:
            reason = f"the id {name!r} is already used at {earlier[0]}:{earlier[1]}"
            self.diagnostics.add(location, reason, "use a different id for each item of a job")
        else:
            self.unread.keep_name(name, location.file, location.line or 0)

    def invalid(self, mark: Mark, reason: str, remedy: Remedy = None) -> InvalidEntry:
        """Add a diagnostic, and return the exception to raise."""
        self.diagnostics.at(mark, reason, remedy)
        return InvalidEntry()


def inline_items(context: ManifestContext, node: Node, position: int) -> Iterable[LocatedItem]:
    """Return the items of an entry, or no items if it is invalid. `position` counts from 1."""
    try:
        return _inline(context, node, position)
    except InvalidEntry:
        entry = node if isinstance(node, MapNode) else MapNode(node.start_mark, {})
        mark = entry.start_mark
        location = Location(context.diagnostics.file, mark.line + 1, mark.column + 1)
        context.keep_unread(entry, _name_of(entry, position), location)
        return ()


def _name_of(entry: MapNode, position: int) -> str | None:
    """Return the id of an entry without looking for mistakes; None if it is not valid."""
    if "id" not in entry.pairs:
        return f"{DEFAULT_ID}-{position}"
    node = entry.pairs["id"][1]
    value = scalar_value(node) if isinstance(node, ScalarEvent) else None
    try:
        return checked_id(value) if isinstance(value, str) else None
    except InvalidValue:
        return None


def _inline(context: ManifestContext, node: Node, position: int) -> Iterable[LocatedItem]:
    if isinstance(node, SeqNode):
        raise context.invalid(
            node.start_mark, "an item is a text or a mapping, not a list", "as in `- prompt: A red fox`"
        )
    entry = node if isinstance(node, MapNode) else MapNode(node.start_mark, {})
    pairs = entry.pairs
    if not pairs.keys() <= _INLINE_FIELDS:
        check_names(entry, [*InlineItem.model_fields, "from", "matrix"], context.diagnostics)
    prompt_node = node if not isinstance(node, MapNode) else pairs["prompt"][1] if "prompt" in pairs else None
    if prompt_node is None:
        context.diagnostics.at(entry.start_mark, "`prompt` is missing", "describe what to make: `prompt: …`")
    prompt = None if prompt_node is None else _text(context, prompt_node, "prompt")
    name = _text(context, pairs["id"][1], "id") if "id" in pairs else f"{DEFAULT_ID}-{position}"
    inputs = context.settings.inputs(entry)
    settings = context.settings.resolve(entry, context.settings.inputs_count(entry) if inputs is None else len(inputs))
    metadata = context.settings.metadata(pairs["metadata"][1] if "metadata" in pairs else None)
    repeat = read_repeat(context, entry)
    if repeat is not None and settings is not None:
        check_repeat(context, entry, settings)
    if prompt is None or name is None or inputs is None or settings is None or metadata is None:
        context.unread.keep_objections(() if settings is None else settings.objections)
        raise InvalidEntry
    values, text = metadata
    try:
        file_name = file_name_for(context, values, {}) if context.pattern_fields else None
    except InvalidValue as error:
        raise context.invalid(entry.start_mark, error.reason, error.remedy) from error
    spec = ItemSpec(
        name, settings.recipe, prompt, inputs, settings.priority, text, file_name, needs_review=settings.review
    )
    objections = settings.objections
    if settings.prompt_limit is not None and (objection := against_prompt(prompt, settings.prompt_limit)):
        mark = (prompt_node or node).start_mark
        location = Location(context.diagnostics.file, mark.line + 1, mark.column + 1)
        objections = (*objections, located_objection(objection, location))
    location = Location(context.diagnostics.file, entry.start_mark.line + 1)
    item = LocatedItem(spec, location.file, location.line or 0, objections, has_default_id="id" not in pairs)
    return repeated(context, item, repeat, settings)


def _text(context: ManifestContext, node: Node, field: str) -> str | None:
    """Return a valid prompt or id; None after adding a diagnostic."""
    if not isinstance(node, ScalarEvent) or (node.implicit[0] and not isinstance(scalar_value(node), str)):
        found = describe(node) or "nothing"
        remedy = "quote it to make it text" if isinstance(node, ScalarEvent) else None
        remedy = f"write the {field} behind the colon" if found == "nothing" else remedy
        reason = f"`{field}` must be text, and is {found}"
        context.diagnostics.at(node.start_mark, reason, remedy)
        return None
    if "{" in node.value and context.diagnostics.program is None and (template := _TEMPLATE.search(node.value)):
        # Sent as it stands, it would be paid for: it is nearly always an entry that lost its `matrix` or `from`.
        reason = f"`{field}` has the template {quoted(template[0])}, and this item has no variables"
        remedy = "add `matrix` or `from`; an entry with one of them writes two braces as `{{ '{{' }}`"
        context.diagnostics.at(node.start_mark, reason, remedy)
        return None
    try:
        return checked_prompt(node.value) if field == "prompt" else checked_id(node.value)
    except InvalidValue as error:
        context.diagnostics.at(node.start_mark, error.reason, error.remedy)
        return None


def read_repeat(context: ManifestContext, entry: MapNode) -> int | None:
    """Return the value of `repeat`, if the entry has it. Raise `InvalidEntry`."""
    pair = entry.pairs.get("repeat")
    if pair is None:
        return None
    node = pair[1]
    value = scalar_value(node) if isinstance(node, ScalarEvent) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REPEAT:
        reason = f"`repeat` must be a whole number, and is {describe(node) or 'nothing'}"
        raise context.invalid(node.start_mark, reason, f"1 to {MAX_REPEAT:,}")
    return value


def check_repeat(context: ManifestContext, entry: MapNode, settings: ResolvedSettings) -> None:
    """Raise `InvalidEntry` if an entry with `repeat` makes variants."""
    if settings.variants is not None:
        mark = entry.pairs["repeat"][0].start_mark
        remedy = "`variants` makes a group to choose from; for single items set `variants: null` here"
        raise context.invalid(mark, "an entry has `repeat` or `variants`, not both", remedy)


def located_objection(objection: Objection, location: Location, *, addition: str = "") -> PlacedObjection:
    """Return an objection with its location; `addition` follows the remedy."""
    remedy = f"{objection.remedy}{addition}"
    return PlacedObjection(
        location.file, location.line or 0, location.column, objection.reason, remedy, is_clear=objection.is_clear
    )


def repeated(
    context: ManifestContext, item: LocatedItem, repeat: int | None, settings: ResolvedSettings
) -> Iterable[LocatedItem]:
    """Return the item; with `repeat` or variants, that number of items with numbered ids. Variants form one group."""
    count = settings.variants if repeat is None else repeat
    if count is None:
        return (item,)
    group = None if settings.variants is None else VariantGroup(item.spec.name, settings.choose)
    try:
        checked_id(f"{item.spec.name}-{count}")
    except InvalidValue as error:
        context.diagnostics.add(Location(item.file, item.line), error.reason, error.remedy)
        return ()
    return _repetitions(item, count, group)


def _repetitions(item: LocatedItem, count: int, group: VariantGroup | None) -> Iterator[LocatedItem]:
    spec = item.spec
    for number in range(1, count + 1):
        numbered = ItemSpec(
            f"{spec.name}-{number}",
            spec.recipe,
            spec.prompt,
            spec.inputs,
            spec.priority,
            spec.metadata,
            spec.file_name,
            group,
            spec.needs_review,
        )
        yield LocatedItem(numbered, item.file, item.line, item.objections, number, item.has_default_id)


def file_name_for(context: ManifestContext, metadata: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Return the file name pattern with an item's metadata and variables filled in. Raise `InvalidValue`."""
    texts: dict[str, str] = {}
    for name in context.pattern_fields:
        source = metadata if name in metadata else variables
        if name not in source:
            known = {*filenames.BUILT_IN_FIELDS, *variables, *metadata} - {"col"}
            raise InvalidValue(
                f"`output.filename` names {{{name}}}, which this item does not have", partial(suggestion, name, known)
            )
        try:
            texts[name] = text_of(source[name])
        except TypeError as error:
            raise InvalidValue(f"`output.filename` names {{{name}}}: {error}") from error
    file_name = filenames.prerender(context.pattern, texts)
    if len(file_name) > filenames.MAX_PATTERN_LENGTH:
        raise InvalidValue(
            f"`output.filename` becomes {len(file_name):,} characters long with this item's values",
            f"at most {filenames.MAX_PATTERN_LENGTH:,}: use fewer fields in it",
        )
    return file_name
