"""The common options, which are accepted before or after the name of every command."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import click

from batchkiln.config import Config, load_config, queue_path, queue_setting
from batchkiln.store import QueueLocation, parse_location

DEFAULT_QUEUE: Final = ".batchkiln/queue.db"
_KEY: Final = "batchkiln.common"
_QUEUE_HELP: Final = f"The queue: a file, or postgresql://…; default {DEFAULT_QUEUE}, or $BATCHKILN_QUEUE."
_CONFIG_HELP: Final = "The configuration file; default batchkiln.yaml, or $BATCHKILN_CONFIG."
_PROFILE_HELP: Final = "The service to use; takes precedence over the manifest."
_QUIET_HELP: Final = "No progress, and only errors in the log."
_SERVER_QUIET_HELP: Final = "No log line per request, only warnings and errors."


@dataclass(frozen=True, slots=True)
class Common:
    """The values of the common options. `verbosity` is the number of -v minus the number of -q."""

    queue: QueueLocation
    config_path: Path | None
    profile: str | None
    is_json: bool
    verbosity: int
    log_format: Literal["auto", "json"]
    named_config: Path | None = None  # --config, without $BATCHKILN_CONFIG
    arguments: tuple[str, ...] = ()  # the whole command line, for the command that resumes

    @property
    def is_quiet(self) -> bool:
        """Whether -q was given, which turns progress off."""
        return self.verbosity < 0

    def load_config(self) -> Config:
        """Read the configuration. Raises `InputError` if it is invalid or does not contain the --profile."""
        config = load_config(self.config_path, os.environ)
        if self.profile is not None:
            config.profile(self.profile)
        return config


def common_of(context: click.Context) -> Common:
    """Return the common options of the group and the command; those of the command take precedence."""
    given: dict[str, Any] = context.meta.get(_KEY, {})
    config = given.get("config") or os.environ.get("BATCHKILN_CONFIG")
    queue = given.get("queue") or os.environ.get("BATCHKILN_QUEUE")
    return Common(
        queue=_queue(queue, Path(config) if config else None),
        config_path=Path(config) if config else None,
        profile=given.get("profile"),
        is_json=bool(given.get("is_json")),
        verbosity=int(given.get("verbose", 0)) - int(given.get("quiet", 0)),
        log_format=given.get("log_format") or "auto",
        named_config=Path(given["config"]) if "config" in given else None,
        arguments=context.find_root().obj or (),
    )


def _queue(named: str | None, config: Path | None) -> QueueLocation:
    """Return the queue: as it is named, or as the configuration names it; a database as the configuration allows."""
    location = None if named is None else parse_location(named)
    if isinstance(location, Path):
        return queue_path(location)
    configured, may_lose_commits = queue_setting(config, os.environ)
    if location is None:
        location = parse_location(configured or DEFAULT_QUEUE)
    if isinstance(location, Path):
        return queue_path(location)
    return replace(location, may_lose_commits=may_lose_commits)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store the value of an option that was given, replacing one from before the command's name."""
    if value is None or value is False or value == 0 or parameter.name is None:
        return
    context.meta.setdefault(_KEY, {})[parameter.name] = value


def common_options(*, is_server: bool = False) -> list[click.Parameter]:
    """Return the common options. They are not passed to the command's function; `common_of` returns their values.

    Commands of the local service accept the same options; the help hides those without effect.
    """
    config = "The configuration of the local service." if is_server else _CONFIG_HELP
    return [
        _option("--queue", metavar="QUEUE", help=_QUEUE_HELP, hidden=is_server),
        _option("--config", metavar="FILE", help=config),
        _option("--profile", metavar="NAME", help=_PROFILE_HELP, hidden=is_server),
        _option("--json", "is_json", is_flag=True, help="Machine-readable results on standard output."),
        _option("-v", "--verbose", count=True, help="A more detailed log; -vv for all details."),
        _option("-q", "--quiet", count=True, help=_SERVER_QUIET_HELP if is_server else _QUIET_HELP),
        _option("--log-format", type=click.Choice(["auto", "json"]), help="Log lines for people, or JSON objects."),
    ]


def _option(*names: str, **settings: Any) -> click.Option:  # noqa: ANN401  click's own
    return click.Option(names, expose_value=False, callback=_keep, **settings)
