"""`batchkiln serve`: the local service as a server of its own."""

import asyncio
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from batchkiln.cli.command import command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_json, say
from batchkiln.core.errors import ExitStatus, InputError, Mistake
from batchkiln.service import LocalService, ServiceConfig, StateFolderInUseError
from batchkiln.service import serve as serve_until

DEFAULT_STATE_DIR = Path(".batchkiln/service")


@command(
    "serve", example="batchkiln serve --port 8080\nbatchkiln serve --config service.yaml --time-scale 60", logs=True
)
@click.option("--host", help="Default: 127.0.0.1, which only this machine can reach.")
@click.option("--port", type=click.IntRange(0, 65535), help="Default: the one of the last time, or any free one.")
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), help=f"Default: {DEFAULT_STATE_DIR}.")
@click.option("--time-scale", type=click.FloatRange(min=0, min_open=True), help="Service seconds per real second.")
def serve(
    common: Common, *, host: str | None, port: int | None, state_dir: Path | None, time_scale: float | None
) -> ExitStatus:
    """Run the local service until a signal; it keeps its accounts, keys and results in its state folder.

    Here --config names the service's own configuration: accounts, limits, faults, and the options below.
    """
    given: dict[str, Any] = {"host": host, "port": port, "state_dir": state_dir, "time_scale": time_scale}
    config = _config(common, {name: value for name, value in given.items() if value is not None})
    return run_async(_serve(common, config))


def _config(common: Common, given: dict[str, Any]) -> ServiceConfig:
    """Join the file and the options; only a file that was named on the command line is the service's."""
    try:
        path = common.named_config
        from_file = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path is not None else {}
        if not isinstance(from_file, dict):
            raise InputError(f"{path}: the service's configuration is a mapping of fields")
        return ServiceConfig.model_validate({"state_dir": DEFAULT_STATE_DIR} | from_file | given)
    except ValidationError as error:
        raise InputError([Mistake(_sentence(detail), str(path)) for detail in error.errors()]) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: the service's configuration cannot be read: {error}") from error


def _sentence(detail: ErrorDetails) -> str:
    """Say what is wrong in one field, without the value, which may be a key."""
    field = ".".join(str(part) for part in detail["loc"])
    reason = "there is no such field" if detail["type"] == "extra_forbidden" else detail["msg"]
    return f"{field}: {reason}" if field else reason


async def _serve(common: Common, config: ServiceConfig) -> ExitStatus:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def ready(service: LocalService) -> None:
        _announce(common, config, service)

    try:
        await serve_until(config, ready=ready, stop=stop)
    except (StateFolderInUseError, OSError, ValueError) as error:
        raise InputError(f"the service cannot be served: {error}") from error
    return ExitStatus.OK


def _announce(common: Common, config: ServiceConfig, service: LocalService) -> None:
    keys = {account.name: _key_file(config, account.name) for account in config.accounts if not account.keys}
    if common.is_json:
        files = {name: str(path) for name, path in keys.items()}
        print_json({"base_url": service.base_url, "time_scale": config.time_scale, "key_files": files})
        return
    say(f"The local service is at {service.base_url} (time runs {config.time_scale:g} times as fast).")
    for name, path in keys.items():
        say(f"The API key of account {name} is in {path}, for its owner alone to read; it stays there.")
    if keys:
        path = next(iter(keys.values()))
        say("To use it from another terminal:")
        say(f'  export BATCHKILN_BASE_URL={service.base_url} BATCHKILN_API_KEY="$(cat {shlex.quote(str(path))})"')
    sys.stdout.flush()


def _key_file(config: ServiceConfig, account: str) -> Path:
    return (config.state_dir / f"key-{account}").absolute()
