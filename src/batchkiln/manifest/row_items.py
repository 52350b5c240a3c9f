"""The items of `from` and `matrix` entries: which rows there are, and which of them are taken."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from batchkiln.manifest.diagnostics import Location, Mark
from batchkiln.manifest.inline_items import MAX_COMBINATIONS, InvalidEntry, LocatedItem, ManifestContext
from batchkiln.manifest.row_template import ItemTemplate
from batchkiln.manifest.schema import Fields, MatrixFields, MatrixItem, SourceFields, SourceItem
from batchkiln.manifest.sources import KINDS, Rows, Source, SourceUnreadable, open_source, source_for
from batchkiln.manifest.validation import check, check_names
from batchkiln.manifest.yaml_tree import MapNode, Node

_COUNTABLE: Final = 10**15  # a longer number tells nobody anything, and Python writes none of 4,300 digits


def items_of_rows(context: ManifestContext, entry: MapNode) -> Iterator[LocatedItem]:
    """Give the items of an entry with `from` or `matrix`. Mistakes go to the diagnostics."""
    try:
        yield from _source_items(context, entry) if "from" in entry.pairs else _matrix_items(context, entry)
    except InvalidEntry:
        return


def _source_items(context: ManifestContext, entry: MapNode) -> Iterator[LocatedItem]:
    if "matrix" in entry.pairs:
        context.diagnostics.at(
            entry.pairs["matrix"][0].start_mark, "an entry has `from` or `matrix`, not both", "make it two entries"
        )
        raise InvalidEntry
    check_names(entry, _names(SourceItem), context.diagnostics)
    steer = check(SourceFields, _part(entry, SourceFields), context.diagnostics)
    if steer is None:
        raise InvalidEntry
    node = entry.pairs["from"][1]
    source = _source(context, steer.from_, node)
    stream = _opened(context, source, node)
    with stream:
        yield from _rows_to_items(context, entry, steer, source=source, stream=stream)


def _rows_to_items(
    context: ManifestContext, entry: MapNode, steer: SourceFields, *, source: Source, stream: BinaryIO
) -> Iterator[LocatedItem]:
    file = source.shown_name
    try:
        rows = Rows(source, stream, context.diagnostics)
        columns = None if rows.columns is None else [*rows.columns, "row", "col"]
        default_id = _literal(f"{source.stem}-") + "{{ row }}"
        template = ItemTemplate(
            context, entry, columns, file=file, defaults={"prompt": "{{ prompt }}", "id": default_id}
        )
        chosen = template.chosen(rows)
        if steer.offset or steer.limit is not None:
            offset = steer.offset or 0
            chosen = itertools.islice(chosen, offset, None if steer.limit is None else offset + steer.limit)
        yield from template.items(chosen)
    except SourceUnreadable as error:
        context.diagnostics.add(Location(file, error.line, error.column), error.reason, error.remedy)


def _source(context: ManifestContext, name: str, node: Node) -> Source:
    path = Path(context.folder / name)
    shown_name = name if Path(name).is_absolute() or not context.shown_folder else f"{context.shown_folder}/{name}"
    source = source_for(path, shown_name)
    if source is None:
        context.diagnostics.at(
            node.start_mark, f"`{name}` has none of the known endings", f"one of {', '.join(KINDS)}, or .gz after it"
        )
        raise InvalidEntry
    if not _is_file(path):
        remedy = f"looked for {path}; a path is relative to the manifest"
        context.diagnostics.at(node.start_mark, f"`{name}` is no file", remedy)
        raise InvalidEntry
    context.diagnostics.paths[shown_name] = path
    return source


def _is_file(path: Path) -> bool:
    """Whether a regular file is there; a name that is too long, or in a closed folder, is none that can be read."""
    try:
        return path.is_file()
    except OSError:
        return False


def _opened(context: ManifestContext, source: Source, node: Node) -> BinaryIO:
    try:
        return open_source(source)
    except OSError as error:
        context.diagnostics.at(node.start_mark, f"`{source.shown_name}` cannot be read: {error.strerror or error}")
        raise InvalidEntry from error


def _matrix_items(context: ManifestContext, entry: MapNode) -> Iterator[LocatedItem]:
    check_names(entry, _names(MatrixItem), context.diagnostics)
    steer = check(MatrixFields, _part(entry, MatrixFields), context.diagnostics)
    if steer is None:
        raise InvalidEntry
    names, values = list(steer.matrix), list(steer.matrix.values())
    mark = entry.pairs["matrix"][1].start_mark
    _check_combinations(context, math.prod(map(len, values)) * (steer.repeat or 1), mark)
    if "prompt" not in entry.pairs:
        context.diagnostics.at(
            entry.start_mark, "`prompt` is missing", 'a matrix needs a template, as in `prompt: "{{ animal }}"`'
        )
        raise InvalidEntry
    default_id = "-".join(f"{{{{ col[{name!r}] }}}}" for name in names)
    defaults = {"prompt": "", "id": default_id}
    template = ItemTemplate(context, entry, [*names, "row", "col"], file=context.diagnostics.file, defaults=defaults)
    line = entry.start_mark.line + 1
    rows = (
        (line, number, dict(zip(names, combination, strict=True)))
        for number, combination in enumerate(itertools.product(*values), 1)
    )
    yield from template.items(template.chosen(rows))


def _check_combinations(context: ManifestContext, count: int, mark: Mark) -> None:
    """Refuse more items of matrices, repeated ones included, than a manifest may have."""
    if count > MAX_COMBINATIONS:
        many = f"{count:,}" if count < _COUNTABLE else "more than a quadrillion"
        context.diagnostics.at(mark, f"the matrix has {many} combinations", f"at most {MAX_COMBINATIONS:,}")
        raise InvalidEntry
    context.allowance.combinations -= count
    if context.allowance.combinations < 0:
        reason = f"the matrices up to here have more than {MAX_COMBINATIONS:,} combinations"
        context.diagnostics.at(mark, reason, "make it several manifests")
        raise InvalidEntry


def _part(entry: MapNode, model: type[Fields]) -> MapNode:
    names = _names(model)
    return MapNode(entry.start_mark, {name: pair for name, pair in entry.pairs.items() if name in names})


def _names(model: type[Fields]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _literal(text: str) -> str:
    """Give a template that prints a text as it is."""
    return text if "{" not in text else "{{ " + repr(text) + " }}"
