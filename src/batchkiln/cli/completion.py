"""`batchkiln completion`."""

import click
from click.shell_completion import get_completion_class

from batchkiln.cli.command import command
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_result
from batchkiln.core.errors import ExitStatus

VARIABLE = "_BATCHKILN_COMPLETE"


@command(
    "completion",
    example="batchkiln completion bash >> ~/.bashrc\n"
    "batchkiln completion fish > ~/.config/fish/completions/batchkiln.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(common: Common, shell: str) -> ExitStatus:
    """Print the completion script of SHELL; it completes commands, options and the queue's jobs."""
    from batchkiln.cli.main import program  # noqa: PLC0415  the program knows its commands, not they it

    del common  # a script is a script with or without --json
    found = get_completion_class(shell)
    assert found is not None, "click knows these shells"
    print_result(found(program, {}, "batchkiln", VARIABLE).source())
    return ExitStatus.OK
