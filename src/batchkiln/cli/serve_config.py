"""What `serve` and `serve keys` have in common: the service's own configuration, and where its state folder is."""

from pathlib import Path
from typing import Any, Final

import click
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from batchkiln.cli.options import Common
from batchkiln.core.errors import InputError, Mistake
from batchkiln.service import ServiceConfig

DEFAULT_STATE_DIR: Final = Path(".batchkiln/service")
STATE_DIR: Final = click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), help=f"Default: {DEFAULT_STATE_DIR}."
)
_DEFAULTS: Final = {"state_dir": DEFAULT_STATE_DIR, "operator_port": 0}  # a server has an operator
_KEY: Final = "batchkiln.service.state_dir"


def state_dir_of(given: Path | None) -> Path | None:
    """Return the folder that was named, before a subcommand's name or after it; the latter wins."""
    meta = click.get_current_context().meta
    if given is not None:
        meta[_KEY] = given
    found: Path | None = meta.get(_KEY)
    return found


def read_service_config(common: Common, given: dict[str, Any]) -> ServiceConfig:
    """Join the file and the options; only a file that was named on the command line is the service's."""
    try:
        path = common.named_config
        from_file = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path is not None else {}
        if not isinstance(from_file, dict):
            raise InputError(f"{path}: the service's configuration is a mapping of fields")
        return ServiceConfig.model_validate(_DEFAULTS | from_file | given)
    except ValidationError as error:
        raise InputError([Mistake(_sentence(detail), str(path)) for detail in error.errors()]) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: the service's configuration cannot be read: {error}") from error


def _sentence(detail: ErrorDetails) -> str:
    """Say what is wrong in one field, without the value, which may be a key."""
    field = ".".join(str(part) for part in detail["loc"])
    reason = "there is no such field" if detail["type"] == "extra_forbidden" else detail["msg"]
    return f"{field}: {reason}" if field else reason
