"""Compiles an entry with templates: what all rows share is checked once, and each row fills in the rest."""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.catalog_checks import PlacedObjection, against_prompt
from batchkiln.core.job import ItemSpec, SourceRef
from batchkiln.core.located_items import LocatedItem, SimilarItems
from batchkiln.manifest.inline_items import (
    InvalidEntry,
    ManifestContext,
    check_repeat,
    file_name_for,
    located_objection,
    read_repeat,
    repeated,
)
from batchkiln.manifest.schema import MAX_ID_LENGTH, MAX_INPUTS, MAX_PROMPT_LENGTH, Parameters
from batchkiln.manifest.settings import (
    MAX_METADATA_SIZE_BYTES,
    RECIPE_FIELDS,
    Input,
    ResolvedSettings,
    canonical,
    describe,
)
from batchkiln.manifest.sources import Records, Row
from batchkiln.manifest.templates import Condition, Template, TemplateFailed, compile_condition, compile_template
from batchkiln.manifest.uniform_rows import UniformTemplate
from batchkiln.manifest.validation import checked_id, checked_prompt, suggestion
from batchkiln.yaml_reading.diagnostics import InvalidValue, Location, Remedy
from batchkiln.yaml_reading.yaml_parser import ScalarEvent
from batchkiln.yaml_reading.yaml_tree import MapNode, Node, RenderedScalar, SeqNode, plain_value, scalar_value

_MAX_CACHED: Final = 10_000
_MAX_CACHED_LENGTH: Final = 2_000  # characters of one row's settings; longer ones are rare and not worth the memory

Variables = Mapping[str, Any]


class _Field(Struct, frozen=True):
    """A template of the entry, and its node."""

    template: Template
    node: Node


class _InputField(Struct, frozen=True):
    """An input whose text is a template: a file's name, or with `ref` the id of an item and the name of its job."""

    name: _Field
    ref: SourceRef | None = None
    job: _Field | None = None

    @property
    def is_constant(self) -> bool:
        return self.name.template.is_constant and (self.job is None or self.job.template.is_constant)


class ItemTemplate:
    """A compiled entry. `columns` are the variables that every row has; None if each row has its own."""

    def __init__(
        self,
        context: ManifestContext,
        entry: MapNode,
        columns: list[str] | None,
        *,
        file: str,
        defaults: Mapping[str, str],
    ) -> None:
        """Compile an entry for rows of `file`. `defaults` has templates for prompt and id. Raise `InvalidEntry`."""
        self._context = context
        self._diagnostics = context.diagnostics
        self._file = file
        self._entry = entry
        self._columns = None if columns is None else frozenset(columns)
        self._is_valid = True
        self._uses_col = False
        self._prompt = self._field("prompt", defaults["prompt"])
        self._id = self._field("id", defaults["id"])
        self._condition, self._condition_node = self._where()
        self._inputs = self._input_fields()
        self._fixed_inputs = None if self._inputs or not self._is_valid else context.settings.inputs(entry)
        self._metadata = self._metadata_getters()
        # If all metadata are columns of every row, one call gets them: that saves a third of a row's time.
        is_listed = "metadata" in entry.pairs and isinstance(entry.pairs["metadata"][1], SeqNode)
        names = [name for name, _ in self._metadata] if self._columns is not None and is_listed else []
        self._columns_kept = tuple(names) if self._is_valid and len(names) > 1 else ()
        self._get_columns = operator.itemgetter(*self._columns_kept) if self._columns_kept else None
        self._has_columns_alone = is_listed or not self._metadata
        self._repeat = read_repeat(context, entry)
        self._settings_fields = list(self._find_settings_fields())
        self._cache: dict[tuple[str, ...], ResolvedSettings | None] = {}
        self._check_pattern()
        resolve = context.settings.resolve
        if not self._is_valid or (self._fixed_inputs is None and not self._inputs):
            if not self._settings_fields:  # to report the errors of settings as well
                settings = resolve(entry, context.settings.inputs_count(entry))
                context.unread.keep_objections(() if settings is None else settings.objections)
            raise InvalidEntry
        is_fixed = not self._settings_fields and not self._inputs
        self._fixed_settings = resolve(entry, len(self._fixed_inputs or ())) if is_fixed else None
        if is_fixed and self._fixed_settings is None:
            raise InvalidEntry
        self._uniform = self._uniform_template(columns)

    def matching(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows for which `where` holds, with all variables."""
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
                    self._report_row(failed, self._condition_node, variables, line)
                    continue
            yield row

    def items(self, rows: Iterable[Row]) -> Iterator[LocatedItem]:
        """Yield the items of the rows. Invalid rows are skipped and add diagnostics."""
        if self._is_plain:
            yield from self._plain_items(rows)
            return
        for line, _, variables in rows:
            yield from self._items_of(variables, line)

    def _items_of(self, variables: dict[str, Any], line: int) -> Iterator[LocatedItem]:
        try:
            spec, objections, settings = self._spec(variables, line)
        except InvalidEntry:
            self._keep_unread(variables, line)
            return
        except InvalidValue as error:
            self._diagnostics.add(Location(self._file, line), error.reason, error.remedy)
            self._keep_unread(variables, line)
            return
        item = LocatedItem(spec, self._file, line, objections)
        if self._repeat is None and settings.variants is None:
            yield item
        else:
            yield from repeated(self._context, item, self._repeat, settings)

    def _keep_unread(self, variables: dict[str, Any], line: int) -> None:
        """Remember the id of an invalid row, and the objections to its settings."""
        try:
            name = checked_id(self._id.template.render(variables))
        except (TemplateFailed, InvalidValue):
            name = None
        self._context.keep_unread(self._entry, name, Location(self._file, line))
        if self._fixed_settings is not None:
            self._context.unread.keep_objections(self._fixed_settings.objections)

    @property
    def _is_plain(self) -> bool:
        """Whether rows differ only in their id, their prompt and the columns of their metadata."""
        settings = self._fixed_settings
        return (
            settings is not None
            and settings.variants is None
            and self._repeat is None
            and self._get_columns is not None
            and not self._context.pattern_fields
        )

    @property
    def is_uniform(self) -> bool:
        """Whether all rows of a table can be made into items by columns, apart from rows with uncertain texts."""
        return self._uniform is not None

    def items_of_records(self, portions: Iterable[Records]) -> Iterator[LocatedItem | SimilarItems]:
        """Yield the items of the rows of a table, if the template `is_uniform`. See `items`."""
        settings, uniform = self._fixed_settings, self._uniform
        assert settings is not None
        assert uniform is not None
        series = object() if uniform.has_numbered_names else None
        for portion in portions:
            found = uniform.texts_of(portion)
            if found is None:
                rows = zip(portion.lines, portion.numbers, zip(*portion.columns, strict=True), strict=True)
                yield from self.items(
                    self.matching((line, number, dict(zip(uniform.columns, row))) for line, number, row in rows)  # noqa: B905  as long
                )
                continue
            names, prompts, metadata = found
            yield SimilarItems(
                file=self._file,
                lines=portion.lines,
                names=names,
                prompts=prompts,
                metadata=metadata,
                recipe=settings.recipe,
                inputs=self._fixed_inputs or (),
                priority=settings.priority,
                needs_review=settings.review,
                objections=settings.objections,
                series=series,
            )

    def _uniform_template(self, columns: list[str] | None) -> UniformTemplate | None:
        """Return the template by columns, if prompt and id are of texts and variables; else None."""
        prompt, name = self._prompt.template.parts, self._id.template.parts
        settings = self._fixed_settings
        if columns is None or prompt is None or name is None or settings is None or not self._has_columns_alone:
            return None
        is_alike = settings.variants is None and self._repeat is None and not self._context.pattern_fields
        if not is_alike or self._condition is not None or self._uses_col:
            return None
        limit = settings.prompt_limit
        longest = MAX_PROMPT_LENGTH if limit is None else min(limit // 4, MAX_PROMPT_LENGTH)
        defaults = self._context.settings.default_metadata
        kept = [name for name, _ in self._metadata]
        return UniformTemplate.of(columns[:-2], prompt, name, kept, defaults, longest=longest)

    def _plain_items(self, rows: Iterable[Row]) -> Iterator[LocatedItem]:
        """Yield the items of the rows in less time than `_items_of`, which handles all uncertain rows."""
        settings, get_columns = self._fixed_settings, self._get_columns
        assert settings is not None
        assert get_columns is not None
        file, columns, inputs = self._file, self._columns_kept, self._fixed_inputs or ()
        recipe, priority, review, objections = settings.recipe, settings.priority, settings.review, settings.objections
        render_prompt, render_id = self._prompt.template.render, self._id.template.render
        longest = MAX_PROMPT_LENGTH if settings.prompt_limit is None else settings.prompt_limit // 4
        longest = min(longest, MAX_PROMPT_LENGTH)
        defaults = self._context.settings.default_metadata
        for line, _, variables in rows:
            try:
                prompt, name = render_prompt(variables), render_id(variables)
                values = dict(zip(columns, get_columns(variables), strict=True))
                metadata = canonical({**defaults, **values} if defaults else values)
            except (TemplateFailed, TypeError, ValueError, LookupError):
                yield from self._items_of(variables, line)
                continue
            if (
                0 < len(prompt) <= longest
                and prompt.isprintable()
                and prompt[0] != " "
                and 0 < len(name) <= MAX_ID_LENGTH
                and name.isprintable()
                and name[0] != " "
                and name[-1] != " "
                and metadata is not None
                and len(metadata) <= MAX_METADATA_SIZE_BYTES
            ):
                spec = ItemSpec(name, recipe, prompt, inputs, priority, metadata, None, None, review)
                yield LocatedItem(spec, file, line, objections)
            else:
                yield from self._items_of(variables, line)

    def _spec(
        self, variables: dict[str, Any], line: int
    ) -> tuple[ItemSpec, tuple[PlacedObjection, ...], ResolvedSettings]:
        field = self._prompt
        try:
            prompt = field.template.render(variables)
            field = self._id
            name = field.template.render(variables)
        except TemplateFailed as failed:
            self._report_row(failed, field.node, variables, line)
            raise InvalidEntry from failed
        inputs = self._fixed_inputs if not self._inputs else self._row_inputs(variables, line)
        if inputs is None:
            raise InvalidEntry
        settings = self._fixed_settings or self._row_settings(variables, line, len(inputs))
        if settings is None:
            raise InvalidEntry
        if self._repeat is not None:
            check_repeat(self._context, self._entry, settings)
        text, file_name = self._metadata_and_name(variables, line)
        spec = ItemSpec(
            checked_id(name),
            settings.recipe,
            checked_prompt(prompt),
            inputs,
            settings.priority,
            text,
            file_name,
            needs_review=settings.review,
        )
        limit = settings.prompt_limit
        if limit is not None and len(prompt) * 4 > limit and (objection := against_prompt(prompt, limit)):
            entry = f" (the entry at {self._diagnostics.file}:{self._entry.start_mark.line + 1})"
            located = located_objection(objection, Location(self._file, line), addition=entry)
            return spec, (*settings.objections, located), settings
        return spec, settings.objections, settings

    # --- compiling ---------------------------------------------------------------------------

    def _field(self, name: str, default: str) -> _Field:
        pair = self._entry.pairs.get(name)
        if pair is None:
            return self._compiled(self._entry, default)
        return self._compiled(pair[1], self._string(pair[1], name))

    def _string(self, node: Node, field: str) -> str:
        if isinstance(node, ScalarEvent) and isinstance(scalar_value(node), str):
            return node.value
        reason = f"`{field}` must be text, and is {describe(node) or 'nothing'}"
        self._invalid(node, reason, "quote it to make it text")
        return ""

    def _invalid(self, node: Node, reason: str, remedy: Remedy = None) -> None:
        self._is_valid = False
        self._diagnostics.at(node.start_mark, reason, remedy)

    def _compiled(self, node: Node, text: str) -> _Field:
        try:
            template = compile_template(text)
        except TemplateFailed as failed:
            self._report(failed, node)
            return _Field(compile_template(""), node)
        self._require(template.names, node)
        self._uses_col = self._uses_col or ("col" in text and not template.is_constant)
        return _Field(template, node)

    def _require(self, names: Iterable[str], node: Node) -> None:
        """Report variables that no row has."""
        for name in sorted(names):
            if self._columns is not None and name not in self._columns:
                missing = "there is no column `prompt`" if node is self._entry else f"`{name}` is undefined"
                self._invalid(node, missing, partial(suggestion, name, self._columns - {"col"}))

    def _where(self) -> tuple[Condition | None, Node]:
        pair = self._entry.pairs.get("where")
        if pair is None:
            return None, self._entry
        text = self._string(pair[1], "where")
        try:
            condition = compile_condition(text)
        except TemplateFailed as failed:
            self._report(failed, pair[1])
            return None, pair[1]
        self._require(condition.names, pair[1])
        self._uses_col = self._uses_col or "col" in text
        return condition, pair[1]

    def _input_fields(self) -> list[_InputField]:
        """Compile the inputs; return nothing if none of them is a template, or if there are too many."""
        pair = self._entry.pairs.get("inputs")
        if pair is None or not isinstance(pair[1], SeqNode) or len(pair[1].items) > MAX_INPUTS:
            return []
        fields = [self._input_field(node, place) for place, node in enumerate(pair[1].items, 1)]
        return [] if all(field.is_constant for field in fields) else fields

    def _input_field(self, node: Node, place: int) -> _InputField:
        if not isinstance(node, MapNode):
            return _InputField(self._compiled(node, self._string(node, "inputs")))
        ref = self._context.settings.source_ref(node, place)
        if ref is None:
            self._is_valid = False
            return _InputField(self._compiled(node, ""))
        job = None if ref.job is None else self._compiled(node.pairs["job"][1], ref.job)
        return _InputField(self._compiled(node.pairs["item"][1], ref.item), ref, job)

    def _metadata_getters(self) -> list[tuple[str, Callable[[Variables, int], Any]]]:
        """Return the names of the metadata, each with a function that maps a row's variables and line to its value."""
        pair = self._entry.pairs.get("metadata")
        if pair is None or (isinstance(pair[1], ScalarEvent) and scalar_value(pair[1]) is None):
            return []
        node = pair[1]
        if isinstance(node, SeqNode):
            return [self._column_getter(item) for item in node.items]
        if not isinstance(node, MapNode):
            self._invalid(node, "`metadata` must be a list of columns, or a mapping of names to values")
        elif self._context.settings.metadata(node) is None:
            self._is_valid = False
        else:
            return [(name, self._value_getter(value)) for name, (_, value) in node.pairs.items()]
        return []

    def _column_getter(self, node: Node) -> tuple[str, Callable[[Variables, int], Any]]:
        name = self._string(node, "metadata")
        if name:
            self._require([name], node)
        elif self._is_valid:  # else it is no text, which is reported
            self._invalid(node, "a column without a name cannot be metadata", "give the column a name in the file")
        self._uses_col = self._uses_col or name == "col"

        def value(variables: Variables, line: int) -> Any:  # noqa: ANN401  a column's value
            try:
                return variables[name]
            except KeyError as error:
                self._report_row(TemplateFailed(f"`{name}` is undefined", missing=name), node, variables, line)
                raise InvalidEntry from error

        return name, value

    def _value_getter(self, node: Node) -> Callable[[Variables, int], Any]:
        constant = plain_value(node)
        if not isinstance(constant, str):
            return lambda _variables, _line: constant
        return partial(self._rendered, self._compiled(node, constant))

    def _find_settings_fields(self) -> Iterator[tuple[tuple[str, ...], _Field]]:
        """Yield the settings that are templates, with their paths in the entry."""
        for name in RECIPE_FIELDS:
            pair = self._entry.pairs.get(name)
            inner = pair[1] if pair is not None else None
            leaves: list[tuple[tuple[str, ...], Node | None]] = [((name,), inner)]
            if isinstance(inner, MapNode):
                known = Parameters.model_fields  # the validation refuses others
                leaves = [((name, key), value) for key, (_, value) in inner.pairs.items() if key in known]
            for path, node in leaves:
                if isinstance(node, ScalarEvent):
                    field = self._compiled(node, node.value)
                    if not field.template.is_constant:
                        yield path, field

    def _check_pattern(self) -> None:
        """Report fields of the file name that no row has."""
        if self._columns is None:
            return
        known = {*self._columns, *self._context.settings.default_metadata, *(name for name, _ in self._metadata)}
        for name in sorted(self._context.pattern_fields - known):
            reason = f"`output.filename` names {{{name}}}, which these items do not have"
            self._invalid(self._entry, reason, partial(suggestion, name, known - {"col"}))

    # --- a row -------------------------------------------------------------------------------

    def _rendered(self, field: _Field, variables: Variables, line: int) -> str:
        try:
            return field.template.render(variables)
        except TemplateFailed as failed:
            self._report_row(failed, field.node, variables, line)
            raise InvalidEntry from failed

    def _row_inputs(self, variables: Variables, line: int) -> tuple[Input, ...] | None:
        inputs = [
            self._row_input(field, place, variables=variables, line=line) for place, field in enumerate(self._inputs, 1)
        ]
        return None if None in inputs else tuple(each for each in inputs if each is not None)

    def _row_input(self, field: _InputField, place: int, *, variables: Variables, line: int) -> Input | None:
        name = self._rendered(field.name, variables, line)
        if field.ref is None:
            return self._context.settings.input(RenderedScalar(field.name.node.start_mark, name), place)
        job = None if field.job is None else self._rendered(field.job, variables, line)
        return dataclasses.replace(field.ref, item=checked_id(name), job=job)

    def _row_settings(self, variables: Variables, line: int, inputs_count: int) -> ResolvedSettings | None:
        texts = tuple(self._rendered(field, variables, line) for _, field in self._settings_fields)
        key = (*texts, str(inputs_count))
        resolve = self._context.settings.resolve
        if sum(map(len, texts)) > _MAX_CACHED_LENGTH:
            return resolve(self._filled(texts), inputs_count)
        if key not in self._cache:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            settings = resolve(self._filled(texts), inputs_count)
            self._cache[key] = settings and replace(settings, objections=self._with_row(settings.objections, line))
        return self._cache[key]

    def _with_row(self, objections: Iterable[PlacedObjection], line: int) -> tuple[PlacedObjection, ...]:
        """Add the row to objections, because the template's location is the same for all rows."""
        where = f" (first in {self._file}, line {line})" if self._file != self._diagnostics.file else ""
        return tuple(replace(each, remedy=f"{each.remedy}{where}") for each in objections)

    def _filled(self, texts: tuple[str, ...]) -> MapNode:
        """Return the entry with rendered settings in place of their templates."""
        entry = MapNode(self._entry.start_mark, dict(self._entry.pairs))
        for (path, field), text in zip(self._settings_fields, texts, strict=True):
            inside = entry
            for name in path[:-1]:
                key, value = inside.pairs[name]
                assert isinstance(value, MapNode)
                value = MapNode(value.start_mark, dict(value.pairs))
                inside.pairs[name] = key, value
                inside = value
            inside.pairs[path[-1]] = inside.pairs[path[-1]][0], RenderedScalar(field.node.start_mark, text)
        return entry

    def _metadata_and_name(self, variables: Variables, line: int) -> tuple[str | None, str | None]:
        if self._get_columns is not None:
            own = dict(zip(self._columns_kept, self._get_columns(variables), strict=True))
        else:
            own = {name: value(variables, line) for name, value in self._metadata}
        merged = self._context.settings.merged_metadata(own, self._entry.start_mark)
        if merged is None:
            raise InvalidEntry
        values, text = merged
        return text, file_name_for(self._context, values, variables) if self._context.pattern_fields else None

    def _report_row(self, failed: TemplateFailed, node: Node, variables: Variables, line: int) -> None:
        """Report a template that fails for a row, at the template's location. The message names the first such row."""
        where = f"first in {self._file}, line {line}"
        missing = failed.missing

        def remedy() -> str:
            return f"{suggestion(missing, set(variables) - {'col'})} ({where})" if missing else where

        self._report(failed, node, remedy)

    def _report(self, failed: TemplateFailed, node: Node, remedy: Remedy = None) -> None:
        self._is_valid = False
        mark = node.start_mark
        is_block = isinstance(node, ScalarEvent) and node.style in {"|", ">"}
        line = mark.line + 1 + failed.line if is_block else mark.line + 1
        location = Location(self._diagnostics.file, line, None if is_block else mark.column + 1)
        self._diagnostics.add(location, failed.reason, remedy)
