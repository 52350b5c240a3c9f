"""The interface between the `serve` commands and the program that offers them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any, Protocol

import click
from msgspec import Struct


class Problem(Struct, frozen=True):
    """A mistake, with the file and the place in it, line and column from 1, as far as they are known.

    `source_line` is the text of the line, if it holds no API key.
    """

    reason: str
    file: Path | None = None
    place: tuple[int, int] | None = None
    source_line: str | None = None


class CommandError(Exception):
    """An error that a person has to fix; nothing was changed."""

    def __init__(self, problems: str | Sequence[Problem]) -> None:
        self.problems = (Problem(problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(problem.reason for problem in self.problems))


class ConfigFile(Protocol):
    """The mapping in a YAML file, with the places of its values."""

    @property
    def values(self) -> dict[str, Any]:
        """The values of YAML 1.2."""
        ...

    def place(self, location: Sequence[str | int], *, is_key: bool = False) -> tuple[int, int] | None:
        """Return line and column, from 1, of the deepest part of a location that is in the file; or of its key."""
        ...


class Options(Protocol):
    """The options that the program offers for each of its commands."""

    @property
    def is_json(self) -> bool:
        """Whether results are written as JSON."""
        ...

    @property
    def named_config(self) -> Path | None:
        """The file named by `--config` on the command line."""
        ...


class HostProgram(Struct, frozen=True):
    """The functions and classes that the host program provides.

    `command` and `group` make click commands with the program's common options; both take click's arguments and
    `example`, and turn `CommandError` into the program's own error. `options` returns the common options of the running
    command. `read_config` reads a YAML file strictly, and raises an error of the program's own.
    `print_result` writes a line to standard output, `print_exact` one that a person copies as a whole, and
    `print_status` one to standard error. `ignore_closed_output` keeps a server running when the reader of its standard
    output has gone.
    """

    command: Callable[..., click.Command]
    group: Callable[..., click.Group]
    options: Callable[[], Options]
    read_config: Callable[[Path], ConfigFile]
    configure_logging: Callable[[], None]
    print_exact: Callable[[str], None]
    print_json: Callable[[Mapping[str, Any]], None]
    print_json_lines: Callable[[list[dict[str, Any]]], None]
    print_result: Callable[[str], None]
    print_status: Callable[[str], None]
    ignore_closed_output: Callable[[], None]

    def make_command(
        self, name: str, body: Callable[..., None], *, params: Sequence[click.Parameter], example: str
    ) -> click.Command:
        """Return a command that calls `body` with this program and the parameters; its help is the docstring."""
        return self.command(
            name=name, callback=partial(body, self), params=list(params), example=example, help=_help_of(body)
        )

    def make_group(
        self,
        name: str,
        body: Callable[..., None],
        *,
        params: Sequence[click.Parameter],
        example: str,
        commands: Sequence[click.Command],
        **settings: Any,  # noqa: ANN401 - click's own
    ) -> click.Group:
        """Return a group of commands. Its help is the docstring of `body`, as for `make_command`."""
        return self.group(
            name=name,
            callback=partial(body, self),
            params=list(params),
            example=example,
            help=_help_of(body),
            commands=list(commands),
            **settings,
        )


def _help_of(body: Callable[..., None]) -> str:
    return cleandoc(body.__doc__ or "")
