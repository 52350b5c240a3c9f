"""`batchkiln serve`: the commands of the local service, with this program's options, output and log."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from batchkiln.cli.command import Common, ServerCommand, common_of, set_up_logging
from batchkiln.cli.output import print_exact, print_json, print_json_lines, print_result, print_status
from batchkiln.cli.streams import ignore_closed_output
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln_service import CommandError, HostProgram, Problem, serve_commands

if TYPE_CHECKING:
    from batchkiln.yaml_reading.mapping_file import MappingFile


class ServeCommand(ServerCommand):
    """A command of the local service. It raises `InputError` for a `CommandError` of the service."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  click's own
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CommandError as error:
            raise InputError([_diagnostic(problem) for problem in error.problems]) from error


class ServeGroup(ServeCommand, click.Group):
    """A group of the service's commands. `default_command` runs if the first argument is not the name of a command."""

    def __init__(self, *args: Any, default_command: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        """Initialize with click's arguments and the default command."""
        super().__init__(*args, **kwargs)
        self.default_command = default_command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, or the default command."""
        is_argument = bool(args) and args[0] not in self.commands and not args[0].startswith("-")
        if self.default_command is not None and is_argument:
            args = [self.default_command, *args]
        return super().resolve_command(ctx, args)


def _options() -> Common:
    return common_of(click.get_current_context())


def _diagnostic(problem: Problem) -> Diagnostic:
    """Return a mistake, with the line of the file unless it may hold an API key (Law 8)."""
    line, column = problem.place or (None, None)
    found = Diagnostic(problem.reason, None if problem.file is None else str(problem.file), line, column)
    if problem.source_line is None:
        return found
    from batchkiln.yaml_reading.diagnostics import excerpt  # noqa: PLC0415  the help of `serve` needs none of it

    source_line, mark = excerpt(problem.source_line, column)
    return replace(found, source_line=source_line, mark=mark)


def _read_config(path: Path) -> "MappingFile":
    from batchkiln.yaml_reading.mapping_file import read_mapping  # noqa: PLC0415  the help of `serve` needs none of it

    try:
        return read_mapping(path, "the service's configuration")
    except InputError as error:
        raise InputError([replace(mistake, source_line=None, mark=None) for mistake in error.mistakes]) from error


serve = serve_commands(
    HostProgram(
        command=ServeCommand,
        group=ServeGroup,
        options=_options,
        read_config=_read_config,
        configure_logging=lambda: set_up_logging(_options(), is_server=True),
        print_exact=print_exact,
        print_json=print_json,
        print_json_lines=print_json_lines,
        print_result=print_result,
        print_status=print_status,
        ignore_closed_output=ignore_closed_output,
    )
)
