"""Bars on a terminal, and lines elsewhere."""

from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from batchkiln.cli import report
from batchkiln.cli.output import can_redraw, write_status_as_json
from batchkiln.cli.progress_bars import RateColumn


def test_a_bar_tells_its_rate_once_it_is_known() -> None:
    """It is that of the last seconds."""
    seconds = [0.0]
    bars = Progress(console=Console(file=StringIO()), get_time=lambda: seconds[0])
    drawn = bars.add_task("items", total=4000)
    column = RateColumn()

    before = column.render(bars.tasks[0]).plain
    for seconds[0] in (1.0, 2.0):
        bars.advance(drawn, 1500)

    assert before == ""
    assert column.render(bars.tasks[0]).plain == "1,500 a second"


@pytest.mark.parametrize(
    ("kind", "is_json_log", "is_drawn"), [("xterm", False, True), ("dumb", False, False), ("xterm", True, False)]
)
def test_bars_are_drawn_where_a_line_can_be_drawn_again(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, is_json_log: bool, is_drawn: bool
) -> None:
    """A terminal that moves no cursor gets lines, and a log of JSON gets objects."""
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr("batchkiln.cli.output.is_terminal", lambda _: True)

    write_status_as_json(is_wanted=is_json_log)
    try:
        assert can_redraw() is is_drawn
    finally:
        write_status_as_json(is_wanted=False)


def test_without_a_terminal_a_report_prints_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate and an end, as for every command that takes more than two seconds."""
    seconds = iter([100.0, 100.0, 105.0])
    monkeypatch.setattr(report, "boottime_seconds", lambda: next(seconds))

    with report._progress(is_shown=True) as on_added:
        on_added(50, 200)
        on_added(50, 200)

    assert capsys.readouterr().err == "100 of 200 items, 20 a second, 5 s left\n"
