"""The items of `from` and `matrix` entries: which rows there are, and which of them are taken."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from batchkiln.manifest.diagnostics import Mark, Place
from batchkiln.manifest.inline_items import MAX_COMBINATIONS, Frame, NotMade, PlacedItem
from batchkiln.manifest.row_template import ItemTemplate
from batchkiln.manifest.schema import Fields, MatrixFields, MatrixItem, SourceFields, SourceItem
from batchkiln.manifest.sources import KINDS, Rows, Source, SourceUnreadable, open_source, source_for
from batchkiln.manifest.validation import check, check_names
from batchkiln.manifest.yaml_tree import MapNode, Node

_COUNTABLE: Final = 10**15  # a longer number tells nobody anything, and Python writes none of 4,300 digits


def items_of_rows(frame: Frame, entry: MapNode) -> Iterator[PlacedItem]:
    """Give the items of an entry with `from` or `matrix`. Mistakes go to the findings."""
    try:
        yield from _source_items(frame, entry) if "from" in entry.pairs else _matrix_items(frame, entry)
    except NotMade:
        return


def _source_items(frame: Frame, entry: MapNode) -> Iterator[PlacedItem]:
    if "matrix" in entry.pairs:
        frame.findings.at(
            entry.pairs["matrix"][0].start_mark, "an entry has `from` or `matrix`, not both", "make it two entries"
        )
        raise NotMade
    check_names(entry, _names(SourceItem), frame.findings)
    steer = check(SourceFields, _part(entry, SourceFields), frame.findings)
    if steer is None:
        raise NotMade
    node = entry.pairs["from"][1]
    source = _source(frame, steer.from_, node)
    stream = _opened(frame, source, node)
    with stream:
        yield from _rows_to_items(frame, entry, steer, source=source, stream=stream)


def _rows_to_items(
    frame: Frame, entry: MapNode, steer: SourceFields, *, source: Source, stream: BinaryIO
) -> Iterator[PlacedItem]:
    file = source.shown_name
    try:
        rows = Rows(source, stream, frame.findings)
        columns = None if rows.columns is None else [*rows.columns, "row", "col"]
        default_id = _literal(f"{source.stem}-") + "{{ row }}"
        maker = ItemTemplate(frame, entry, columns, file=file, defaults={"prompt": "{{ prompt }}", "id": default_id})
        chosen = maker.chosen(rows)
        if steer.offset or steer.limit is not None:
            offset = steer.offset or 0
            chosen = itertools.islice(chosen, offset, None if steer.limit is None else offset + steer.limit)
        yield from maker.items(chosen)
    except SourceUnreadable as error:
        frame.findings.add(Place(file, error.line, error.column), error.reason, error.remedy)


def _source(frame: Frame, name: str, node: Node) -> Source:
    path = Path(frame.folder / name)
    shown_name = name if Path(name).is_absolute() or not frame.shown_folder else f"{frame.shown_folder}/{name}"
    source = source_for(path, shown_name)
    if source is None:
        frame.findings.at(
            node.start_mark, f"`{name}` has none of the known endings", f"one of {', '.join(KINDS)}, or .gz after it"
        )
        raise NotMade
    if not _is_file(path):
        remedy = f"looked for {path}; a path is relative to the manifest"
        frame.findings.at(node.start_mark, f"`{name}` is no file", remedy)
        raise NotMade
    frame.findings.paths[shown_name] = path
    return source


def _is_file(path: Path) -> bool:
    """Whether a regular file is there; a name that is too long, or in a closed folder, is none that can be read."""
    try:
        return path.is_file()
    except OSError:
        return False


def _opened(frame: Frame, source: Source, node: Node) -> BinaryIO:
    try:
        return open_source(source)
    except OSError as error:
        frame.findings.at(node.start_mark, f"`{source.shown_name}` cannot be read: {error.strerror or error}")
        raise NotMade from error


def _matrix_items(frame: Frame, entry: MapNode) -> Iterator[PlacedItem]:
    check_names(entry, _names(MatrixItem), frame.findings)
    steer = check(MatrixFields, _part(entry, MatrixFields), frame.findings)
    if steer is None:
        raise NotMade
    names, values = list(steer.matrix), list(steer.matrix.values())
    mark = entry.pairs["matrix"][1].start_mark
    _check_combinations(frame, math.prod(map(len, values)) * (steer.repeat or 1), mark)
    if "prompt" not in entry.pairs:
        frame.findings.at(
            entry.start_mark, "`prompt` is missing", 'a matrix needs a template, as in `prompt: "{{ animal }}"`'
        )
        raise NotMade
    default_id = "-".join(f"{{{{ col[{name!r}] }}}}" for name in names)
    defaults = {"prompt": "", "id": default_id}
    maker = ItemTemplate(frame, entry, [*names, "row", "col"], file=frame.findings.file, defaults=defaults)
    line = entry.start_mark.line + 1
    rows = (
        (line, number, dict(zip(names, combination, strict=True)))
        for number, combination in enumerate(itertools.product(*values), 1)
    )
    yield from maker.items(maker.chosen(rows))


def _check_combinations(frame: Frame, count: int, mark: Mark) -> None:
    """Refuse more items of matrices, repeated ones included, than a manifest may have."""
    if count > MAX_COMBINATIONS:
        many = f"{count:,}" if count < _COUNTABLE else "more than a quadrillion"
        frame.findings.at(mark, f"the matrix has {many} combinations", f"at most {MAX_COMBINATIONS:,}")
        raise NotMade
    frame.allowance.combinations -= count
    if frame.allowance.combinations < 0:
        reason = f"the matrices up to here have more than {MAX_COMBINATIONS:,} combinations"
        frame.findings.at(mark, reason, "make it several manifests")
        raise NotMade


def _part(entry: MapNode, model: type[Fields]) -> MapNode:
    names = _names(model)
    return MapNode(entry.start_mark, {name: pair for name, pair in entry.pairs.items() if name in names})


def _names(model: type[Fields]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _literal(text: str) -> str:
    """Give a template that prints a text as it is."""
    return text if "{" not in text else "{{ " + repr(text) + " }}"
