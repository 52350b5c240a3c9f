"""The parts of a command: common options, a job argument with shell completion, and a runner for its coroutine."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec

import click
from click.shell_completion import CompletionItem

from batchkiln.cli.options import Common, common_of, common_options
from batchkiln.core.errors import ExitStatus

P = ParamSpec("P")
Body = Callable[Concatenate[Common, P], ExitStatus]


class Command(click.Command):
    """A command with examples at the end of its help."""

    is_server: ClassVar[bool] = False

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:  # noqa: ANN401  click's own signature
        """Initialize with click's arguments; `example` has one command line per line."""
        super().__init__(*args, **kwargs)
        self.params += common_options(is_server=self.is_server)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        del ctx
        with formatter.section("Example" if "\n" not in self.example else "Examples"):
            for line in self.example.splitlines():
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")


class ServerCommand(Command):
    """A command of the local service, which has no queue and no profile."""

    is_server = True


def command(
    name: str, *, example: str, logs: bool = False, cls: type[Command] = Command
) -> Callable[[Body[P]], Command]:
    """Decorate a function as a command. The function receives `Common` first; `logs` sets up logging before it."""

    def decorate(body: Body[P]) -> Command:
        @wraps(body)
        def callback(*args: P.args, **kwargs: P.kwargs) -> ExitStatus:
            common = common_of(click.get_current_context())
            if logs:
                set_up_logging(common)
            return body(common, *args, **kwargs)

        made: Command = click.command(name, cls=cls, example=example)(callback)
        return made

    return decorate


def set_up_logging(common: Common, *, is_server: bool = False) -> None:
    """Configure logging by the common options."""
    from batchkiln.logs import configure_logging  # noqa: PLC0415  structlog takes longer to import than `status`

    configure_logging(verbosity=common.verbosity, log_format=common.log_format, is_server=is_server)


def run_async(work: Coroutine[Any, Any, ExitStatus]) -> ExitStatus:
    """Run a command's coroutine and return its exit status."""
    return asyncio.run(work)


class JobName(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """The name of a job in the queue, with shell completion."""

    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the jobs whose names start with `incomplete`, or none if the queue cannot be read."""
        del param
        return [CompletionItem(name) for name in _names(common_of(ctx)) if name.startswith(incomplete)]


def _names(common: Common) -> Sequence[str]:
    from batchkiln.store import open_reader  # noqa: PLC0415  only completion needs it here

    try:
        with open_reader(common.queue) as reader:
            return reader.jobs.names()
    except Exception:  # noqa: BLE001  a failed completion must not print into the user's command line
        return ()


JOB = JobName()
