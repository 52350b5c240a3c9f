"""`batchkiln items`: list a job's items page by page, with constant memory use."""

import os
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import click

from batchkiln.api import PAGE, ItemSummary, Reader
from batchkiln.api.item_selection import ItemSelection
from batchkiln.api.reading import open_reader
from batchkiln.cli.command import JOB, Common, command, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.output import columns_of_output, is_terminal, print_json_lines, print_result
from batchkiln.core.cell_widths import cell_width, elided, fitting
from batchkiln.core.errors import ExitStatus
from batchkiln.core.states import ItemState
from batchkiln.core.urls import is_url
from batchkiln.presentation.chained_inputs import waits_text
from batchkiln.presentation.formatting import sanitize
from batchkiln.presentation.item_documents import item_document

_NARROWEST: Final = 60
_NARROWEST_PROMPT: Final = 8
_WIDEST_MODEL: Final = 16
_HEADINGS: Final = ("ITEM", "STATE", "MODEL", "CREDITS", "PROMPT", "FILE OR ERROR")
_VERDICT: Final = "VERDICT"
_STATE: Final = max(map(len, ItemState))
_INDENT: Final = 4


@command(
    "items", example="batchkiln items field-guide --state failed\nbatchkiln items field-guide --json | jq .outputs"
)
@click.argument("job", type=JOB)
@item_filters()
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Only the first N items.")
def items(common: Common, job: str, selection: ItemSelection, limit: int | None) -> ExitStatus:
    """List the items of JOB with state, credits, prompt, and the file or the error. --json prints one line per item."""
    return run_async(_items(common, job, selection, limit))


async def _items(common: Common, job: str, selection: ItemSelection, limit: int | None) -> ExitStatus:
    async with open_reader(common.queue) as queue:
        await queue.read_in_pages(_print, job, selection, limit, is_json=common.is_json)
    return ExitStatus.OK


def _print(reader: Reader, job: str, selection: ItemSelection, limit: int | None, *, is_json: bool) -> None:
    """Print the selected items. Each page is a separate snapshot, so that a running process never waits for it."""
    chosen = islice(reader.items.matching(job, selection.states, selection.wanted), limit)
    table = None if is_json else _Table(job)
    while page := list(islice(chosen, PAGE)):
        if table is None:
            print_json_lines([item_document(item) for item in page])
        else:
            table.print(page)
    if table is not None:
        table.end()


class _Table:
    """A table whose columns fit the first page; those that fit all rows would need all rows in memory.

    There is a column of verdicts if an item of the first page has one. Otherwise a verdict stands behind the file.
    On a terminal without room for the files beside the prompts, each file has a line of its own, so that none is cut.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._folder = f"{Path.cwd()}{os.sep}"
        self._widths: tuple[int, ...] = ()
        self._has_verdicts = False
        self._has_own_lines = False

    def print(self, page: Sequence[ItemSummary]) -> None:
        if not self._widths:
            self._has_verdicts = any(item.verdict is not None for item in page)
        rows = [[*map(sanitize, self._cells(item))] for item in page]
        if not self._widths:
            headings = (*_HEADINGS[:2], _VERDICT, *_HEADINGS[2:]) if self._has_verdicts else _HEADINGS
            self._widths, self._has_own_lines = layout_of([headings, *rows])
            print_result(self._line(*headings), hanging=_INDENT)
        for row in rows:
            print_result(self._line(*row), hanging=_INDENT)

    def end(self) -> None:
        if not self._widths:
            print_result(f"{self._job} has no such items.")

    def _line(self, *cells: str) -> str:
        from rich.cells import set_cell_size  # noqa: PLC0415  not needed for JSON

        shown = []
        for text, width in zip(cells[:-1], self._widths, strict=True):
            shown.append(set_cell_size(fitted(text, width), width))
        if self._has_own_lines:
            return "\n".join([" ".join(shown).rstrip(), " " * _INDENT + cells[-1]]).rstrip()
        return " ".join([*shown, cells[-1]]).rstrip()

    def _cells(self, item: ItemSummary) -> list[str]:
        verdict = [item.verdict or ""] if self._has_verdicts else []
        return [item.name, item.state, *verdict, item.model, str(item.credits), item.prompt, self._outcome(item)]

    def _outcome(self, item: ItemSummary) -> str:
        """Return the file, as a path below the working directory where it is one; or what the item waits for."""
        if item.outputs:
            more = f" (and {len(item.outputs) - 1} more)" if len(item.outputs) > 1 else ""
            stale = " (stale)" if item.is_stale else " (source withdrawn)" if item.is_withdrawn else ""
            verdict = "" if item.verdict is None or self._has_verdicts else f" ({item.verdict})"
            path = item.outputs[0].path
            gone = " (gone)" if not is_url(path) and not Path(path).exists() else ""
            return path.removeprefix(self._folder) + gone + more + stale + verdict
        if item.state is ItemState.QUEUED and (waits := waits_text(item.sources, self._job)):
            return waits
        return "" if item.error is None else f"{item.error.code}: {item.error.message}"


def fitted(text: str, width: int) -> str:
    """Return a cell's text in so many columns: whole words, or of one long word the beginning and the end."""
    if cell_width(text) <= width:
        return text
    if (start := fitting(text, width)).find(" ") < 0:  # such as an id, whose end tells it from others
        return elided(text, width)
    return f"{fitting(start, width - 2).rpartition(' ')[0] or fitting(start, width - 2)} …"


def layout_of(rows: Sequence[Sequence[str]]) -> tuple[tuple[int, ...], bool]:
    """Return the widths of all columns but the last, and whether that has lines of its own.

    The prompts get what the others and a short file leave. A third column of seven is that of the verdicts.
    """
    width = max(_NARROWEST, columns_of_output())
    columns = len(rows[0])
    longest = [max(cell_width(row[column]) for row in rows) for column in range(columns)]
    name = min(longest[0], width // 4)
    verdict = longest[2 : columns - 4]
    model = min(longest[-4], _WIDEST_MODEL)
    others = name + _STATE + sum(verdict) + model + longest[-3] + columns - 1
    prompt = max(_NARROWEST_PROMPT, width - others - min(longest[-1], width * 3 // 8))
    longest_file = max((cell_width(row[-1]) for row in rows if row[1] == ItemState.DONE), default=0)
    has_own_lines = is_terminal(sys.stdout) and others + prompt + longest_file > width
    if has_own_lines:
        prompt = max(prompt, width - others)
        name += min(longest[0] - name, max(0, prompt - longest[-2]))  # short prompts leave room for long ids
    return (name, _STATE, *verdict, model, longest[-3], min(prompt, longest[-2])), has_own_lines
