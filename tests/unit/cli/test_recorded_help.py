"""`--help` shows what the command itself would show, and imports none of the program."""

import subprocess
import sys
from typing import Final

import click
import pytest

from batchkiln.cli.main import program
from batchkiln.cli.recorded_help import FILE, record, recorded

HEAVY: Final = (
    *("batchkiln.api.queue", "batchkiln.api.engine", "batchkiln.store.reader", "batchkiln.store.sql"),
    *("batchkiln.manifest", "batchkiln.worker", "batchkiln.client", "batchkiln.presentation", "batchkiln.planning"),
    *("batchkiln.config", "aiohttp", "aiosqlite", "asyncio", "jinja2", "opentelemetry", "psycopg", "pydantic", "rich"),
    *("sqlite3", "structlog", "yaml"),
)


def commands(context: click.Context) -> list[click.Context]:
    """Return a context of each command below a group."""
    group, found = context.command, []
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        options = list(context.help_option_names)
        found.append(click.Context(command, info_name=name, parent=context, help_option_names=options))
        if isinstance(command, click.Group):
            found += commands(found[-1])
    return found


def test_the_recorded_help_is_current() -> None:
    """`docs/make_man.py` writes it."""
    assert FILE.read_text("utf-8") == record(program)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_recorded_help_is_the_commands_own(width: int) -> None:
    """Whatever the width of the terminal."""
    root = click.Context(program, info_name="batchkiln", terminal_width=width, max_content_width=width)
    for context in commands(root):
        path = context.command_path.partition(" ")[2]
        shown = recorded(path)
        assert shown is not None, path
        options = list(context.help_option_names)
        own = click.Context(shown, info_name=path, parent=root, help_option_names=options)
        assert shown.get_help(own) == context.command.get_help(context), path


@pytest.mark.parametrize("words", ["run --help", "plan -h", "doctor --help", "watch --help", "serve keys list --help"])
def test_help_imports_none_of_the_program(words: str) -> None:
    """A help that is slow to appear is not read."""
    script = (
        "import sys\nfrom batchkiln.cli.main import run_program\n"
        f"status = run_program({words.split()!r})\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)\nsys.exit(status)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Usage: batchkiln ")
    assert done.stderr.strip() == "[]"
