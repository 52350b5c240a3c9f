"""What a command is made of: its context, its job argument with completion, and how its coroutine is run."""

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
    """A command with an example of its use at the end of its help."""

    is_server: ClassVar[bool] = False

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:  # noqa: ANN401  click's own signature
        """Take click's arguments and the example, a line a use."""
        super().__init__(*args, **kwargs)
        self.params += common_options(is_server=self.is_server)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        del ctx
        with formatter.section("Example" if "\n" not in self.example else "Examples"):
            for line in self.example.splitlines():
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")


class ServerCommand(Command):
    """A command of the local service, which has neither queue nor profile."""

    is_server = True


def command(
    name: str, *, example: str, logs: bool = False, cls: type[Command] = Command
) -> Callable[[Body[P]], Command]:
    """Make a command of a function whose first argument is the common options; `logs` where it may log."""

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
    """Let the log begin, as the common options ask for it."""
    from batchkiln.logs import configure_logging  # noqa: PLC0415  structlog takes longer to import than `status`

    configure_logging(verbosity=common.verbosity, log_format=common.log_format, is_server=is_server)


def run_async(work: Coroutine[Any, Any, ExitStatus]) -> ExitStatus:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


class JobName(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """A job of the queue; completed by the shell."""

    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the jobs that begin so; a queue that cannot be read offers none."""
        del param
        return [CompletionItem(name) for name in _names(common_of(ctx)) if name.startswith(incomplete)]


def _names(common: Common) -> Sequence[str]:
    from batchkiln.store import open_reader  # noqa: PLC0415  only completion needs it here

    try:
        with open_reader(common.queue) as reader:
            return reader.jobs.names()
    except Exception:  # noqa: BLE001  a completion that fails must not write over the person's command line
        return ()


JOB = JobName()
