"""The help of each command, recorded as calls of a formatter, so that `--help` imports no command.

`docs/make_man.py` writes the file `help.json` from the commands themselves.
"""

import json
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

import click

FILE: Final = Path(__file__).with_name("help.json")
_RECORDED_WIDTH: Final = 100

Calls = list[list[Any]]
"""The calls of a formatter in order, each with the method's name and its arguments."""


class _Recorder(click.HelpFormatter):
    """Records the calls that write a help."""

    def __init__(self) -> None:
        super().__init__(width=_RECORDED_WIDTH, max_width=_RECORDED_WIDTH)
        self.calls: Calls = []

    def write(self, string: str) -> None:
        self.calls.append(["write", string])

    def indent(self) -> None:
        super().indent()
        self.calls.append(["indent"])

    def dedent(self) -> None:
        super().dedent()
        self.calls.append(["dedent"])

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        del prefix
        self.calls.append(["write_usage", prog, args])

    def write_heading(self, heading: str) -> None:
        self.calls.append(["write_heading", heading])

    def write_paragraph(self) -> None:
        self.calls.append(["write_paragraph"])

    def write_text(self, text: str) -> None:
        self.calls.append(["write_text", text])

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:  # noqa: ANN401  click's own
        del col_max, col_spacing
        self.calls.append(["write_dl", [list(row) for row in rows]])


class RecordedCommand(click.Command):
    """A command that can only write its help."""

    def __init__(self, name: str, calls: Calls) -> None:
        """Initialize with the recorded calls."""
        super().__init__(name)
        self._calls = calls

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the recorded help."""
        del ctx
        for method, *arguments in self._calls:
            if method == "write_commands":
                _write_commands(formatter, *arguments)
            elif method == "write_dl":
                formatter.write_dl([(name, text) for name, text in arguments[0]])
            else:
                getattr(formatter, method)(*arguments)


def _write_commands(formatter: click.HelpFormatter, rows: list[list[str]]) -> None:
    """Write the commands of a group, each with as much of its help as click shows at this width."""
    limit = formatter.width - 6 - max(len(name) for name, _ in rows)
    formatter.write_dl([(name, click.Command(name, help=text).get_short_help_str(limit)) for name, text in rows])


def recorded(path: str) -> RecordedCommand | None:
    """Return the help of a command by its words below the program; None if it is not recorded."""
    calls = _content().get(path)
    return None if calls is None else RecordedCommand(path, calls)


@cache
def _content() -> dict[str, Calls]:
    content: dict[str, Calls] = json.loads(FILE.read_text("utf-8"))
    return content


def record(group: click.Group) -> str:
    """Return the content of the file for a program."""
    content = dict(_recorded_below(click.Context(group, info_name="batchkiln", max_content_width=_RECORDED_WIDTH)))
    lines = ",\n".join(
        f"{json.dumps(path)}: {json.dumps(calls, ensure_ascii=False)}" for path, calls in content.items()
    )
    return f"{{\n{lines}\n}}\n"


def _recorded_below(context: click.Context) -> list[tuple[str, Calls]]:
    group, found = context.command, []
    assert isinstance(group, click.Group), "the caller has looked"
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, "it is listed"
        below = click.Context(
            command, info_name=name, parent=context, help_option_names=list(context.help_option_names)
        )
        recorder = _Recorder()
        command.format_help(below, recorder)
        found.append((below.command_path.partition(" ")[2], recorder.calls))
        if isinstance(command, click.Group):
            # Python 3.13 takes the indent from docstrings, and earlier versions leave it.
            listed = [[sub, cleandoc(command.commands[sub].help or "")] for sub in command.list_commands(below)]
            at = max(at for at, call in enumerate(recorder.calls) if call == ["write_heading", "Commands"])
            recorder.calls[at + 2] = ["write_commands", listed]  # after the indent
            found += _recorded_below(below)
    return found
