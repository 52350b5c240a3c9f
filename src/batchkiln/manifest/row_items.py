"""Makes the items of `from` and `matrix` entries: one for each row of a file, or for each combination of values."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from batchkiln.core.errors import Diagnostic
from batchkiln.core.located_items import LocatedItem, SimilarItems
from batchkiln.core.urls import is_url, redacted
from batchkiln.manifest.content_hashes import HashedSource
from batchkiln.manifest.file_access import FileAccess
from batchkiln.manifest.inline_items import MAX_COMBINATIONS, InvalidEntry, ManifestContext
from batchkiln.manifest.remote_sources import SourceNotFetched, file_name_of
from batchkiln.manifest.row_template import ItemTemplate
from batchkiln.manifest.schema import Fields, MatrixFields, MatrixItem, SourceFields, SourceItem
from batchkiln.manifest.sources import KINDS, PARQUET, Row, Rows, Source, SourceUnreadable, source_for
from batchkiln.manifest.validation import check, check_names
from batchkiln.yaml_reading.diagnostics import InvalidValue, Location, Mark, open_bytes
from batchkiln.yaml_reading.yaml_tree import MapNode, Node

_ENDINGS: Final = f"one of {', '.join(KINDS)}, or .gz after it (not after parquet)"
T = TypeVar("T")

_MAX_SHOWN_COUNT: Final = 10**15  # Python does not print numbers of more than 4,300 digits


def row_items(context: ManifestContext, entry: MapNode) -> Iterator[LocatedItem | SimilarItems]:
    """Yield the items of an entry with `from` or `matrix`. Errors go to the diagnostics."""
    try:
        yield from _source_items(context, entry) if "from" in entry.pairs else _matrix_items(context, entry)
    except InvalidEntry:
        _leave_rows(context)


def _leave_rows(context: ManifestContext) -> None:
    """Note that rows of an entry were not read: neither their ids nor their mistakes are known."""
    context.unread.has_unnamed = context.diagnostics.is_partial = True


def _source_items(context: ManifestContext, entry: MapNode) -> Iterator[LocatedItem | SimilarItems]:
    if "matrix" in entry.pairs:
        mark = entry.pairs["matrix"][0].start_mark
        raise context.invalid(mark, "an entry has `from` or `matrix`, not both", "make it two entries")
    check_names(entry, _names(SourceItem), context.diagnostics)
    fields = check(SourceFields, _part(entry, SourceFields), context.diagnostics)
    if fields is None:
        raise InvalidEntry
    node = entry.pairs["from"][1]
    source = _source(context, fields.from_, node)
    try:
        stream = open_bytes(source.path)
    except OSError as error:
        reason = f"`{source.shown_name}` cannot be read: {error.strerror or error}"
        raise context.invalid(node.start_mark, reason) from error
    with stream:
        yield from _rows_to_items(context, entry, fields, source=source, stream=stream)


def _rows_to_items(
    context: ManifestContext, entry: MapNode, fields: SourceFields, *, source: Source, stream: BinaryIO
) -> Iterator[LocatedItem | SimilarItems]:
    file = source.shown_name
    is_packed = source.path.suffix.lower() == ".gz"
    hashed = HashedSource(stream, None if is_packed else source.path.stat().st_size)
    context.read_sources.current = file, hashed
    try:
        rows = Rows(source, stream if source.kind == PARQUET else hashed, context.diagnostics)
        columns = None if rows.columns is None else [*rows.columns, "row", "col"]
        defaults = {"prompt": "{{ prompt }}", "id": _literal(f"{source.stem}-") + "{{ row }}"}
        template = ItemTemplate(context, entry, columns, file=file, defaults=defaults)
        if rows.has_records and template.is_uniform and not fields.offset and fields.limit is None:
            yield from template.items_of_records(_warned_if_empty(context, entry, rows.records(), file))
        else:
            yield from template.items(_matching(context, entry, fields, rows=rows, template=template))
    except SourceUnreadable as error:
        _leave_rows(context)
        context.diagnostics.add(Location(file, error.line, error.column), error.reason, error.remedy)
    context.read_sources.current = None
    is_remote = is_url(fields.from_)
    context.read_sources.add(source.path, None if is_remote else hashed.sha256)


def _matching(
    context: ManifestContext, entry: MapNode, fields: SourceFields, *, rows: Rows, template: ItemTemplate
) -> Iterator[Row]:
    """Return the rows of a source that `where`, `offset` and `limit` leave."""
    matching = template.matching(rows)
    if fields.offset or fields.limit is not None:
        offset = fields.offset or 0
        matching = itertools.islice(matching, offset, None if fields.limit is None else offset + fields.limit)
    return _warned_if_empty(context, entry, matching, rows.file)


def _source(context: ManifestContext, name: str, node: Node) -> Source:
    if context.access is not None:
        path = _permitted(context, context.access, name, node)
    elif is_url(name):
        return _remote_source(context, name, node)
    else:
        path = Path(context.folder / name)
    shown_name = name if Path(name).is_absolute() or not context.shown_folder else f"{context.shown_folder}/{name}"
    source = source_for(path.name, path, shown_name)
    if source is None:
        raise context.invalid(node.start_mark, f"`{name}` has none of the known endings", _ENDINGS)
    try:
        is_file = path.is_file()
    except OSError:  # the name is too long, or its folder is not readable
        is_file = False
    if not is_file:
        remedy = f"looked for {path}; a path is relative to the manifest"
        if context.access is not None:
            remedy = context.access.remedy
        raise context.invalid(node.start_mark, f"`{name}` is not a file", remedy)
    if source.is_text:
        context.diagnostics.paths[shown_name] = path
    return source


def _permitted(context: ManifestContext, access: FileAccess, name: str, node: Node) -> Path:
    """Return the path of a source, as far as `access` permits the manifest to name it."""
    try:
        return access.path_of(name)
    except InvalidValue as error:
        raise context.invalid(node.start_mark, error.reason, error.remedy) from error


def _remote_source(context: ManifestContext, url: str, node: Node) -> Source:
    """Copy a source from a URL. Error messages show the URL without its secrets (Law 8)."""
    shown_name, name = redacted(url), file_name_of(url)
    if source_for(name, Path(), shown_name) is None:
        raise context.invalid(node.start_mark, f"`{shown_name}` has none of the known endings", _ENDINGS)
    try:
        path = context.remote.path_of(url)
    except SourceNotFetched as error:
        reason = f"`{shown_name}` cannot be read: {error.reason}"
        raise context.invalid(node.start_mark, reason, error.remedy) from error
    source = source_for(name, path, shown_name)
    assert source is not None
    if source.is_text:
        context.diagnostics.paths[shown_name] = path
    return source


def _matrix_items(context: ManifestContext, entry: MapNode) -> Iterator[LocatedItem]:
    check_names(entry, _names(MatrixItem), context.diagnostics)
    fields = check(MatrixFields, _part(entry, MatrixFields), context.diagnostics)
    if fields is None:
        raise InvalidEntry
    names, values = list(fields.matrix), list(fields.matrix.values())
    mark = entry.pairs["matrix"][1].start_mark
    _check_combinations(context, math.prod(map(len, values)) * (fields.repeat or 1), mark)
    if "prompt" not in entry.pairs:
        remedy = 'a matrix needs a template, as in `prompt: "{{ animal }}"`'
        raise context.invalid(entry.start_mark, "`prompt` is missing", remedy)
    defaults = {"prompt": "", "id": "-".join(f"{{{{ col[{name!r}] }}}}" for name in names)}
    template = ItemTemplate(context, entry, [*names, "row", "col"], file=context.diagnostics.file, defaults=defaults)
    line = entry.start_mark.line + 1
    rows = (
        (line, number, dict(zip(names, combination, strict=True)))
        for number, combination in enumerate(itertools.product(*values), 1)
    )
    yield from template.items(_warned_if_empty(context, entry, template.matching(rows), "the matrix"))


def _warned_if_empty(context: ManifestContext, entry: MapNode, rows: Iterator[T], what: str) -> Iterator[T]:
    """Return the rows that are left of an entry's; without any, add a warning, because they make no item."""
    first = next(rows, None)
    if first is not None:
        return itertools.chain((first,), rows)
    filters = " and ".join(f"`{name}`" for name in ("where", "offset", "limit") if name in entry.pairs)
    reason = f"{what} has no rows" + (f" that {filters} would leave" if filters else "")
    empty = Diagnostic(reason, context.diagnostics.file, entry.start_mark.line + 1)
    context.warnings.append(context.diagnostics.shown(empty, None))
    return rows


def _check_combinations(context: ManifestContext, count: int, mark: Mark) -> None:
    """Refuse matrices with too many items, alone or together; `count` includes repetitions."""
    if count > MAX_COMBINATIONS:
        shown = f"{count:,}" if count < _MAX_SHOWN_COUNT else "more than a quadrillion"
        raise context.invalid(mark, f"the matrix has {shown} combinations", f"at most {MAX_COMBINATIONS:,}")
    context.combinations_left -= count
    if context.combinations_left < 0:
        reason = f"the matrices up to here have more than {MAX_COMBINATIONS:,} combinations"
        raise context.invalid(mark, reason, "make it several manifests")


def _part(entry: MapNode, model: type[Fields]) -> MapNode:
    names = _names(model)
    return MapNode(entry.start_mark, {name: pair for name, pair in entry.pairs.items() if name in names})


def _names(model: type[Fields]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _literal(text: str) -> str:
    """Return a template that renders to the text itself."""
    return text if "{" not in text else "{{ " + repr(text) + " }}"
