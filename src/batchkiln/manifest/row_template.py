"""An entry with templates, compiled: what is the same for all rows is checked once, the rest filled in quickly."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from batchkiln.core.catalogue import PlacedObjection, against_prompt
from batchkiln.core.job import InputFile, ItemSpec
from batchkiln.manifest.diagnostics import Place, Remedy
from batchkiln.manifest.inline_items import (
    Frame,
    NotMade,
    PlacedItem,
    file_name_for,
    placed_objection,
    read_repeat,
    repeated,
)
from batchkiln.manifest.prompts import NotAllowed, checked_id, checked_prompt
from batchkiln.manifest.schema import MAX_INPUTS, Parameters
from batchkiln.manifest.settings import RECIPE_FIELDS, Settled, describe
from batchkiln.manifest.sources import Row
from batchkiln.manifest.templates import Condition, Template, TemplateFailed, compile_condition, compile_template
from batchkiln.manifest.validation import suggestion
from batchkiln.manifest.yaml_events import ScalarEvent
from batchkiln.manifest.yaml_tree import MapNode, Node, Rendered, SeqNode, plain_value, scalar_value

_KEPT_SETTINGS: Final = 10_000
_KEPT_LENGTH: Final = 2_000  # of the texts that make a setting; longer ones are no setting, and not worth keeping

Variables = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A template of the entry, and where it stands."""

    template: Template
    node: Node


class ItemTemplate:
    """An entry in compiled form. `columns` are the known variables, None where each row has its own."""

    def __init__(
        self, frame: Frame, entry: MapNode, columns: list[str] | None, *, file: str, defaults: Mapping[str, str]
    ) -> None:
        self._frame = frame
        self._findings = frame.findings
        self._file = file
        self._entry = entry
        self._columns = None if columns is None else frozenset(columns)
        self._is_sound = True
        self._uses_col = False
        self._prompt = self._slot("prompt", defaults["prompt"])
        self._id = self._slot("id", defaults["id"])
        self._condition, self._condition_node = self._where()
        self._inputs = self._input_slots()
        self._files = None if self._inputs else frame.settings.inputs(entry)
        self._metadata = self._metadata_makers()
        # Columns that every row has need no asking one by one: a third of a row's time.
        columns_wanted = self._wanted_columns()
        self._quick_names = columns_wanted
        self._quick_metadata = operator.itemgetter(*columns_wanted) if len(columns_wanted) > 1 else None
        self._repeat = read_repeat(frame, entry)
        self._slots = list(self._setting_slots())
        self._settings: dict[tuple[str, ...], Settled | None] = {}
        self._check_pattern()
        if not self._is_sound or (self._files is None and not self._inputs):
            if not self._slots:
                self._settle(entry, frame.settings.inputs_count(entry))  # for what is wrong there as well
            raise NotMade
        self._settled = None if self._slots or self._inputs else self._settle(entry, len(self._files or ()))
        if self._settled is None and not self._slots and not self._inputs:
            raise NotMade

    def chosen(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Complete the variables of each row, and leave out those for which `where` does not hold."""
        condition, uses_col = self._condition, self._uses_col
        for row in rows:
            line, number, variables = row
            if uses_col:
                variables["col"] = dict(variables)
            variables["row"] = number
            if condition is not None:
                try:
                    if not condition.holds(variables):
                        continue
                except TemplateFailed as failed:
                    self._row_failed(failed, self._condition_node, variables, line)
                    continue
            yield row

    def items(self, rows: Iterable[Row]) -> Iterator[PlacedItem]:
        """Make the items of the rows."""
        file, repeat = self._file, self._repeat
        for line, _, variables in rows:
            try:
                spec, objections = self._spec(variables, line)
            except NotMade:
                continue
            except NotAllowed as error:
                self._findings.add(Place(file, line), error.reason, error.remedy)
                continue
            if repeat is None:
                yield PlacedItem(spec, file, line, objections)
            else:
                yield from repeated(self._frame, spec, repeat, Place(file, line), objections)

    def _spec(self, variables: dict[str, Any], line: int) -> tuple[ItemSpec, tuple[PlacedObjection, ...]]:
        slot = self._prompt
        try:
            prompt = slot.template.render(variables)
            slot = self._id
            name = slot.template.render(variables)
        except TemplateFailed as failed:
            self._row_failed(failed, slot.node, variables, line)
            raise NotMade from failed
        files = self._files if not self._inputs else self._input_files(variables, line)
        if files is None:
            raise NotMade
        settled = self._settled or self._row_settings(variables, line, len(files))
        if settled is None:
            raise NotMade
        text, file_name = self._metadata_and_name(variables, line)
        spec = ItemSpec(
            checked_id(name), settled.recipe, checked_prompt(prompt), files, settled.priority, text, file_name
        )
        limit = settled.prompt_limit
        if limit is not None and len(prompt) * 4 > limit and (found := against_prompt(prompt, limit)):
            entry = f" (the entry at {self._findings.file}:{self._entry.start_mark.line + 1})"
            return spec, (*settled.objections, placed_objection(found, Place(self._file, line), where=entry))
        return spec, settled.objections

    # --- compiling ---------------------------------------------------------------------------

    def _slot(self, field: str, default: str) -> _Slot:
        pair = self._entry.pairs.get(field)
        if pair is None:
            return self._compiled(self._entry, default)
        return self._compiled(pair[1], self._string(pair[1], field))

    def _string(self, node: Node, field: str) -> str:
        if isinstance(node, ScalarEvent) and isinstance(scalar_value(node), str):
            return node.value
        self._is_sound = False
        self._findings.at(
            node.start_mark, f"`{field}` must be text, and is {describe(node) or 'nothing'}", "quote it to make it text"
        )
        return ""

    def _compiled(self, node: Node, text: str) -> _Slot:
        try:
            template = compile_template(text)
        except TemplateFailed as failed:
            self._template_failed(failed, node)
            return _Slot(compile_template(""), node)
        self._need(template.names, node)
        self._uses_col = self._uses_col or ("col" in text and not template.is_constant)
        return _Slot(template, node)

    def _need(self, names: Iterable[str], node: Node) -> None:
        """Report the variables that no row will have."""
        for name in sorted(names):
            if self._columns is not None and name not in self._columns:
                self._is_sound = False
                missing = "there is no column `prompt`" if node is self._entry else f"`{name}` is undefined"
                self._findings.at(node.start_mark, missing, partial(suggestion, name, self._columns - {"col"}))

    def _where(self) -> tuple[Condition | None, Node]:
        pair = self._entry.pairs.get("where")
        if pair is None:
            return None, self._entry
        text = self._string(pair[1], "where")
        try:
            condition = compile_condition(text)
        except TemplateFailed as failed:
            self._template_failed(failed, pair[1])
            return None, pair[1]
        self._need(condition.names, pair[1])
        self._uses_col = self._uses_col or "col" in text
        return condition, pair[1]

    def _input_slots(self) -> list[_Slot]:
        """Compile the names of inputs; empty where none of them is a template."""
        pair = self._entry.pairs.get("inputs")
        if pair is None or not isinstance(pair[1], SeqNode) or len(pair[1].items) > MAX_INPUTS:
            return []  # too many are refused before they are looked at
        slots = [self._compiled(node, self._string(node, "inputs")) for node in pair[1].items]
        return [] if all(slot.template.is_constant for slot in slots) else slots

    def _metadata_makers(self) -> list[tuple[str, Callable[[Variables, int], Any]]]:
        pair = self._entry.pairs.get("metadata")
        if pair is None or (isinstance(pair[1], ScalarEvent) and scalar_value(pair[1]) is None):
            return []
        node = pair[1]
        if isinstance(node, SeqNode):
            return [self._column_maker(item) for item in node.items]
        if isinstance(node, MapNode):
            if self._frame.settings.metadata(node) is None:
                self._is_sound = False
                return []
            return [(name, self._value_maker(value)) for name, (_, value) in node.pairs.items()]
        self._is_sound = False
        self._findings.at(node.start_mark, "`metadata` must be a list of columns, or a mapping of names to values")
        return []

    def _wanted_columns(self) -> tuple[str, ...]:
        """Give the columns that `metadata` lists, where every row has them."""
        pair = self._entry.pairs.get("metadata")
        if self._columns is None or not self._is_sound or pair is None or not isinstance(pair[1], SeqNode):
            return ()
        return tuple(name for name, _ in self._metadata)

    def _column_maker(self, node: Node) -> tuple[str, Callable[[Variables, int], Any]]:
        name = self._string(node, "metadata")
        self._need([name] if name else [], node)
        self._uses_col = self._uses_col or name == "col"

        def value(variables: Variables, line: int) -> Any:  # noqa: ANN401  a column's value
            try:
                return variables[name]
            except KeyError as error:
                self._row_failed(TemplateFailed(f"`{name}` is undefined", missing=name), node, variables, line)
                raise NotMade from error

        return name, value

    def _value_maker(self, node: Node) -> Callable[[Variables, int], Any]:
        constant = plain_value(node)
        if not isinstance(constant, str):
            return lambda _variables, _line: constant
        slot = self._compiled(node, constant)
        return lambda variables, line: self._rendered(slot, variables, line)

    def _setting_slots(self) -> Iterator[tuple[tuple[str, ...], _Slot]]:
        """Give the settings that are templates, by their path in the entry."""
        for name in RECIPE_FIELDS:
            pair = self._entry.pairs.get(name)
            inner = pair[1] if pair is not None else None
            leaves: list[tuple[tuple[str, ...], Node | None]] = [((name,), inner)]
            if isinstance(inner, MapNode):
                known = Parameters.model_fields  # others are refused before they are looked at
                leaves = [((name, key), value) for key, (_, value) in inner.pairs.items() if key in known]
            for path, node in leaves:
                if isinstance(node, ScalarEvent):
                    slot = self._compiled(node, node.value)
                    if not slot.template.is_constant:
                        yield path, slot

    def _check_pattern(self) -> None:
        """Report a field of the file name that no row will have."""
        if self._columns is None:
            return
        known = {*self._columns, *self._frame.settings.default_metadata, *(name for name, _ in self._metadata)}
        for name in sorted(self._frame.pattern_fields - known):
            self._is_sound = False
            reason = f"`output.filename` names {{{name}}}, which these items have not"
            self._findings.at(self._entry.start_mark, reason, partial(suggestion, name, known - {"col"}))

    # --- a row -------------------------------------------------------------------------------

    def _rendered(self, slot: _Slot, variables: Variables, line: int) -> str:
        try:
            return slot.template.render(variables)
        except TemplateFailed as failed:
            self._row_failed(failed, slot.node, variables, line)
            raise NotMade from failed

    def _input_files(self, variables: Variables, line: int) -> tuple[InputFile, ...] | None:
        names: list[Node] = [
            Rendered(slot.node.start_mark, self._rendered(slot, variables, line)) for slot in self._inputs
        ]
        return self._frame.settings.input_files(SeqNode(self._entry.start_mark, names))

    def _row_settings(self, variables: Variables, line: int, inputs_count: int) -> Settled | None:
        texts = tuple(self._rendered(slot, variables, line) for _, slot in self._slots)
        key = (*texts, str(inputs_count))
        if sum(map(len, texts)) > _KEPT_LENGTH:
            return self._settle(self._filled(texts), inputs_count)
        if key not in self._settings:
            if len(self._settings) >= _KEPT_SETTINGS:
                self._settings.clear()
            settled = self._settle(self._filled(texts), inputs_count)
            self._settings[key] = settled and replace(settled, objections=self._with_row(settled.objections, line))
        return self._settings[key]

    def _with_row(self, objections: Iterable[PlacedObjection], line: int) -> tuple[PlacedObjection, ...]:
        """Name the row as well: the template's place is the same for all of them."""
        where = f" (first in {self._file}, line {line})" if self._file != self._findings.file else ""
        return tuple(replace(each, remedy=f"{each.remedy}{where}") for each in objections)

    def _filled(self, texts: tuple[str, ...]) -> MapNode:
        """Give the entry with its rendered settings in place of the templates."""
        entry = MapNode(self._entry.start_mark, dict(self._entry.pairs))
        for (path, slot), text in zip(self._slots, texts, strict=True):
            inside = entry
            for name in path[:-1]:
                key, value = inside.pairs[name]
                assert isinstance(value, MapNode)
                value = MapNode(value.start_mark, dict(value.pairs))
                inside.pairs[name] = key, value
                inside = value
            inside.pairs[path[-1]] = inside.pairs[path[-1]][0], Rendered(slot.node.start_mark, text)
        return entry

    def _settle(self, entry: MapNode, inputs_count: int) -> Settled | None:
        return self._frame.settings.settled(entry, inputs_count)

    def _metadata_and_name(self, variables: Variables, line: int) -> tuple[str | None, str | None]:
        if self._quick_metadata is not None:
            own = dict(zip(self._quick_names, self._quick_metadata(variables), strict=True))
        else:
            own = {name: value(variables, line) for name, value in self._metadata}
        merged = self._frame.settings.merged_metadata(own, self._entry.start_mark)
        if merged is None:
            raise NotMade
        values, text = merged
        return text, file_name_for(self._frame, values, variables) if self._frame.pattern_fields else None

    def _row_failed(self, failed: TemplateFailed, node: Node, variables: Variables, line: int) -> None:
        """Report a template that fails for a row: at the template, with the first row it failed for."""
        where = f"first in {self._file}, line {line}"
        missing = failed.missing

        def remedy() -> str:
            return f"{suggestion(missing, set(variables) - {'col'})} ({where})" if missing else where

        self._template_failed(failed, node, remedy)

    def _template_failed(self, failed: TemplateFailed, node: Node, remedy: Remedy = None) -> None:
        self._is_sound = False
        mark = node.start_mark
        is_block = isinstance(node, ScalarEvent) and node.style in {"|", ">"}
        line = mark.line + 1 + failed.line if is_block else mark.line + 1
        self._findings.add(
            Place(self._findings.file, line, None if is_block else mark.column + 1), failed.reason, remedy
        )
