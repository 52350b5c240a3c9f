"""`python -m batchkiln.service`: the local service as a process of its own, for tests and experiments."""

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path

from batchkiln.service import (
    KeyRefusedError,
    Limits,
    LocalService,
    ServiceConfig,
    StateFolderInUseError,
    load_config,
    serve,
    stop_on_signals,
)


def main() -> int:
    """Serve until SIGINT or SIGTERM; prints one line when ready."""
    args = _parser().parse_args()
    try:
        asyncio.run(_serve(_config(args), report_file=args.report))
    except (OSError, ValueError, KeyRefusedError, StateFolderInUseError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m batchkiln.service")
    parser.add_argument("--config", type=Path, help="YAML file with any field of ServiceConfig")
    parser.add_argument("--state-dir", type=Path, help="where the service keeps everything")
    parser.add_argument("--port", type=int, help="0: the port of the last run, or any free one")
    parser.add_argument("--operator-port", type=int, help="on loopback, as --port; default: not opened")
    parser.add_argument("--report", type=Path, help="at the end, write there what clients did, as JSON")
    parser.add_argument("--time-scale", type=float, help="service seconds per real second")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--instant", action="store_true", default=None, help="generations end at once")
    parser.add_argument("--no-limits", action="store_true", help="lift every limit")
    return parser


def _config(args: argparse.Namespace) -> ServiceConfig:
    given = {
        name: value
        for name in ("state_dir", "port", "operator_port", "time_scale", "seed", "instant")
        if (value := getattr(args, name)) is not None
    }
    if args.no_limits:
        given["limits"] = Limits.lifted()
    if args.config is not None:
        given = load_config(args.config).model_dump(exclude_unset=True) | given
    return ServiceConfig.model_validate(given)


async def _serve(config: ServiceConfig, *, report_file: Path | None) -> None:
    await serve(config, ready=partial(_announce, config), stop=stop_on_signals(), report_file=report_file)


def _announce(config: ServiceConfig, service: LocalService) -> None:
    key_file = config.state_dir / f"key-{config.accounts[0].name}"
    sys.stdout.write(f"{service.base_url} key in {key_file}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
