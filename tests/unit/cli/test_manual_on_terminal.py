"""The manual on a terminal: YAML and commands can be copied."""

from io import StringIO

import pytest

from batchkiln.cli.help_command import pages
from batchkiln.cli.manual_markdown import ManualMarkdown
from batchkiln.cli.rich_console import SafeConsole


def shown(text: str) -> list[str]:
    """Print Markdown to a terminal of 40 columns, and return the lines."""
    out = StringIO()
    console = SafeConsole(file=out, force_terminal=True, color_system=None, width=40, soft_wrap=True)
    ManualMarkdown(text).print_to(console)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("name", pages())
def test_the_lines_of_code_are_as_in_the_manual(name: str) -> None:
    """Neither wrapped, nor cut, nor indented, nor filled up with spaces."""
    code, is_code = list[str](), False
    for line in pages()[name].read_text("utf-8").splitlines():
        if line.startswith("```"):
            is_code = not is_code
        elif is_code:
            code.append(line)

    assert not set(code) - set(shown(pages()[name].read_text("utf-8")))


def test_prose_is_wrapped_beside_code() -> None:
    """The long line stays whole, and the paragraph fits the terminal."""
    command = "batchkiln run birds.yaml foxes.yaml --max-credits 500"
    lines = shown(f"Words that take more than one line of forty columns.\n\n```console\n{command}\n```\n")

    assert command in lines
    assert all(len(line) <= 40 for line in lines if line != command)
