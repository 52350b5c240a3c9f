"""The live display on a terminal, as a terminal emulator of other hands shows it."""

import io
from contextlib import ExitStack
from datetime import timedelta

import pyte
import pytest
from msgspec.structs import replace
from rich.console import Console

from batchkiln.cli import run_display
from batchkiln.cli.live_display import LiveDisplay, panel
from batchkiln.cli.progress import PlainDisplay, ProgressState, WorkerState, last_ended, problem_lines
from batchkiln.cli.rich_console import SafeConsole
from batchkiln.cli.status import _is_over
from batchkiln.core.forecast import EndRange
from batchkiln.core.states import ItemState
from batchkiln.store import LoggedEvent
from support.view_builders import NOW, job_view, under_way

WIDTHS = (60, 80, 120, 200)
LONG_NAME = "a-job-name-of-thirty-character"


class Terminal:
    """A terminal that wraps its lines anew when it becomes narrower, as most do."""

    def __init__(self, width: int) -> None:
        self.output = io.StringIO()
        self._screen = pyte.Screen(width, 40)
        self.console = SafeConsole(file=self.output, force_terminal=True, width=width, height=40, legacy_windows=False)

    def rows(self) -> list[str]:
        """Return the rows that hold text."""
        pyte.Stream(self._screen).feed(self.output.getvalue().replace("\n", "\r\n"))
        self.output.seek(0)
        self.output.truncate()
        return [row.rstrip() for row in self._screen.display if row.strip()]

    def resize(self, width: int) -> None:
        """Change the width, as the person drags the window."""
        self.rows()
        lines = [row.rstrip() for row in self._screen.display[: self._screen.cursor.y + 1]]
        self._screen = pyte.Screen(width, 40)
        pyte.Stream(self._screen).feed("\r\n".join(lines))  # the emulator wraps them
        self.console.width = width


def state(name: str = "birds", *, active: int = 1, failed: int = 2) -> ProgressState:
    items = {ItemState.DONE: 175, ItemState.FAILED: failed, ItemState.ACTIVE: active, ItemState.QUEUED: 123 - active}
    entries = [under_way(ItemState.ACTIVE, since=NOW - timedelta(seconds=40))] * active
    ends_at, end_range = NOW + timedelta(hours=3), EndRange(NOW + timedelta(hours=2), NOW + timedelta(hours=5))
    found = job_view(items, name=name, under_way=entries, ends_at=ends_at, end_range=end_range)
    view = replace(found, is_embedded=True, time_scale=60)
    account = WorkerState("local/main", 620, 2000, 3, 10, 14, 60, None, None)
    return ProgressState((view,), (account,), spent=352, most=500, seconds=65, last="wren done: out/birds/wren.png")


def event(item: str, state: ItemState, **detail: object) -> LoggedEvent:
    return LoggedEvent(1, NOW, "birds", item, "moved", state.value, dict(detail))


def test_a_paused_job_is_told_with_the_command_that_resumes_it() -> None:
    """A run on a terminal waits for it, and says for what."""
    found = job_view({ItemState.DONE: 3, ItemState.QUEUED: 2}, name="birds")
    paused = replace(found, summary=replace(found.summary, is_paused=True))
    terminal = Terminal(80)
    with LiveDisplay(terminal.console) as display:
        display.show(ProgressState((paused,), ()), 0.0)
        shown = " ".join(" ".join(terminal.rows()).split())

    assert "wait birds is paused: `batchkiln unpause birds` resumes it, Ctrl-C ends this run" in shown


def test_watch_goes_on_while_a_process_waits_for_a_paused_job() -> None:
    """It ends with the process."""
    found = job_view({ItemState.DONE: 3, ItemState.QUEUED: 2}, name="birds")
    paused = replace(found.summary, is_paused=True)

    assert [_is_over(paused, is_driven=is_driven) for is_driven in (True, False)] == [False, True]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_long_id_keeps_its_beginning_and_its_end(width: int) -> None:
    """An id and its file may be longer than a line: their middle is left out, and the line is not broken in them."""
    item = "first-" + "x" * 240 + "-last"
    terminal = Terminal(width)
    entry = replace(under_way(ItemState.ACTIVE, since=NOW), item=item)
    view = job_view({ItemState.ACTIVE: 1}, name="j" * 64, under_way=[entry])
    with LiveDisplay(terminal.console) as display:
        display.show(ProgressState((view,), (), last=f"{item} done: /out/{item}.png"), 0.0)
        words = [word for row in terminal.rows() for word in row.split()]

    found = [word for word in words if word.startswith("first-")]
    assert len(found) == 2
    assert all(word.endswith("-last") and "…" in word and len(word) <= width - 8 for word in found)
    assert any(word.startswith("/out/first-") and word.endswith("-last.png") for word in words)
    assert sum("x" in word for word in words if word not in {"next", "max"}) == 3
    assert [word for word in words if word.startswith("jj")] == ["j" * 64 if width > 60 else "j" * 30 + "…" + "j" * 29]


@pytest.mark.parametrize("name", ["birds", LONG_NAME])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_is_cut_at_any_width(width: int, name: str) -> None:
    """What does not fit on a line goes to the next one, and the counts are always there."""
    terminal, wide = Terminal(width), Terminal(400)
    for each in (terminal, wide):
        with LiveDisplay(each.console) as display:
            display.show(state(name), 0.0)
            rows = each.rows()
            if each is terminal:
                shown = rows
    whole = {word for row in rows for word in row.split()}

    assert {word for row in shown for word in row.split() if not word.startswith(("━", "╸", "╺"))} <= whole
    assert any(f"{177:,}/300" in row for row in shown)
    assert any("2 problems" in row for row in shown)
    assert any(name in row for row in shown)
    assert all(len(row) <= width for row in shown)


@pytest.mark.parametrize(("kind", "is_live"), [("xterm", True), ("dumb", False)])
def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch: pytest.MonkeyPatch, kind: str, *, is_live: bool) -> None:
    """On a dumb terminal, progress is printed as lines, as it is into a file."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr("batchkiln.cli.output.is_terminal", lambda _: True)

    with ExitStack() as stack:
        display = run_display.choose_display(stack, is_quiet=False, is_json=False)

    assert isinstance(display, LiveDisplay if is_live else PlainDisplay)


def test_a_narrower_window_leaves_no_old_lines() -> None:
    """A terminal that wraps the old lines makes the block taller; all of it is replaced."""
    terminal = Terminal(120)
    with LiveDisplay(terminal.console) as display:
        terminal.console.print("before")
        display.show(state(), 0.0)
        terminal.resize(60)
        display.show(state(), 0.0)

        rows = terminal.rows()

    assert rows[0] == "before"
    assert sum("so far" in row for row in rows) == 1
    assert sum("/300" in row for row in rows) == 1


def test_the_block_keeps_its_height() -> None:
    """What is below the cursor does not jump when fewer items are active."""
    terminal = Terminal(80)
    with LiveDisplay(terminal.console) as display:
        display.show(state(active=3), 0.0)
        terminal.rows()
        high = terminal._screen.cursor.y
        display.show(state(active=0), 0.0)
        terminal.rows()

        assert terminal._screen.cursor.y == high


def test_a_problem_stays_above_the_display() -> None:
    """A failure is told when it comes, and remains when the display is gone."""
    terminal = Terminal(80)
    with LiveDisplay(terminal.console) as display:
        display.show(state(), 0.0)
        display.announce("birds/heron: failed (generation_failed: The generation failed)")
        display.show(state(), 0.0)

    assert terminal.rows() == ["birds/heron: failed (generation_failed: The generation failed)"]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_wide_character_is_lost(width: int) -> None:
    """A name of characters of two columns, and of joined emoji, is wrapped at the columns that it takes when shown."""
    name = "雪の中の狐" * 3 + "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}" * 3
    named = state()
    named.under_way[:] = [(replace(entry, item=name), view) for entry, view in named.under_way]
    terminal = Terminal(width)
    with LiveDisplay(terminal.console) as display:
        display.show(named, 0.0)
        shown = "".join("".join(terminal.rows()).split())

    assert "雪の中の狐" * 3 + "\N{WOMAN}\N{WOMAN}\N{GIRL}" * 3 in shown


def test_lines_with_joined_emoji_keep_their_indentation() -> None:
    """They are wrapped between words by the columns that they take when shown."""
    named = state()
    named.under_way[:] = [(replace(each, item="\N{WOMAN}\u200d\N{GIRL} " * 12), view) for each, view in named.under_way]
    terminal = Terminal(60)
    with LiveDisplay(terminal.console) as display:
        display.show(named, 0.0)
        rows = terminal.rows()[2:]

    assert all(row.startswith("  ") for row in rows), rows


def test_made_up_credits_and_a_fast_clock_are_named() -> None:
    """Nobody takes the local service's credits for money, or its clock for theirs."""
    terminal = Terminal(120)
    with LiveDisplay(terminal.console) as display:
        display.show(state(), 0.0)
        shown = " ".join(terminal.rows())

    assert "credits are made up" in shown
    assert "60 times as fast" in shown
    assert "ends in about 3 min 0 s (2 min to 5 min)" in shown


@pytest.mark.parametrize(("failed", "share"), [(0, "58 %"), (2, "59 %")])
def test_the_bar_is_red_only_after_a_failure(failed: int, share: str) -> None:
    """Its share is that of the items that have ended, of all, rounded down: 100 % is the end."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="standard")
    console.print(panel(state(failed=failed, active=0)))
    assert isinstance(console.file, io.StringIO)
    line = console.file.getvalue().splitlines()[0]
    bar = line.index("━")

    assert ("\x1b[31m" in line[bar - 5 : bar]) is (failed > 0)
    assert f"{175 + failed}/{298 + failed} ({share})" in line


def test_of_many_problems_alike_the_first_few_are_named() -> None:
    """A thousand rejected items do not fill the terminal."""
    events = [event(f"item-{n}", ItemState.REJECTED, code="invalid", message="no") for n in range(1000)]

    assert list(problem_lines(events)) == [
        *(f"birds/item-{n}: rejected (invalid: no)" for n in range(3)),
        "birds: 997 more rejected (invalid: no)",
    ]


def test_the_last_file_is_named() -> None:
    """A person can open what was saved last."""
    saved = replace(event("fox", ItemState.DONE), kind="file_saved", state=None, detail={"path": "out/fox.png"})

    assert last_ended([saved, event("fox", ItemState.DONE)]) == "fox done: out/fox.png"
    assert last_ended([saved]) is None
    assert last_ended([saved, event("fox", ItemState.DONE), event("owl", ItemState.FAILED)]) == "owl failed"
