"""The table of `items`: columns that fit a terminal, and files that are never cut."""

import os
import sys
from io import StringIO

import pytest

from batchkiln.cli.items import fitted, layout_of
from batchkiln.core.states import ItemState

HEADINGS = ("ITEM", "STATE", "MODEL", "CREDITS", "PROMPT", "FILE OR ERROR")
ROW = ("fox-1", ItemState.DONE, "alpha-2.5-lite", "40", "A fox in fresh snow", "out/quickstart/fox-1.png")


@pytest.mark.parametrize(("columns", "has_own_lines"), [(60, True), (120, False)])
def test_a_file_without_room_beside_the_prompt_has_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, columns: int, *, has_own_lines: bool
) -> None:
    """The prompt then takes the rest of the first line, and no line is wider than the terminal."""
    out = StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))

    widths, is_split = layout_of([HEADINGS, ROW])

    assert is_split is has_own_lines
    assert sum(widths) + len(widths) - 1 <= columns
    assert widths[4] == (min(len(ROW[4]), 60 - 42) if has_own_lines else len(ROW[4]))


def test_verdicts_have_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as wide as its heading, and the other columns keep their rules."""
    monkeypatch.setattr(sys, "stdout", StringIO())

    without, _ = layout_of([HEADINGS, ROW])
    widths, _ = layout_of([(*HEADINGS[:2], "VERDICT", *HEADINGS[2:]), (*ROW[:2], "kept", *ROW[2:])])

    assert widths == (*without[:2], len("VERDICT"), *without[2:])


def test_a_row_stays_one_line_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal a row is a line, whatever its width."""
    monkeypatch.setattr(sys, "stdout", StringIO())

    assert layout_of([HEADINGS, ROW])[1] is False


def test_a_row_for_a_program_depends_on_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS cuts no prompt in a pipe."""
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr(sys, "stdout", StringIO())
    prompt = "A fox in fresh snow, watched by an owl. " * 5

    assert layout_of([HEADINGS, (*ROW[:4], prompt, ROW[5])])[0][4] == len(prompt)


def test_a_column_has_room_for_wide_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of six characters of two columns each takes twelve, and is not cut."""
    monkeypatch.setattr(sys, "stdout", StringIO())

    assert layout_of([HEADINGS, ("日本語日本語", *ROW[1:])])[0][0] == 12


def test_long_id_keeps_its_end_and_leaves_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids differ at their ends more often than at their beginnings. A short prompt leaves the id more room."""
    out = StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))
    name = "-".join(["photo"] * 12) + "-0042"

    long_prompt, _ = layout_of([HEADINGS, (name, *ROW[1:4], "A fox in fresh snow " * 5, ROW[5])])
    short_prompt, _ = layout_of([HEADINGS, (name, *ROW[1:4], "A fox", "out/a-folder-for-one-long-name/fox-1.png")])

    assert long_prompt[0] == 20
    assert short_prompt[0] > 20
    assert all(sum(widths) + len(widths) - 1 <= 80 for widths in (long_prompt, short_prompt))
    assert fitted(name, 20) == "photo-phot…hoto-0042"
    assert fitted("A fox in fresh snow", 12) == "A fox in …"
    assert fitted("A fox", 12) == "A fox"
