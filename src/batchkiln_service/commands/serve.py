"""`batchkiln serve`: the local service as a server."""

import asyncio
import errno
import re
import shlex
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import click

from batchkiln_service.commands.account_commands import credits_group, keys_group
from batchkiln_service.commands.config_loading import STATE_DIR, read_service_config, remember_state_dir, stored_config
from batchkiln_service.commands.host_program import CommandError, HostProgram
from batchkiln_service.config import ServiceConfig
from batchkiln_service.context import PREFIX
from batchkiln_service.db.client_report import read_report
from batchkiln_service.dialects.traits import Dialect
from batchkiln_service.errors import KeyRefusedError, StateFolderInUseError, folder_trouble
from batchkiln_service.server import LocalService
from batchkiln_service.transport.listener import stop_on_signals

_EXAMPLE: Final = """\
batchkiln serve --port 8080
batchkiln serve --config service.yaml --time-scale 60
batchkiln serve --key test-key --seed 1 --no-limits --instant
batchkiln serve keys create main
batchkiln serve credits buy main 5000
batchkiln serve report > report.json"""
_PORT: Final = click.IntRange(0, 65535)
_PARAMS: Final = (
    click.Option(["--host"], help="Default: 127.0.0.1, which only this machine can reach."),
    click.Option(["--port"], type=_PORT, help="Default: the port of the last run, or any free one."),
    STATE_DIR,
    click.Option(["--time-scale"], type=float, help="Service seconds per real second."),
    click.Option(
        ["--key"],
        help="The API key of the first account: 1 to 256 characters of ASCII, no spaces. Default: a random one.",
    ),
    click.Option(["--seed"], type=int, help="Give equal requests equal ids, durations and files in each run."),
    click.Option(["--no-limits"], is_flag=True, default=None, help="Apply no limits."),
    click.Option(["--instant"], is_flag=True, default=None, help="End generations at once, with one small file."),
    click.Option(["--operator-port"], type=_PORT, help="Port of the operator's API. Default: as --port."),
    click.Option(["--operator-host"], help="Address of the operator's API, for containers. Default: 127.0.0.1."),
    click.Option(
        ["--report", "report_file"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write a JSON report on the clients' requests to this file at the end.",
    ),
    click.Option(
        ["--dialect"],
        type=int,
        metavar="SEED",
        help="Seed of a dialect, which varies what the service's description leaves open.",
    ),
    click.Option(["--describe-dialect"], is_flag=True, help="Print the traits of that dialect as JSON, and exit."),
)

_REFUSED_PORT: Final = re.compile(r", (\d+)\)")  # in the address that asyncio names


def serve_commands(program: HostProgram) -> click.Group:
    """Return the group `serve` with its subcommands."""
    check = click.Option(["--check"], is_flag=True, help="Exit with 1 if a client broke a rule of the service.")
    report_command = program.make_command(
        "report",
        _report,
        params=[check, STATE_DIR],
        example="batchkiln serve report --state-dir rehearsal > report.json\nbatchkiln serve report --check",
    )
    return program.make_group(
        "serve",
        _serve,
        params=_PARAMS,
        example=_EXAMPLE,
        commands=[keys_group(program), credits_group(program), report_command],
        invoke_without_command=True,
    )


def _serve(
    program: HostProgram,
    *,
    state_dir: Path | None,
    report_file: Path | None,
    describe_dialect: bool,
    **given: Any,  # noqa: ANN401 - options under the names of the configuration
) -> None:
    """Run the local service until a signal. It keeps its accounts, keys and results in its state folder.

    The file of --config sets its accounts, limits and faults, and may set the options below.
    """
    given["state_dir"] = remember_state_dir(state_dir)
    if click.get_current_context().invoked_subcommand is not None:
        return
    program.configure_logging()
    options = {name: value for name, value in given.items() if value is not None}
    config = read_service_config(program, options)
    if describe_dialect:
        program.print_json(_dialect_of(config).as_document())
        return
    asyncio.run(_run(program, config, report_file, given_key=given["key"]))


def _report(program: HostProgram, *, check: bool, state_dir: Path | None) -> None:
    """Print a report on the clients' requests, as JSON.

    Read-only; works whether or not the service is running. Reports the state as of the last request. With --check, the
    violations go to standard error, too.
    """
    config = stored_config(program, state_dir)
    try:
        found = read_report(config)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise CommandError(f"the database in {config.state_dir} cannot be read: {error}") from error
    sys.stdout.write(found.as_json().decode())
    sys.stdout.flush()
    if check and not found.ok:
        for violation in found.violations:
            program.print_status(f"{violation.rule}: {violation.meaning} ({violation.count:,})")
        click.get_current_context().exit(1)


def _dialect_of(config: ServiceConfig) -> Dialect:
    """Return the configured dialect. Raise CommandError if there is none, or an excluded trait does not exist."""
    try:
        dialect = Dialect.of(config)
    except ValueError as error:
        raise CommandError(f"dialect_without: {error}; nothing was started") from error
    if dialect is None:
        raise CommandError("no dialect is configured: name its seed, as --dialect 7; nothing was started")
    return dialect


async def _run(program: HostProgram, config: ServiceConfig, report_file: Path | None, *, given_key: str | None) -> None:
    _check_writable(report_file)
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        try:
            service = await stack.enter_async_context(LocalService(config, report_file=report_file))
        except OSError as error:
            raise CommandError(f"the service cannot be served: {_reason_of(error, config.state_dir)}") from error
        # Only a failure to start is an error that a person can fix; later failures are unexpected ones.
        except (StateFolderInUseError, KeyRefusedError, ValueError, sqlite3.Error) as error:
            raise CommandError(f"the service cannot be served: {error}") from error
        _announce(program, config, service, given_key)
        await stop.wait()


def _reason_of(error: OSError, state_dir: Path) -> str:
    if trouble := folder_trouble(error, state_dir):
        return f"{trouble}; nothing was started. Choose another --state-dir, or make this one writable"
    if error.errno != errno.EADDRINUSE:
        return str(error)
    remedy = "choose another --port or --operator-port, or leave them out for free ones; nothing was started"
    port = _REFUSED_PORT.search(str(error))
    return f"{f'port {port[1]}' if port else 'a port'} is in use by another program; {remedy}"


def _check_writable(report_file: Path | None) -> None:
    """Raise CommandError if the report could not be written, before the service runs for hours."""
    if report_file is None:
        return
    try:
        report_file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=report_file.parent).close()
    except OSError as error:
        raise CommandError(
            f"the report cannot be written to {report_file}: {error.strerror}; nothing was started"
        ) from error


def _announce(program: HostProgram, config: ServiceConfig, service: LocalService, given_key: str | None) -> None:
    program.ignore_closed_output()
    folder = config.state_dir.absolute()
    key_files = {account.name: folder / f"key-{account.name}" for account in config.accounts if not account.keys}
    if program.options().is_json:
        program.print_json(
            {
                "base_url": service.base_url,
                "time_scale": config.time_scale,
                "key_files": {name: str(path) for name, path in key_files.items()},
                "operator_url": service.operator_url,
            }
        )
        return
    speed = "" if config.time_scale == 1 else f" (its clock runs {config.time_scale:g} times as fast)"
    program.print_result(f"The local service is at {service.base_url}{speed}")  # no full stop: the address is copied
    origin = service.base_url.removesuffix(PREFIX)
    program.print_result(f"Pages for a browser: {origin}/ for what it has, {origin}/docs to try its API")
    if service.operator_url is not None:
        program.print_result(f"Its operator's port is at {service.operator_url}")
    for name, path in key_files.items():
        program.print_result(f"The API key of account {name}, readable by its owner only, is in {path}")
    if (key := _key_for_export(config, key_files, given_key)) is not None:
        program.print_result("To use it from another terminal:")
        speed = "" if config.time_scale == 1 else f" BATCHKILN_TIME_SCALE={config.time_scale:g}"
        program.print_exact(f"  export BATCHKILN_BASE_URL={service.base_url} BATCHKILN_API_KEY={key}{speed}")
    sys.stdout.flush()


def _key_for_export(config: ServiceConfig, key_files: Mapping[str, Path], given_key: str | None) -> str | None:
    """Return shell text for a key: the given key, or a read of the first key file or variable.

    Keys that the configuration contains in plain text are secret and not returned.
    """
    if given_key is not None:
        return shlex.quote(given_key)
    if key_files:
        return f'"$(cat {shlex.quote(str(next(iter(key_files.values()))))})"'
    names = (key.env for account in config.accounts for key in account.key_configs if not key.legacy)
    return next((f'"${name}"' for name in names if name is not None), None)
