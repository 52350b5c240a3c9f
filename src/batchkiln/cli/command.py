"""The parts of a command: common options, a job argument with shell completion, its coroutine, and signals."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, Literal, ParamSpec

import click
from msgspec import Struct
from msgspec.structs import replace

from batchkiln.cli.output import (
    is_terminal,
    name_queue_in_commands,
    print_status,
    wrapped,
    write_status_as_json,
)
from batchkiln.cli.streams import ignore_closed_output
from batchkiln.core.errors import ExitStatus
from batchkiln.object_storage import StorageSettings, configure as configure_storage

if TYPE_CHECKING:  # the help of a command needs none of these
    from click.shell_completion import CompletionItem

    from batchkiln.api import QueueLocation
    from batchkiln.config import Config

DEFAULT_QUEUE: Final = ".batchkiln/queue.db"
_KEY: Final = "batchkiln.common"
_QUEUE_HELP: Final = f"The queue: a file, or postgresql://…; default {DEFAULT_QUEUE}, or $BATCHKILN_QUEUE."
_CONFIG_HELP: Final = "The configuration file; default batchkiln.yaml, or $BATCHKILN_CONFIG."
_PROFILE_HELP: Final = "The service to use; takes precedence over the manifest."
_QUIET_HELP: Final = "No progress; warnings and errors are still logged. -qq: only errors."
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_SERVER_QUIET_HELP: Final = "No log line per request, only warnings and errors."


class Common(Struct, frozen=True):
    """The values of the common options. `verbosity` is the number of -v minus the number of -q."""

    queue: "QueueLocation"
    config_path: Path | None
    profile: str | None
    is_json: bool
    verbosity: int
    log_format: Literal["auto", "json"]
    log_file: Path | None = None
    log_level: str | None = None
    named_config: Path | None = None  # --config, without $BATCHKILN_CONFIG
    arguments: tuple[str, ...] = ()  # the whole command line, for the command that resumes

    @property
    def is_quiet(self) -> bool:
        """Whether -q was given, which turns progress off."""
        return self.verbosity < 0

    @property
    def queue_option(self) -> str:
        """The option that names the queue, after a space, for a command in a text; empty if none was given."""
        from batchkiln.api import hide_passwords  # noqa: PLC0415  see above

        is_given = any(argument.split("=")[0] == "--queue" for argument in self.arguments)
        return f" --queue {shlex.quote(hide_passwords(str(self.queue)))}" if is_given else ""

    def load_config(self) -> "Config":
        """Read the configuration. Raise `InputError` if it is invalid or does not contain the --profile."""
        from batchkiln.config import load_config  # noqa: PLC0415  see above

        config = load_config(self.config_path, os.environ)
        if self.profile is not None:
            config.profile(self.profile)
        return config


def common_of(context: click.Context) -> Common:
    """Return the common options of the group and the command; those of the command take precedence."""
    given: dict[str, Any] = context.meta.get(_KEY, {})
    config = given.get("config") or os.environ.get("BATCHKILN_CONFIG")
    queue = given.get("queue") or os.environ.get("BATCHKILN_QUEUE")
    common = Common(
        queue=_queue(queue, Path(config) if config else None),
        config_path=Path(config) if config else None,
        profile=given.get("profile"),
        is_json=bool(given.get("is_json")),
        verbosity=int(given.get("verbose", 0)) - int(given.get("quiet", 0)),
        log_format=given.get("log_format") or "auto",
        log_file=Path(given["log_file"]) if "log_file" in given else None,
        log_level=given.get("log_level"),
        named_config=Path(given["config"]) if "config" in given else None,
        arguments=context.find_root().obj or (),
    )
    configure_storage(lambda: _storage_settings(common))
    name_queue_in_commands(common.queue_option)
    return common


def can_ask_person() -> bool:
    """Return whether questions can be asked: on a terminal, and without --no-input."""
    context = click.get_current_context(silent=True)
    is_refused = context is not None and bool(context.meta.get(_KEY, {}).get("no_input"))
    return not is_refused and is_terminal(sys.stdin) and is_terminal(sys.stderr)


def _storage_settings(common: Common) -> StorageSettings:
    return common.load_config().object_storage.read()


def location_of(common: Common, text: str) -> "QueueLocation":
    """Return the location of the queue that a person named, with the configured options of a database."""
    return _queue(text, common.config_path)


def _queue(named: str | None, config: Path | None) -> "QueueLocation":
    """Return the location of a queue: the named one, or the configured one; a database with its configured options."""
    from batchkiln.api import parse_location  # noqa: PLC0415  see above
    from batchkiln.config import queue_path, queue_setting  # noqa: PLC0415

    location = None if named is None else parse_location(named)
    if isinstance(location, Path):
        return queue_path(location)
    setting = queue_setting(config, os.environ)
    if location is None:
        location = parse_location(setting.place or DEFAULT_QUEUE)
    if isinstance(location, Path):
        return queue_path(location)
    return replace(location, may_lose_commits=setting.may_lose_commits, shared_dir=setting.shared_dir)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store the value of an option that was given; it replaces a value given before the command's name."""
    if value is None or value is False or value == 0 or parameter.name is None:
        return
    context.meta.setdefault(_KEY, {})[parameter.name] = value


def common_options(*, is_server: bool = False) -> list[click.Parameter]:
    """Return the common options. They are not passed to the command's function; `common_of` returns their values.

    Commands of the local service accept the same options; the help hides those without effect.
    """
    config = "The configuration of the local service." if is_server else _CONFIG_HELP
    return [
        _option("--queue", type=click.Path(), metavar="QUEUE", help=_QUEUE_HELP, hidden=is_server),
        _option("--config", type=click.Path(), metavar="FILE", help=config),
        _option("--profile", type=ProfileName(), metavar="NAME", help=_PROFILE_HELP, hidden=is_server),
        _option("--json", "is_json", is_flag=True, help="Machine-readable results on standard output."),
        _option("-v", "--verbose", count=True, help="A more detailed log; -vv for all details."),
        _option("-q", "--quiet", count=True, help=_SERVER_QUIET_HELP if is_server else _QUIET_HELP),
        _option("--no-input", is_flag=True, help="Ask no questions, as if there were no terminal.", hidden=is_server),
        _option("--log-format", type=click.Choice(["auto", "json"]), help="Log lines for people, or JSON objects."),
        _option("--log-level", type=click.Choice(_LOG_LEVELS), help="The least severe events of the log."),
        _option(
            "--log-file", type=click.Path(), metavar="FILE", help="Append the log to a file, not to standard error."
        ),
    ]


def _option(*names: str, **settings: Any) -> click.Option:  # noqa: ANN401  click's own
    return click.Option(names, expose_value=False, callback=_keep, **settings)


P = ParamSpec("P")
Body = Callable[Concatenate[Common, P], ExitStatus]


class Command(click.Command):
    """A command with examples at the end of its help."""

    is_server: ClassVar[bool] = False

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:  # noqa: ANN401  click's own signature
        """Initialize with click's arguments; `example` has one command line per line."""
        super().__init__(*args, **kwargs)
        self._common = common_options(is_server=self.is_server)
        self.params += self._common
        self.example = example

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the names of the option for help, which click keeps from the first context that asks."""
        del ctx
        return ["-h", "--help"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and only the names of the common ones, which the program's help explains."""
        if self.is_server:  # other common options, with other meanings
            super().format_options(ctx, formatter)
            return
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        own = [each.get_help_record(ctx) for each in options if each not in self._common]
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record is not None])
        names = ", ".join(each.opts[0] for each in self._common)
        with formatter.section("Options of every command, explained by `batchkiln --help`"):
            formatter.write_text(names)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

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


def set_up_logging(common: Common, *, is_server: bool = False, verbosity: int | None = None) -> None:
    """Configure logging by the common options; `verbosity` replaces the number of -v."""
    from batchkiln.logs import configure_logging  # noqa: PLC0415  structlog takes longer to import than `status`

    is_for_people = common.log_file is not None and is_terminal(sys.stderr)
    write_status_as_json(is_wanted=common.log_format == "json" and not is_for_people)
    configure_logging(
        verbosity=common.verbosity if verbosity is None else verbosity,
        log_format=common.log_format,
        is_server=is_server,
        level_name=common.log_level,
        path=common.log_file,
        wrap=lambda line: wrapped(line, sys.stderr, hanging=4),
    )


def run_async(work: Coroutine[Any, Any, ExitStatus]) -> ExitStatus:
    """Run a command's coroutine and return its exit status."""
    import asyncio  # noqa: PLC0415  as above

    return asyncio.run(work)


class JobName(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """The name of a job in the queue, with shell completion."""

    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Return the jobs whose names start with `incomplete`, or none if the queue cannot be read."""
        del param
        return _completed(lambda: _job_names(ctx), incomplete)


class ItemName(click.ParamType):  # type: ignore[type-arg]  # likewise
    """The name of an item, with shell completion from the job that precedes it on the command line."""

    name = "item"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Return the first items whose names start with `incomplete`."""
        del param
        return _completed(lambda: _item_names(ctx, incomplete), incomplete)


class ProfileName(click.ParamType):  # type: ignore[type-arg]  # likewise
    """The name of a profile of the configuration, with shell completion."""

    name = "profile"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Return the profiles whose names start with `incomplete`."""
        del param
        return _completed(lambda: sorted(common_of(ctx).load_config().profiles), incomplete)


class ModelName(click.ParamType):  # type: ignore[type-arg]  # likewise
    """The name of a model, with shell completion from the local service's catalogue, which needs no request."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Return the models whose names start with `incomplete`."""
        del ctx, param
        return _completed(_model_names, incomplete)


def _completed(names: Callable[[], Sequence[str]], incomplete: str) -> "list[CompletionItem]":
    """Return the names that start with a text; none if they cannot be read."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  only the shell asks

    try:
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001  a failed completion must not print into the user's command line
        return []


def _job_names(context: click.Context) -> Sequence[str]:
    from batchkiln.api.reading import job_names  # noqa: PLC0415  only completion needs it here

    return job_names(common_of(context).queue)


def _item_names(context: click.Context, prefix: str) -> Sequence[str]:
    from batchkiln.api.reading import item_names  # noqa: PLC0415  likewise

    # Before the value of an option is complete, click leaves the command's arguments unparsed.
    job = context.params.get("job") or context.args[0]
    return item_names(common_of(context).queue, job, prefix, _MOST_COMPLETED)


def _model_names() -> Sequence[str]:
    from batchkiln_service import load_catalog  # noqa: PLC0415  likewise

    return sorted(load_catalog())


JOB = JobName()
ITEM = ItemName()
MODEL = ModelName()
_MOST_COMPLETED: Final = 200


_FIRST = "Stopping: finishing the current work, and starting nothing new. A second signal stops immediately."


class Signals:
    """The received signal, and the callback that stops the work. Without a callback, a signal exits immediately.

    `resuming` is the command that continues the work, if there is one.
    """

    def __init__(self, first_text: str) -> None:
        """Start without a signal and without a callback; `first_text` is printed at the first signal."""
        self._first_text = first_text
        self.received: signal.Signals | None = None
        self.stop: Callable[[], None] | None = None
        self.resuming: str | None = None

    @property
    def exit_status(self) -> int | None:
        """128 plus the number of the received signal, or None."""
        return None if self.received is None else 128 + self.received

    def receive(self, number: signal.Signals) -> None:
        """Stop gracefully on the first signal, and exit immediately on the second, which is as safe as a crash."""
        if self.stop is None or self.received is not None:
            print_status("Stopped; everything is saved.")
            if self.resuming is not None:
                print_status(f"To resume: `{self.resuming}`")
            ignore_closed_output()
            sys.stdout.flush()
            os._exit(128 + number)
        self.received = number
        if self._first_text:
            print_status(self._first_text)
        self.stop()


@contextmanager
def handle_signals(first_text: str = _FIRST) -> Iterator[Signals]:
    """Handle SIGINT and SIGTERM in the running event loop."""
    import asyncio  # noqa: PLC0415  as above

    signals, loop = Signals(first_text), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, signals.receive, number)
    try:
        yield signals
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
