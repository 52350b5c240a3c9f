"""Every command has help, an example, and a place in the manual."""

from pathlib import Path

import click
import pytest

from batchkiln.cli.command import Command
from batchkiln.cli.main import GROUPS, SUMMARIES, program

MANUAL = Path(__file__).parents[3] / "docs" / "commands.md"
CONTEXT = click.Context(program, info_name="batchkiln")
NAMES = program.list_commands(CONTEXT)
COMMON = {
    "queue",
    "config",
    "profile",
    "is_json",
    "verbose",
    "quiet",
    "log_format",
    "log_file",
    "log_level",
    "no_input",
}


def found(name: str) -> Command:
    command = program.get_command(CONTEXT, name)
    assert isinstance(command, Command)
    return command


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_help_with_an_example(name: str) -> None:
    """--help says what it does, and shows a use that begins as a person would type it."""
    command = found(name)

    text = command.get_help(click.Context(command, info_name=name, parent=CONTEXT))

    assert command.help
    assert "Example" in text
    assert f"batchkiln {name}" in command.example


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_command_is_explained(name: str) -> None:
    """No option is listed without a word."""
    options = [parameter for parameter in found(name).params if isinstance(parameter, click.Option)]

    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_the_common_options(name: str) -> None:
    """The common options may stand behind any command (contract, section 4)."""
    assert {parameter.name for parameter in found(name).params} >= COMMON


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_a_section_in_the_manual(name: str) -> None:
    """docs/commands.md has a page for each command, with each of its own options."""
    _, _, rest = MANUAL.read_text("utf-8").partition(f"\n## {name}\n")
    section = rest.partition("\n## ")[0]

    assert "```" in section
    own = [entry for entry in found(name).params if isinstance(entry, click.Option) and entry.name not in COMMON]
    assert [option.opts[-1] for option in own if f"`{option.opts[-1]}" not in section] == []


def test_the_summary_of_each_command_is_there() -> None:
    """The group's help lists all commands and no others."""
    assert list(SUMMARIES) == NAMES


def test_each_command_is_in_one_section_of_the_help() -> None:
    """A command that no section has would be found by nobody."""
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(SUMMARIES)


def test_the_common_options_are_explained_once() -> None:
    """The help of a command names them, and the program's help explains them."""
    command = found("run")
    text = command.get_help(click.Context(command, info_name="run", parent=CONTEXT))

    assert "--queue, --config, --profile, --json" in " ".join(text.split())
    assert "Append the log" not in text
    assert "--max-credits N" in text
    assert "Append the log" in program.get_help(CONTEXT)
