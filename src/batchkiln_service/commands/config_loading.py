"""The configuration of the `serve` commands: a file and options, and access to the database in the state folder."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from batchkiln_service.commands.host_program import CommandError, ConfigFile, HostProgram, Problem
from batchkiln_service.config import ServiceConfig, root_causes, suggestion
from batchkiln_service.db.account_admin import AccountAdmin, open_account_admin
from batchkiln_service.errors import KeyRefusedError, folder_trouble, sentence_of

DEFAULT_STATE_DIR: Final = Path(".batchkiln/service")
STATE_DIR: Final = click.Option(
    ["--state-dir"], type=click.Path(path_type=Path, file_okay=False), help=f"Default: {DEFAULT_STATE_DIR}."
)
_DEFAULTS: Final = {"state_dir": DEFAULT_STATE_DIR, "operator_port": 0}
_KEY: Final = "batchkiln_service.state_dir"
_KEY_FORM: Final = re.compile(r"[!-~]{1,256}")


def remember_state_dir(given: Path | None) -> Path | None:
    """Return the value of --state-dir, given before or after a subcommand's name; the last one wins."""
    meta = click.get_current_context().meta
    if given is not None:
        meta[_KEY] = given
    found: Path | None = meta.get(_KEY)
    return found


def read_service_config(program: HostProgram, given: dict[str, Any]) -> ServiceConfig:
    """Return the configuration from the defaults, the file and the given options, in rising order of precedence.

    The option `key` is the API key of the first account. Raise CommandError that names the place in the file, or the
    option, of each wrong field.
    """
    key = given.pop("key", None)
    if key is not None and not _KEY_FORM.fullmatch(key):
        raise CommandError("--key: expected 1 to 256 ASCII characters without spaces")
    path = program.options().named_config
    read = None if path is None else program.read_config(path)
    fields = _DEFAULTS | (read.values if read is not None else {}) | given
    if key is not None:
        fields["accounts"] = _with_key(fields.get("accounts"), key)
    try:
        return ServiceConfig.model_validate(fields)
    except ValidationError as error:
        raise CommandError([_problem(detail, given, path, read) for detail in root_causes(error)]) from error


def stored_config(program: HostProgram, state_dir: Path | None) -> ServiceConfig:
    """Return the configuration for a command that only needs to find the database."""
    chosen = remember_state_dir(state_dir)
    return read_service_config(program, {} if chosen is None else {"state_dir": chosen})


@contextmanager
def account_admin(program: HostProgram, state_dir: Path | None) -> Iterator[AccountAdmin]:
    """Open the database for changes to accounts; a failure becomes a CommandError."""
    config = stored_config(program, state_dir)
    try:
        with open_account_admin(config) as admin:
            yield admin
    except KeyRefusedError as error:
        raise CommandError(str(error)) from error
    except (OSError, ValueError, sqlite3.Error) as error:
        trouble = folder_trouble(error, config.state_dir) if isinstance(error, OSError) else None
        told = trouble or f"the database in {config.state_dir} cannot be used: {error}"
        raise CommandError(f"{told}; nothing was changed") from error


def _with_key(accounts: object, key: str) -> object:
    """Return the configured accounts, with `key` as the only key of the first one."""
    if not accounts:
        return [{"name": "main", "keys": [key]}]
    if isinstance(accounts, list) and isinstance(accounts[0], dict):
        return [{**accounts[0], "keys": [key]}, *accounts[1:]]
    return accounts  # not valid, which is reported


def _problem(detail: ErrorDetails, given: Mapping[str, object], path: Path | None, read: ConfigFile | None) -> Problem:
    """Return the option that was given, or the place in the file and its field, with the reason."""
    sentence = sentence_of(detail)
    field = str(detail["loc"][0]) if detail["loc"] else ""
    if field in given:
        return Problem(f"--{field.replace('_', '-')}{sentence.removeprefix(field)}")
    if path is None or read is None:
        return Problem(sentence + suggestion(detail))
    place = read.place(detail["loc"], is_key=detail["type"] == "extra_forbidden")
    line = None if place is None or "keys" in detail["loc"] else _harmless_line(path, place[0], read.values)
    return Problem(sentence + suggestion(detail), path, place, line)


def _harmless_line(path: Path, number: int, values: Mapping[str, object]) -> str | None:
    """Return a line of the file, from 1; None if it may hold an API key (Law 8).

    Any text of the accounts or of a field that does not exist may be one, and what a comment says.
    """
    line = path.read_text("utf-8").splitlines()[number - 1]
    public = ServiceConfig.model_fields.keys() - {"accounts", "public_url"}
    texts = _texts_in([value for name, value in values.items() if name not in public])
    return None if "#" in line or "key" in line.lower() or any(text in line for text in texts) else line


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts within a value that are not empty."""
    if isinstance(value, str):
        yield from (value,) * bool(value)
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)
