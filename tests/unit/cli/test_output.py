"""Untrusted texts cannot control the terminal: no cursor moves, no bell, no markup."""

import os
import sys
from collections.abc import Callable
from io import StringIO
from itertools import pairwise

import pytest
from rich.table import Table
from rich.text import Text

from batchkiln.cli.output import line_breaks, print_exact, print_result, print_status, question_text
from batchkiln.cli.rich_console import SafeConsole, console
from batchkiln.core.errors import Diagnostic

EVIL = "a\x1b[2Jb\x9b31m\x07c\r\x08d\u202ee\u2028f"


def _print_table(text: str) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    SafeConsole(width=200).print(table)


WAYS: dict[str, Callable[[str], None]] = {
    "say": print_result,
    "tell": print_status,
    "print": lambda text: SafeConsole(width=200).print(text),
    "text": lambda text: SafeConsole(width=200, stderr=True).print(Text(text, style="red")),
    "table": _print_table,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_would_move_the_cursor_does_not_arrive(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences, bells, and what turns the direction of writing become spaces, whoever let them through."""
    out, err = StringIO(), StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    WAYS[way](EVIL)

    arrived = out.getvalue() + err.getvalue()
    assert "[2Jb" in arrived
    assert all(character.isprintable() or character == "\n" for character in arrived), ascii(arrived)


def test_lines_and_columns_stay(capsys: pytest.CaptureFixture[str]) -> None:
    """A message of several lines keeps them, its tabs and its letters."""
    print_result("red  fox\n\t\N{FOX FACE} é")

    assert capsys.readouterr().out == "red  fox\n\t\N{FOX FACE} é\n"


def test_colours_stay() -> None:
    """On a terminal the program's own styles are shown."""
    out = StringIO()

    SafeConsole(file=out, force_terminal=True, color_system="standard").print(Text("red", style="red"))

    assert out.getvalue() == "\x1b[31mred\x1b[0m\n"


def test_brackets_are_no_markup() -> None:
    """A folder or a prompt with brackets is shown as it is."""
    out = StringIO()

    SafeConsole(file=out).print("Files are in /tmp/[bold]x :fox:")

    assert out.getvalue() == "Files are in /tmp/[bold]x :fox:\n"


def narrow_terminal(monkeypatch: pytest.MonkeyPatch, stream: str = "stdout", columns: int = 20) -> StringIO:
    """Standard output or error as a narrow terminal."""
    out = StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(out, "fileno", lambda: 1)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    monkeypatch.setattr(sys, stream, out)
    return out


def test_what_a_program_reads_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal nothing is wrapped."""
    text = "file: /a/very/long/path/of/a/picture.png (image/png)"
    print_result(text)

    assert capsys.readouterr().out == text + "\n"


def test_a_result_is_wrapped_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is left whole, so that it can be copied."""
    out = narrow_terminal(monkeypatch)

    print_result("file: /a/very/long/path/of/a/picture.png (image/png)")

    assert out.getvalue().splitlines() == ["file:", "/a/very/long/path/of/a/picture.png", "(image/png)"]


def test_a_dumb_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are wrapped where it ends, too."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "60")
    narrow_terminal(monkeypatch)

    assert console().is_dumb_terminal
    assert console().width == 60


def test_a_table_in_a_pipe_has_the_same_lines_for_all_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the width of the terminal that standard error is on, nor COLUMNS folds a cell."""
    monkeypatch.setenv("COLUMNS", "20")
    out = StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    table = Table(box=None, pad_edge=False)
    table.add_column("JOB", overflow="fold")
    table.add_row("field-guide-of-birds-and-foxes")

    console().print(table)

    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["JOB", "field-guide-of-birds-and-foxes"]


def test_a_continuation_hangs_below_an_indented_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns further in than its line, or as far in as the caller says; the last column is not exceeded."""
    out = narrow_terminal(monkeypatch)

    print_result("  prompt: a red fox in fresh snow\nnext to a fence that is old")
    print_result("  modes  text, image, video", hanging=9)

    assert out.getvalue().splitlines() == [
        "  prompt: a red fox",
        "    in fresh snow",
        "next to a fence that",
        "is old",
        "  modes  text,",
        "         image,",
        "         video",
    ]


def test_what_is_copied_whole_is_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell's line would be another one with a line break in it."""
    out = narrow_terminal(monkeypatch)

    print_exact('export KEY="$(cat /a/key of mine)"')

    assert out.getvalue() == 'export KEY="$(cat /a/key of mine)"\n'


def test_a_question_is_wrapped_with_room_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line and ` [y/N]: y` fit the terminal together."""
    narrow_terminal(monkeypatch, "stderr", 30)

    lines = question_text("This may spend about 1,540 credits. Continue?").splitlines()

    assert lines == ["This may spend about", "1,540 credits.", "Continue?"]


def test_a_command_stays_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken over two lines and pasted, `batchkiln cancel JOB ITEM` would cancel the whole job."""
    out = narrow_terminal(monkeypatch)

    print_result("Try (`batchkiln cancel birds fox-1`), which ends it; a ` alone is a sign.")

    assert out.getvalue().splitlines() == [
        "Try",
        "(`batchkiln cancel birds fox-1`),",
        "which ends it; a `",
        "alone is a sign.",
    ]


def test_a_console_keeps_a_command_on_one_line() -> None:
    """Rich's texts are wrapped at the same places."""
    out = StringIO()

    SafeConsole(file=out, force_terminal=True, width=20, soft_wrap=True).print("next: `batchkiln unpause birds`")

    assert out.getvalue().splitlines() == ["next:", "`batchkiln unpause birds`"]


def test_wide_characters_count_as_the_columns_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of two columns each do not fit a terminal of twenty."""
    out = narrow_terminal(monkeypatch)

    print_result("日本語日本語 日本語日本語")

    assert out.getvalue().splitlines() == ["日本語日本語", "日本語日本語"]


def test_the_mark_below_a_line_of_a_file_stays_below_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal breaks both where it ends, so neither is wrapped between words; what surrounds them is."""
    err = narrow_terminal(monkeypatch, "stderr")
    shown = "    - {prompt: a red fox, promt: x}"
    mistake = Diagnostic("`promt` is no field of an item", "m.yaml", 5, 23, shown.strip())

    print_status(f"{mistake}\n{shown}\nnothing was sent or charged")

    assert err.getvalue().splitlines() == [
        "m.yaml:5:23: `promt`",
        "is no field of an",
        "item",
        shown,
        " " * 26 + "^",
        "    - {prompt: a red",
        "      fox, promt: x}",
        "nothing was sent or",
        "charged",
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("it ends in about 3 h 10 min (2 h 40 min to 3 h 50 min)", ["3 h 10 min", "2 h 40 min", "3 h 50 min"]),
        ("Saved field-guide/red-fox.png, 51.9 KiB, for 1,024 credits", ["51.9 KiB", "1,024 credits"]),
        ("the local service's clock (60 times as fast), at 100 %", ["(60 times", "100 %"]),
        ("at 2030-01-01 12:00 UTC", ["12:00 UTC"]),
    ],
)
def test_a_line_ends_neither_in_a_duration_nor_before_a_unit(text: str, parts: list[str]) -> None:
    """At any width at which they fit."""
    for width in range(max(map(len, parts)) + 1, len(text)):
        breaks = [0, *line_breaks(text, width), len(text)]
        lines = [text[start:end] for start, end in pairwise(breaks)]
        for part in parts:
            assert any(part in line for line in lines), (width, lines)


def test_a_number_before_a_comma_has_no_unit() -> None:
    """A line may end there."""
    assert line_breaks("aspect_ratio=1:1, resolution=720p", 20) == [len("aspect_ratio=1:1, ")]
