"""`batchkiln serve keys`: making, listing and revoking the API keys of the local service's accounts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from batchkiln.cli.command import ServerCommand, command
from batchkiln.cli.options import Common
from batchkiln.cli.output import iso, print_json, print_json_lines, print_result, print_status
from batchkiln.cli.serve_config import STATE_DIR, at_desk, state_dir_of
from batchkiln.core.errors import ExitStatus
from batchkiln.service import ApiKey

_EXAMPLE: Final = """\
batchkiln serve keys create main
batchkiln serve keys list
batchkiln serve keys revoke key_0123456789ab"""


class KeysGroup(ServerCommand, click.Group):
    """The three commands."""


@click.group("keys", cls=KeysGroup, example=_EXAMPLE)
@STATE_DIR
def keys(state_dir: Path | None) -> None:
    """Make, list and revoke API keys.

    While the service runs or not. A running service knows a new key at once, and refuses a revoked one at once.
    """
    state_dir_of(state_dir)


@command("create", example="batchkiln serve keys create main", cls=ServerCommand)
@click.argument("account")
@STATE_DIR
def create(common: Common, *, account: str, state_dir: Path | None) -> ExitStatus:
    """Make a key of ACCOUNT and show it, for the only time.

    An account may have 10 active keys; 10 can be made within an hour and 20 within a day.
    """
    with at_desk(common, state_dir) as desk:
        made = desk.create(account)
    print_status(f"This is key {made.id} of account {made.account}. It is not shown again: keep it now.")
    if common.is_json:
        created_at = iso(_instant(made.created_at_ms))
        print_json({"id": made.id, "account": made.account, "created_at": created_at, "key": made.secret})
    else:
        print_result(made.secret)
    return ExitStatus.OK


@command("list", example="batchkiln serve keys list\nbatchkiln serve keys list main --json", cls=ServerCommand)
@click.argument("account", required=False)
@STATE_DIR
def list_(common: Common, *, account: str | None, state_dir: Path | None) -> ExitStatus:
    """List the keys of ACCOUNT, or of all; by id, never in clear."""
    with at_desk(common, state_dir) as desk:
        found = desk.list(account)
    if common.is_json:
        print_json_lines([_document(key) for key in found])
        return ExitStatus.OK
    width = max((len(key.account) for key in found), default=0)
    for key in found:
        origin = "made by command" if key.origin == "command" else "of the configuration"
        print_result(f"{key.id}  {key.account:{width}}  {iso(_instant(key.created_at_ms))}  {origin}, {_state(key)}")
    return ExitStatus.OK


@command("revoke", example="batchkiln serve keys revoke key_0123456789ab", cls=ServerCommand)
@click.argument("key_id")
@STATE_DIR
def revoke(common: Common, *, key_id: str, state_dir: Path | None) -> ExitStatus:
    """Revoke the key KEY_ID for good.

    `list` shows the ids. The configuration does not bring the key back. Generations that it created go on, and
    nobody can read them any more.
    """
    with at_desk(common, state_dir) as desk:
        revoked = desk.revoke(key_id)
    if common.is_json:
        print_json(_document(revoked))
    else:
        print_result(f"Key {revoked.id} of account {revoked.account} is {_state(revoked)}.")
    return ExitStatus.OK


keys.add_command(create)
keys.add_command(list_)
keys.add_command(revoke)


def _document(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "account": key.account,
        "origin": key.origin,
        "state": "active" if key.revoked_at_ms is None else "revoked",
        "legacy": key.is_legacy,
        "created_at": iso(_instant(key.created_at_ms)),
        "revoked_at": None if key.revoked_at_ms is None else iso(_instant(key.revoked_at_ms)),
        "revoked_by": key.revoked_by,
    }


def _state(key: ApiKey) -> str:
    if key.revoked_at_ms is None:
        return "legacy" if key.is_legacy else "active"
    reason = "" if key.revoked_by == "person" else ", since it left the configuration"
    return f"revoked at {iso(_instant(key.revoked_at_ms))}{reason}"


def _instant(instant_ms: int) -> datetime:
    return datetime.fromtimestamp(instant_ms / 1000, UTC)
