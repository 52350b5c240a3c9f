"""`batchkiln review`: keep or drop what was made, in a terminal or by options."""

import os
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import click

from batchkiln.api import (
    Decided,
    Filter,
    ItemSummary,
    OutputSummary,
    Reader,
    Release,
    ReviewReport,
    ReviewStep,
)
from batchkiln.api.changes import Action, Changes, open_changes, question_before
from batchkiln.api.documents import reviewed_document
from batchkiln.api.item_selection import ItemSelection
from batchkiln.api.local_service import known_price, review_effects
from batchkiln.cli.command import ITEM, JOB, Common, can_ask_person, command, run_async
from batchkiln.cli.item_filters import item_filters
from batchkiln.cli.job_commands import print_skipped
from batchkiln.cli.output import print_json, print_json_lines, print_result, print_status
from batchkiln.config import Config
from batchkiln.core.errors import ExitStatus, InputError, command_arguments
from batchkiln.core.states import ItemState
from batchkiln.object_storage import local_file
from batchkiln.presentation.chained_inputs import awaiting_line, effect_lines
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.presentation.overview import review_line
from batchkiln.presentation.show_documents import review_step_document
from batchkiln.presentation.takers import who_takes

_SHOWN: Final = 1000
_KEYS: Final = "k keep, d drop, r make again, u undo, n next, p previous, q quit"
_ENDS: Final = frozenset({"q", "", "\x04"})


@command(
    "review",
    example="batchkiln review field-guide --open\n"
    "batchkiln review field-guide --keep owl-2 --drop owl-1\n"
    "batchkiln review field-guide --dropped --where metadata.species=owl\n"
    "batchkiln review field-guide --json",
)
@click.argument("job", type=JOB)
@click.option("--keep", "kept", type=ITEM, metavar="ITEM", multiple=True, help="Keep this item; can be repeated.")
@click.option("--drop", "dropped", type=ITEM, metavar="ITEM", multiple=True, help="Drop this item; can be repeated.")
@click.option(
    "--undo",
    "undone",
    type=ITEM,
    metavar="ITEM",
    multiple=True,
    help="Remove the verdict about this item; can be repeated.",
)
@click.option("--all", "is_all", is_flag=True, help="Go through all done items, also through reviewed ones.")
@item_filters(of_files=True)
@click.option("--open", "is_opened", is_flag=True, help="Open each file with the desktop's viewer.")
def review(
    common: Common,
    job: str,
    *,
    kept: tuple[str, ...],
    dropped: tuple[str, ...],
    undone: tuple[str, ...],
    is_all: bool,
    selection: ItemSelection,
    is_opened: bool,
) -> ExitStatus:
    """Keep or drop done items of JOB: those with `review: true`, and groups of variants to choose from.

    In a terminal, one key decides about each item. Without a terminal, or with --json, the command lists what is to be
    reviewed. Keeping an item lets what is made from it begin, which costs credits, and says how many. `r` costs credits
    as well, and asks first. With --kept, --dropped or --unreviewed, the command goes through all such items.
    """
    decisions = {Decided.KEEP: kept, Decided.DROP: dropped, Decided.UNDO: undone}
    named = [item for items in decisions.values() for item in items]
    if len(set(named)) < len(named):
        raise InputError("an item is named twice; nothing was changed")
    wanted = selection.wanted
    if named and selection:
        raise InputError("name items, or choose them by options such as --where, not both; nothing was changed")
    if named:
        return run_async(_decide(common, job, decisions))
    is_all = is_all or wanted.verdict is not None
    if common.is_json or not can_ask_person():
        return run_async(_list(common, job, wanted, is_all=is_all))
    return run_async(_go_through(common, job, wanted, is_all=is_all, is_opened=is_opened))


def _check_names(reader: Reader, job: str, names: Sequence[str]) -> None:
    reader.jobs.items_named(reader.jobs.id_of(job), job=job, names=names)


async def _decide(common: Common, job: str, decisions: dict[Decided, tuple[str, ...]]) -> ExitStatus:
    named, config = [item for items in decisions.values() for item in items], common.load_config()
    async with open_changes(common.queue) as changes:
        await changes.reader.read(_check_names, job, named)  # before anything is changed
        reports = {one: await changes.review(job, items, one) for one, items in decisions.items() if items}
        summary = await changes.reader.read(lambda reader: reader.jobs.summary(job))
        changed = [name for report in reports.values() for name in report.changed]
        effects = await changes.reader.read(review_effects, config, job, changed)
        takers = None
        if number := len(effects.ready.items):
            takers = await changes.reader.read(partial(who_takes, jobs=effects.ready_jobs, number=number))
    if common.is_json:
        print_json(reviewed_document(job, reports, summary, effects))
    else:
        print_result(f"{job}: {', '.join(_done(one, report) for one, report in reports.items())}.")
        print_skipped([entry for report in reports.values() for entry in report.skipped])
        for effect in effect_lines(effects):
            print_result(f"{effect}.")
        if line := review_line(summary):
            print_result(line)
        if takers:
            print_status(takers)
    return ExitStatus.OK


def _done(decided: Decided, report: ReviewReport) -> str:
    word = {Decided.KEEP: "kept", Decided.DROP: "dropped", Decided.UNDO: "without a verdict again"}[decided]
    return f"{plural(len(report.changed), 'item')} {word}"


async def _list(common: Common, job: str, wanted: Filter, *, is_all: bool) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        step, is_empty = await changes.review_step(job, is_all=is_all, wanted=wanted), True
        while step is not None:
            is_empty = False
            if common.is_json:
                print_json_lines([review_step_document(step)])
            else:
                for line in step_lines(step):
                    print_result(line)
            place = step.next_at
            step = None if place is None else await changes.review_step(job, place, is_all=is_all, wanted=wanted)
        if is_empty and not common.is_json:
            nothing = "nothing that the options choose" if wanted.is_by_content else "nothing"
            print_result(f"{job}: {nothing} {'is done' if is_all else 'waits for a review'}.")
    if not is_empty and not common.is_json:
        keeping = f"`batchkiln review --keep ITEM {command_arguments(job)}`"
        print_status(f"Without a terminal, {keeping}, or --drop, decides.")
    return ExitStatus.OK


def step_lines(step: ReviewStep) -> list[str]:
    """Return the text of a step: its group, and each item with its verdict and files."""
    lines = []
    if step.group is not None:
        choose = f": choose {step.choose}, {step.kept} kept" if step.choose is not None else ""
        lines.append(f"{sanitize(step.group)} ({plural(len(step.items), 'variant')}){choose}")
    indent = "  " if step.group is not None else ""
    for item in step.items:
        files = ", ".join(output.path for output in item.outputs)
        word = item.verdict or ("to review" if item.state is ItemState.DONE else item.state)
        lines.append(indent + sanitize(f"{item.name}: {word}{': ' if files else ''}{files}"))
    return lines


# --- in a terminal -----------------------------------------------------------------------


async def _go_through(common: Common, job: str, wanted: Filter, *, is_all: bool, is_opened: bool) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        session = _Session(changes, job, wanted, common.load_config(), is_all=is_all, is_opened=is_opened)
        with _single_keys():
            await session.run()
        summary = await changes.reader.read(lambda reader: reader.jobs.summary(job))
        takers = None
        if jobs := sorted(session.released_jobs):
            takers = await changes.reader.read(partial(who_takes, jobs=jobs))
    print_result(f"{job}: {session.decided:,} decided. {review_line(summary) or 'Nothing is left to review.'}")
    if takers:
        print_status(takers)
    return ExitStatus.OK


class _Session:
    """One person's way through the steps of a job's review."""

    def __init__(
        self, changes: Changes, job: str, wanted: Filter, config: Config, *, is_all: bool, is_opened: bool
    ) -> None:
        self.decided = 0
        self.released_jobs: set[str] = set()
        self._config = config
        self._changes = changes
        self._job = job
        self._wanted = wanted
        self._is_all = is_all
        self._is_opened = is_opened
        self._undoable: list[tuple[int, str]] = []
        self._shown: tuple[int, str] | None = None

    async def run(self) -> None:
        """Show one item after the other, and carry out the keys, until all are decided or the person quits."""
        step, name = await self._changes.review_step(self._job, is_all=self._is_all, wanted=self._wanted), None
        while step is not None or self._undoable:
            if step is None:
                print_status("That was the last one: u takes the last decision back, any other key ends.")
                if _key() != "u":
                    return
                step, name = await self._undo()
                continue
            item = _to_show(step, name, self._wanted)
            if item is None:
                step, name = await self._step(step.next_at), None
                continue
            left = await self._changes.reader.read(_left, self._job, step, self._wanted)
            awaiting = await self._changes.reader.read(_awaiting, step, self._config)
            self._show(step, item, left, awaiting)
            key = _key()
            if key in _ENDS:
                return
            step, name = await self._act(key, step, item)

    async def _step(self, at: int | None) -> ReviewStep | None:
        if at is None:
            return None
        return await self._changes.review_step(self._job, at, is_all=self._is_all, wanted=self._wanted)

    async def _act(self, key: str, step: ReviewStep, item: ItemSummary) -> tuple[ReviewStep | None, str | None]:
        """Carry out the action of a key; return the next step, and the item to show in it unless it is the default."""
        found: tuple[ReviewStep | None, str | None]
        match key:
            case "k" | "d":
                await self._judge(step, item, Decided.KEEP if key == "k" else Decided.DROP)
                now = await self._step(step.at)
                is_over = now is None or now.is_decided
                found = (await self._step(step.next_at), None) if is_over else (now, _after(step, item))
            case "r":
                await self._redo(item)
                found = await self._step(step.at), _after(step, item)
            case "u" if self._undoable:
                found = await self._undo()
            case "n":
                after = _after(step, item)
                found = (step, after) if after is not None else (await self._step(step.next_at), None)
            case "p":
                found = (await self._step(step.previous_at) or step), None
            case _:
                print_status(_KEYS)
                found = step, item.name
        return found

    async def _undo(self) -> tuple[ReviewStep | None, str | None]:
        """Take the last decision back; return its step and its item."""
        at, name = self._undoable.pop()
        await self._changes.undo(self._job, [name])
        print_status(f"{name} is undecided again.")
        await self._print_effects(name)
        self.decided -= 1
        self._shown = None  # it is asked about anew
        return await self._step(at), name

    async def _judge(self, step: ReviewStep, item: ItemSummary, decided: Decided) -> None:
        report = await self._changes.review(self._job, {item.name: item.version or 1}, decided)
        for entry in report.skipped:
            print_status(f"unchanged: {entry.reason}")
        if report.changed:
            self.decided += 1
            self._undoable.append((step.at, item.name))
            print_status(f"{item.name} is {'kept' if decided is Decided.KEEP else 'dropped'}.")
            await self._print_effects(item.name)

    async def _print_effects(self, name: str) -> None:
        effects = await self._changes.reader.read(review_effects, self._config, self._job, [name])
        self.released_jobs.update(effects.ready_jobs)
        for effect in effect_lines(effects):
            print_status(f"{effect}.")

    async def _redo(self, item: ItemSummary) -> None:
        question = await question_before(self._changes, Action.REDO, self._job, [item.name])
        print_status(question.cost)
        print_status("Make it again? (y/n)")
        if question.number and _key() == "y":
            await self._changes.redo(self._job, [item.name])
            print_status(f"It is queued again; `batchkiln work {command_arguments(self._job)}` makes it.")

    def _show(self, step: ReviewStep, item: ItemSummary, left: int, awaiting: Release) -> None:
        if self._shown == (step.at, item.name):
            return
        self._shown = (step.at, item.name)
        number = f"{step.items.index(item) + 1} of {len(step.items)}" if step.group is not None else ""
        choose = f", choose {step.choose}, {step.kept} kept" if step.choose is not None else ""
        print_status("")
        print_status(f"{item.name}  {number}{choose}  ({item.verdict or 'no verdict'}; {left:,} left)")
        print_status(f"  {sanitize(item.prompt)}")
        for _, file in step.inputs:
            print_status(f"  made from {file.path}")
        for output in item.outputs:
            print_status(f"  {output.path}")
            if self._is_opened:
                _open(output)
        if line := awaiting_line(awaiting):
            print_status(f"  {line}")
        print_status(_KEYS)


def _open(output: OutputSummary) -> None:
    """Open a file with the system's program for its type; for an object, open a local copy."""
    try:
        click.launch(str(local_file(output.path, sha256=output.sha256, size_bytes=output.size_bytes)))
    except OSError as error:
        print_status(f"  it cannot be opened: {error.strerror or error}")


@contextmanager
def _single_keys() -> Iterator[None]:
    """Make standard input return each key at once. Unlike click's `getchar`, this keeps keys that are typed ahead.

    What was typed before anything is shown is dropped: it could keep an item unseen, and let others cost credits.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal, termios.TCSAFLUSH)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _key() -> str:
    """Wait for a key; return it in lower case, or nothing at the end of the input."""
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace").lower()


def _to_show(step: ReviewStep, name: str | None, wanted: Filter) -> ItemSummary | None:
    """Return the named item of a step, or its first done one, if possible with the wanted verdict or without one."""
    done = [item for item in step.items if item.state is ItemState.DONE]
    named = [item for item in done if item.name == name]
    matching = [item for item in done if item.verdict is not None and item.verdict == wanted.verdict]
    return next(iter(named + matching + [item for item in done if item.verdict is None] + done), None)


def _after(step: ReviewStep, item: ItemSummary) -> str | None:
    """Return the name of the done item that follows in the step, or None."""
    names = [one.name for one in step.items if one.state is ItemState.DONE or one.name == item.name]
    following = names[names.index(item.name) + 1 :] if item.name in names else []
    return next(iter(following), None)


def _awaiting(reader: Reader, step: ReviewStep, config: Config) -> Release:
    """Return what keeping an item of this step may let begin."""
    return reader.reviews.awaiting(step, partial(known_price, config))


def _left(reader: Reader, job: str, step: ReviewStep, wanted: Filter) -> int:
    """Return how many matching steps from this one on have something to review."""
    return reader.reviews.left(job, at=step.items[0].id, wanted=wanted)
