"""The program: find and run a command, and turn an error into one message and an exit status."""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click
from msgspec.structs import asdict

from batchkiln.cli.command import common_options
from batchkiln.cli.output import print_error, print_json_lines, print_status, write_status_as_json
from batchkiln.cli.recorded_help import recorded
from batchkiln.cli.streams import OutputClosed
from batchkiln.core.errors import BatchkilnError, Diagnostic, ExitStatus, InputError
from batchkiln.core.filename_encoding import FILENAME_ENCODING_ERROR, can_encode_filenames
from batchkiln.core.suggestions import closest, did_you_mean

_WRONG_NUMBER: Final = re.compile("is not a valid (integer|float)(?: range)?")
_NUMBERS: Final = {"integer": "is not a whole number, such as 5", "float": "is not a number, such as 1.5"}
_RANGE: Final = re.compile(r"is not in the range (?:([^<>=\s]+)<=)?x(?:(<=|>=)([^<>=\s]*\d))?")
_SUGGESTION: Final = re.compile(r"\.? \(?(?:Possible options|Did you mean(?: one of)?):? [^?)]*[?)]*$")
_NOT_ONE_OF: Final = re.compile("'([^']*)' is not (?:one of )?('.*')")
_NO_COMMAND: Final = re.compile("^No such command '([^']*)'")
_QUOTED: Final = re.compile("'([^']*)'")
_VERBOSE: Final = re.compile("-q*v+")
_COMMANDS: Final = {
    "run": ("batchkiln.cli.run", "run"),
    "plan": ("batchkiln.cli.plan_command", "plan"),
    "rehearse": ("batchkiln.cli.rehearse", "rehearse"),
    "enqueue": ("batchkiln.cli.enqueue", "enqueue"),
    "work": ("batchkiln.cli.run", "work"),
    "watch": ("batchkiln.cli.watch", "watch"),
    "status": ("batchkiln.cli.status", "status"),
    "events": ("batchkiln.cli.events_command", "events"),
    "items": ("batchkiln.cli.items", "items"),
    "show": ("batchkiln.cli.show", "show"),
    "retry": ("batchkiln.cli.job_commands", "retry"),
    "redo": ("batchkiln.cli.version_commands", "redo"),
    "use-version": ("batchkiln.cli.version_commands", "use_version"),
    "fetch": ("batchkiln.cli.version_commands", "fetch"),
    "review": ("batchkiln.cli.review", "review"),
    "cancel": ("batchkiln.cli.job_commands", "cancel"),
    "pause": ("batchkiln.cli.job_commands", "pause"),
    "unpause": ("batchkiln.cli.job_commands", "unpause"),
    "resolve": ("batchkiln.cli.job_commands", "resolve"),
    "models": ("batchkiln.cli.models", "models"),
    "balance": ("batchkiln.cli.models", "balance"),
    "ask-again": ("batchkiln.cli.job_commands", "ask_again"),
    "doctor": ("batchkiln.cli.doctor", "doctor"),
    "migrate": ("batchkiln.cli.migrate", "migrate"),
    "queue": ("batchkiln.cli.queue_command", "queue"),
    "workers": ("batchkiln.cli.workers", "workers"),
    "export": ("batchkiln.cli.export_command", "export"),
    "report": ("batchkiln.cli.report", "report"),
    "dashboard": ("batchkiln.cli.dashboard", "dashboard"),
    "token": ("batchkiln.cli.token", "token"),
    "init": ("batchkiln.cli.setup_commands", "init"),
    "schema": ("batchkiln.cli.setup_commands", "schema"),
    "serve": ("batchkiln.cli.serve", "serve"),
    "completion": ("batchkiln.cli.setup_commands", "completion"),
    "help": ("batchkiln.cli.help_command", "help_topic"),
}
"""The module and attribute of each command. A module is imported only for its command, for a fast start."""


_OTHER_WORDS: Final = {
    "continue": "run",
    "delete": "cancel",
    "download": "fetch",
    "kill": "cancel",
    "list": "status items",
    "log": "events",
    "logs": "events",
    "ls": "status items",
    "new": "init",
    "price": "plan",
    "ps": "status",
    "rm": "cancel",
    "start": "run",
    "stop": "pause",
    "submit": "enqueue",
    "ui": "dashboard",
    "version": "--version",
    "web": "dashboard",
}
"""Names of commands in other programs, and the commands here: jobs are listed by one, and their items by another."""

_OTHER_OPTIONS: Final = {
    "--budget": "--max-credits",
    "--count": "--limit",
    "--credits": "--max-credits",
    "--filter": "--only",
    "--follow": "--watch",
    "--force": "--yes",
    "--live": "--watch",
    "--max-cost": "--max-credits",
    "--number": "--limit",
    "--out": "--to",
    "--output": "--to",
    "--random": "--sample",
    "--tail": "--last",
    "--timeout": "--contact-timeout",
    "--watch": "--follow",
}
"""Names of options in other programs and commands, and the options here, for the commands that have these."""


class Program(click.Group):
    """The group of all commands, in the order of first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name]
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, or fail with a suggestion. For `--help`, return its recorded help."""
        if args and args[-1] in ctx.help_option_names and (found := recorded(" ".join(args[:-1]))) is not None:
            return found.name, found, [args[-1]]
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            meant = did_you_mean(closest(args[0], _COMMANDS, others=_OTHER_WORDS))
            raise click.UsageError(f"there is no command `{args[0]}`{f'; {meant}' if meant else ''}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its summary, in groups, without importing its module."""
        del ctx
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, SUMMARIES[name]) for name in names])


SUMMARIES: Final = {
    "run": "Enqueue manifests, then run the queue until their jobs have ended.",
    "plan": "Show what run would do, what it would cost, and when it would end.",
    "rehearse": "Run manifests in virtual time, to see the cost, the days and the problems first.",
    "enqueue": "Only put manifests into the queue.",
    "work": "Run the whole queue.",
    "watch": "Run manifests that appear in a folder, and write the results beside them.",
    "status": "Show the progress of the jobs and when they will end.",
    "events": "Print the history of the queue, and follow new events.",
    "items": "List a job's items with their states.",
    "show": "Show the state and the whole history of one item.",
    "retry": "Queue ended items again.",
    "redo": "Make done items again, and keep the files that they have.",
    "use-version": "Make the files of an earlier version of an item current.",
    "fetch": "Download missing files of done items again, at no cost.",
    "review": "Keep or drop done items, and choose among variants.",
    "cancel": "Cancel items that were never sent.",
    "pause": "Start no new items of a job.",
    "unpause": "Resume a paused job.",
    "resolve": "Decide about a held item.",
    "models": "List the models of the service, and the prices of a manifest or a job.",
    "balance": "Show the remaining credits.",
    "ask-again": "Repeat requests whose replies were not understood.",
    "doctor": "Check configuration, API keys, service, disk and queue, at no cost.",
    "migrate": "Create or update the queue in a PostgreSQL database.",
    "queue": "Move a queue between a file and a PostgreSQL database.",
    "workers": "List the workers that share a queue in a database.",
    "export": "Make a dataset from the outputs of a job.",
    "report": "Write a job as one HTML file to view and share.",
    "dashboard": "Serve the web dashboard of this queue.",
    "token": "Generate a token for the HTTP interface.",
    "init": "Write a first manifest.",
    "schema": "Print the JSON Schema of the manifest, for editors.",
    "serve": "Run the local service as a separate server.",
    "completion": "Print the completion script for a shell.",
    "help": "Show a page of the manual, or the help of a command.",
}

GROUPS: Final = {
    "Make pictures and clips": ("init", "plan", "rehearse", "run", "enqueue", "work", "watch"),
    "See what happens": ("status", "events", "items", "show", "dashboard", "models", "balance"),
    "Choose, repeat, decide": (
        "review",
        "redo",
        "use-version",
        "fetch",
        "retry",
        "cancel",
        "pause",
        "unpause",
        "resolve",
        "ask-again",
    ),
    "Use the results": ("export", "report"),
    "Set up and look after": (
        "doctor",
        "serve",
        "migrate",
        "queue",
        "workers",
        "token",
        "schema",
        "completion",
        "help",
    ),
}
"""The sections of `batchkiln --help`: each command is in one."""


@click.group(
    cls=Program,
    params=common_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: batchkiln init && batchkiln run manifest.yaml",
)
@click.version_option(None, "-V", "--version", package_name="batchkiln", prog_name="batchkiln")
def program() -> None:
    """Turn a manifest of prompts into images and videos on disk. No prompt is charged twice.

    Without an account, everything runs on the local service that is part of batchkiln, which costs nothing.
    """


def run_program(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status. Never raises."""
    write_status_as_json(is_wanted=False)
    try:
        result: Any = program.main(list(arguments), prog_name="batchkiln", standalone_mode=False, obj=tuple(arguments))
        return result if isinstance(result, int) else ExitStatus.OK
    except OutputClosed:
        return ExitStatus.OK
    except BaseException as error:  # noqa: BLE001  the outermost handler
        status = _report_error(error, arguments)
        if isinstance(error, BatchkilnError | click.ClickException) and "--json" in arguments:
            _print_error_document(error, status)
        return status


def _report_error(error: BaseException, arguments: Sequence[str]) -> int:
    """Print the error that ended a command as one message, and return its exit status."""
    match error:
        case click.exceptions.Abort() | KeyboardInterrupt():
            print_status("Stopped; all recorded data is safe.")
            return ExitStatus.INTERRUPTED
        case click.ClickException():
            _print_usage_error(error)
            return ExitStatus.USAGE
        case BatchkilnError():
            print_error(error)
            return error.exit_status
        case UnicodeEncodeError() if not can_encode_filenames():
            print_status(f"batchkiln: {FILENAME_ENCODING_ERROR}; all recorded data is safe")
            return ExitStatus.USAGE
        case SystemExit():
            return error.code if isinstance(error.code, int) else ExitStatus.UNEXPECTED
        case _:
            print_status(
                f"batchkiln: unexpected {type(error).__name__}: {error}; all recorded data is safe",
                event="error",
                level="error",
            )
            if _is_verbose(arguments):
                import traceback  # noqa: PLC0415  rarely needed

                traceback.print_exception(error)
            else:
                print_status("Run the command again with -v to see the origin of the error.")
            return ExitStatus.UNEXPECTED


def _print_usage_error(error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show(sys.stderr)
        return
    print_status(f"batchkiln: {_message_of(error)}")
    if remedy := _explaining(error):
        print_status(f"    {remedy}; nothing was done")


def _explaining(error: click.ClickException) -> str | None:
    """Return which help explains the use of the command that was given wrongly; None if none does."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    return None if context is None else f"`{context.command_path} --help` explains its use"


def _message_of(error: click.ClickException) -> str:
    """Return a message of click as one line in the words of the other errors."""
    text = _SUGGESTION.sub("", " ".join(error.format_message().split())).rstrip(".")
    meant = _meant(error, text)
    text = _WRONG_NUMBER.sub(lambda found: _NUMBERS[found[1]], text)
    text = _RANGE.sub(_range_words, text)
    return text[:1].lower() + text[1:] + (f"; {meant}" if meant else "")


def _meant(error: click.ClickException, text: str) -> str:
    """Return the question whether another option, value or command was meant; empty if none is near."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and context is not None:
        options = [name for option in context.command.params for name in option.opts if name.startswith("--")]
        others = {other: name for other, name in _OTHER_OPTIONS.items() if name in options}
        return did_you_mean(closest(error.option_name, options, others=others))
    if found := _NOT_ONE_OF.search(text):
        return did_you_mean(closest(found[1], _QUOTED.findall(found[2])))
    if (found := _NO_COMMAND.search(text)) and context is not None and isinstance(context.command, click.Group):
        return did_you_mean(closest(found[1], context.command.list_commands(context)))
    return ""


def _range_words(found: re.Match[str]) -> str:
    """Return the words for a number outside of a range of click, `0<=x<=9`, `x>=0` or `x<=9`."""
    lowest, sign, other = found.groups()
    if lowest is not None:
        return f"is not from {lowest} to {other}"
    return f"is too {'small' if sign == '>=' else 'large'}: it must be at {'least' if sign == '>=' else 'most'} {other}"


def _print_error_document(error: BatchkilnError | click.ClickException, status: int) -> None:
    """Print the error as one line of JSON on standard output, where a program reads it."""
    message = _message_of(error) if isinstance(error, click.ClickException) else str(error)
    found: Sequence[Diagnostic] = error.mistakes if isinstance(error, InputError) else ()
    if isinstance(error, click.ClickException):
        found = [Diagnostic(message, remedy=_explaining(error))]
    mistakes = [asdict(mistake) for mistake in found]
    for mistake in mistakes:
        del mistake["field"]  # only mappings of a Python program have it
    with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
        print_json_lines([{"error": message, "exit": int(status), "mistakes": mistakes}])


def _is_verbose(arguments: Sequence[str]) -> bool:
    return any(argument == "--verbose" or _VERBOSE.fullmatch(argument) for argument in arguments)
