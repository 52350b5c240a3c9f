"""What `serve` and the commands below it have in common: the service's own configuration, and where its books are."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from batchkiln.cli.options import Common
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.service import Desk, KeyRefusedError, ServiceConfig, open_desk, sentence_of
from batchkiln.service.config import read_fields

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
    path = common.named_config
    try:
        from_file = read_fields(path) if path is not None else {}
        return ServiceConfig.model_validate(_DEFAULTS | from_file | given)
    except ValidationError as error:
        raise InputError([_mistake(detail, given, path) for detail in _mistakes(error)]) from error
    except OSError as error:
        raise InputError(f"{path}: the service's configuration cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: the service's configuration cannot be read: {error}") from error


@contextmanager
def at_desk(common: Common, state_dir: Path | None) -> Iterator[Desk]:
    """Open the service's books, and say what cannot be done with them."""
    config = config_of_books(common, state_dir)
    try:
        with open_desk(config) as desk:
            yield desk
    except KeyRefusedError as error:
        raise InputError(str(error)) from error
    except (OSError, ValueError, sqlite3.Error) as error:
        raise InputError(f"the books in {config.state_dir} cannot be used: {error}") from error


def config_of_books(common: Common, state_dir: Path | None) -> ServiceConfig:
    """Read the configuration for a command that needs no more of it than where the books are."""
    chosen = state_dir_of(state_dir)
    return read_service_config(common, {} if chosen is None else {"state_dir": chosen})


def _mistakes(error: ValidationError) -> list[ErrorDetails]:
    """Return each mistake once: not what follows from it for the field around it, nor for a key's short form."""
    details = [detail for detail in error.errors() if detail["loc"][-1:] != ("str",)]
    inner = {detail["loc"][:depth] for detail in details for depth in range(len(detail["loc"]))}
    return [detail for detail in details if detail["loc"] not in inner]


def _mistake(detail: ErrorDetails, given: Mapping[str, object], path: Path | None) -> Diagnostic:
    """Name the option that was given, or the file and its field."""
    sentence = sentence_of(detail)
    field = str(detail["loc"][0]) if detail["loc"] else ""
    if field in given:
        return Diagnostic(f"--{field.replace('_', '-')}{sentence.removeprefix(field)}")
    return Diagnostic(sentence, None if path is None else str(path))
