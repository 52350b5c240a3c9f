"""`batchkiln serve`: the local service as a server of its own."""

import shlex
import sqlite3
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import click

from batchkiln.cli.command import ServerCommand, run_async, set_up_logging
from batchkiln.cli.options import Common, common_of
from batchkiln.cli.output import print_json, print_result
from batchkiln.cli.serve_config import STATE_DIR, read_service_config, state_dir_of
from batchkiln.cli.serve_credits import credits_
from batchkiln.cli.serve_keys import keys
from batchkiln.cli.serve_report import report as report_command
from batchkiln.cli.streams import outlive_readers
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.service import (
    Dialect,
    KeyRefusedError,
    LocalService,
    ServiceConfig,
    StateFolderInUseError,
    stop_on_signals,
)

_EXAMPLE: Final = """\
batchkiln serve --port 8080
batchkiln serve --config service.yaml --time-scale 60
batchkiln serve keys create main
batchkiln serve credits buy main 5000
batchkiln serve report > report.json"""


class ServeGroup(ServerCommand, click.Group):
    """A command of its own that has commands below it."""


@click.group("serve", cls=ServeGroup, example=_EXAMPLE, invoke_without_command=True)
@click.option("--host", help="Default: 127.0.0.1, which only this machine can reach.")
@click.option("--port", type=click.IntRange(0, 65535), help="Default: the one of the last time, or any free one.")
@STATE_DIR
@click.option("--time-scale", type=float, help="Service seconds per real second.")
@click.option("--operator-port", type=click.IntRange(0, 65535), help="On loopback. Default: as --port.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="At the end, write there what clients did, as JSON.",
)
@click.option("--dialect", type=int, metavar="SEED", help="Draw from it what the service's description leaves open.")
@click.option("--describe-dialect", is_flag=True, help="Print what that dialect is made of, as JSON, and end.")
@click.pass_context
def serve(
    context: click.Context,
    *,
    dialect: int | None,
    describe_dialect: bool,
    host: str | None,
    port: int | None,
    state_dir: Path | None,
    time_scale: float | None,
    operator_port: int | None,
    report: Path | None,
) -> ExitStatus:
    """Run the local service until a signal; it keeps its accounts, keys and results in its state folder.

    --config names its accounts, limits and faults, and can hold the options below.
    """
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "state_dir": state_dir_of(state_dir),
        "time_scale": time_scale,
        "operator_port": operator_port,
        "dialect": dialect,
    }
    if context.invoked_subcommand is not None:
        return ExitStatus.OK  # the command below goes on with the folder that was named
    common = common_of(context)
    set_up_logging(common, is_server=True)
    config = read_service_config(common, {name: value for name, value in given.items() if value is not None})
    if describe_dialect:
        print_json(dialect_of(config).as_document())
        return ExitStatus.OK
    return run_async(_serve(common, config, report))


def dialect_of(config: ServiceConfig) -> Dialect:
    """Return the configured dialect. Raises InputError when there is none, or none without such a trait."""
    try:
        dialect = Dialect.of(config)
    except ValueError as error:
        raise InputError(f"dialect_without: {error}; nothing was started") from error
    if dialect is None:
        raise InputError("no dialect is configured: name its seed, as --dialect 7; nothing was started")
    return dialect


serve.add_command(keys)
serve.add_command(credits_)
serve.add_command(report_command)


async def _serve(common: Common, config: ServiceConfig, report: Path | None) -> ExitStatus:
    _check_writable(report)
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        try:
            service = await stack.enter_async_context(LocalService(config, report_file=report))
        # What goes wrong before it serves is a person's to mend; what goes wrong after that is an accident.
        except (StateFolderInUseError, KeyRefusedError, OSError, ValueError, sqlite3.Error) as error:
            raise InputError(f"the service cannot be served: {error}") from error
        _announce(common, config, service)
        await stop.wait()
    return ExitStatus.OK


def _check_writable(report: Path | None) -> None:
    """Find out now whether the report can be written, not after a night of serving."""
    if report is None:
        return
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=report.parent).close()
    except OSError as error:
        raise InputError(f"the report cannot be written to {report}: {error.strerror}; nothing was started") from error


def _announce(common: Common, config: ServiceConfig, service: LocalService) -> None:
    outlive_readers()
    keys = {account.name: _key_file(config, account.name) for account in config.accounts if not account.keys}
    if common.is_json:
        files = {name: str(path) for name, path in keys.items()}
        print_json(
            {
                "base_url": service.base_url,
                "time_scale": config.time_scale,
                "key_files": files,
                "operator_url": service.operator_url,
            }
        )
        return
    print_result(f"The local service is at {service.base_url} (time runs {config.time_scale:g} times as fast).")
    if service.operator_url is not None:
        print_result(f"Its operator's port is at {service.operator_url}.")
    for name, path in keys.items():
        print_result(f"The API key of account {name} is in {path}, for its owner alone to read; it stays there.")
    if keys:
        path = next(iter(keys.values()))
        print_result("To use it from another terminal:")
        print_result(
            f'  export BATCHKILN_BASE_URL={service.base_url} BATCHKILN_API_KEY="$(cat {shlex.quote(str(path))})"'
        )
    sys.stdout.flush()


def _key_file(config: ServiceConfig, account: str) -> Path:
    return (config.state_dir / f"key-{account}").absolute()
