# ruff: noqa: INP001  a script beside the pages that it writes, and no package
"""Write the manual pages of man(1) from the commands' own help: `python docs/make_man.py [FOLDER]`.

Without a folder, write also the recorded help that `--help` shows without importing the command.
"""

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click_man.core import generate_man_page

from batchkiln.cli import recorded_help
from batchkiln.cli.main import program

FOLDER: Final = Path(__file__).resolve().parent / "man"


def pages() -> Iterator[tuple[str, str]]:
    """Give each page's file name and text: one of the program, and one of each command and of those below it."""
    context = click.Context(program, info_name="batchkiln")
    yield from _pages(context)


def _pages(context: click.Context) -> Iterator[tuple[str, str]]:
    name = context.command_path.replace(" ", "-")
    yield f"{name}.1", _page(context, name)
    if isinstance(context.command, click.Group):
        for below in context.command.list_commands(context):
            command = context.command.get_command(context, below)
            assert command is not None, "it is listed"
            if not command.hidden:
                yield from _pages(click.Context(command, info_name=below, parent=context))


def _page(context: click.Context, name: str) -> str:
    """Give a page as click-man writes it, without its date, with the whole first sentence and the examples."""
    lines = [line.rstrip() for line in generate_man_page(context, version="").splitlines()]
    at = lines.index(".SH NAME") + 1
    summary = inspect.cleandoc(context.command.help or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    lines[at] = f"{name} - {summary}".replace("-", "\\-")
    title = f'.TH "{name.upper()}" "1" "" "batchkiln" "User Commands"'.replace("-", "\\-")
    body = [line for line in lines if not line.startswith(".TH")]
    examples = _examples(getattr(context.command, "example", None) or context.command.epilog or "")
    return "\n".join([title, *body, *_commands(context), *examples]) + "\n"


def _commands(context: click.Context) -> list[str]:
    """List what stands below a group, each with its page."""
    if not isinstance(context.command, click.Group):
        return []
    lines = [".SH COMMANDS"]
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        if command is not None and not command.hidden:
            page = f"{context.command_path} {name}".replace(" ", "-").replace("-", "\\-")
            lines += [".TP", f"\\fB{page}\\fP(1)", inspect.cleandoc(command.help or "").split("\n\n")[0]]
    return lines


def _examples(epilog: str) -> list[str]:
    commands = [line.removeprefix("Example:").strip() for line in epilog.replace("\b", "").splitlines()]
    if not any(commands):
        return []
    return [".SH EXAMPLES", ".nf", *(line.replace("-", "\\-") for line in commands if line), ".fi"]


def main() -> None:
    """Write all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, "utf-8")
    if folder == FOLDER:
        recorded_help.FILE.write_text(recorded_help.record(program), "utf-8")


if __name__ == "__main__":
    main()
