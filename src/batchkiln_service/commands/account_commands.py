"""`batchkiln serve keys` and `batchkiln serve credits`: API keys and credits of the service's accounts."""

from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import asdict

from batchkiln_service.clock import iso
from batchkiln_service.commands.config_loading import STATE_DIR, account_admin, remember_state_dir
from batchkiln_service.commands.host_program import HostProgram
from batchkiln_service.db.credits import CreditBalance
from batchkiln_service.db.keys import ApiKey

_KEYS_EXAMPLE: Final = """\
batchkiln serve keys create main
batchkiln serve keys list
batchkiln serve keys revoke key_0123456789ab"""


def keys_group(program: HostProgram) -> click.Group:
    """Return the group `keys`."""
    create = program.make_command(
        "create", _create, params=[click.Argument(["account"]), STATE_DIR], example="batchkiln serve keys create main"
    )
    list_ = program.make_command(
        "list",
        _list,
        params=[click.Argument(["account"], required=False), STATE_DIR],
        example="batchkiln serve keys list\nbatchkiln serve keys list main --json",
    )
    revoke = program.make_command(
        "revoke",
        _revoke,
        params=[click.Argument(["key_id"]), STATE_DIR],
        example="batchkiln serve keys revoke key_0123456789ab",
    )
    return program.make_group(
        "keys", _keys, params=[STATE_DIR], example=_KEYS_EXAMPLE, commands=[create, list_, revoke]
    )


def _keys(_: HostProgram, *, state_dir: Path | None) -> None:
    """Create, list and revoke API keys.

    Works whether or not the service is running. A running service accepts a new key and refuses a revoked one at once.
    """
    remember_state_dir(state_dir)


def _create(program: HostProgram, *, account: str, state_dir: Path | None) -> None:
    """Create a key of ACCOUNT and show it. It cannot be shown again.

    An account may have 10 active keys; 10 can be created within an hour and 20 within a day.
    """
    with account_admin(program, state_dir) as admin:
        made = admin.create(account)
    program.print_status(f"This is key {made.id} of account {made.account}. It is not shown again: keep it now.")
    if program.options().is_json:
        created_at = iso(made.created_at_ms)
        program.print_json({"id": made.id, "account": made.account, "created_at": created_at, "key": made.secret})
    else:
        program.print_result(made.secret)


def _list(program: HostProgram, *, account: str | None, state_dir: Path | None) -> None:
    """List the keys of ACCOUNT, or of all accounts, by id. Secrets are never shown."""
    with account_admin(program, state_dir) as admin:
        found = admin.list(account)
    if program.options().is_json:
        program.print_json_lines([_document(key) for key in found])
        return
    width = max((len(key.account) for key in found), default=0)
    for key in found:
        origin = "made by command" if key.origin == "command" else "of the configuration"
        program.print_result(f"{key.id}  {key.account:{width}}  {iso(key.created_at_ms)}  {origin}, {_state(key)}")


def _revoke(program: HostProgram, *, key_id: str, state_dir: Path | None) -> None:
    """Revoke the key KEY_ID permanently.

    `list` shows the ids. The configuration does not restore the key. Generations that it created continue, but can
    no longer be polled.
    """
    with account_admin(program, state_dir) as admin:
        revoked = admin.revoke(key_id)
    if program.options().is_json:
        program.print_json(_document(revoked))
    else:
        program.print_result(f"Key {revoked.id} of account {revoked.account} is {_state(revoked)}.")


def _document(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "account": key.account,
        "origin": key.origin,
        "state": "active" if key.revoked_at_ms is None else "revoked",
        "legacy": key.is_legacy,
        "created_at": iso(key.created_at_ms),
        "revoked_at": None if key.revoked_at_ms is None else iso(key.revoked_at_ms),
        "revoked_by": key.revoked_by,
    }


def _state(key: ApiKey) -> str:
    if key.revoked_at_ms is None:
        return "legacy" if key.is_legacy else "active"
    reason = "" if key.revoked_by == "person" else ", since it left the configuration"
    return f"revoked at {iso(key.revoked_at_ms)}{reason}"


MAX_PURCHASE: Final = 10**12
_ACCOUNT: Final = click.Argument(["account"])
_AMOUNT: Final = click.Argument(["amount"], type=click.IntRange(1, MAX_PURCHASE), metavar="N")
_CREDITS_EXAMPLE: Final = """\
batchkiln serve credits main
batchkiln serve credits buy main 5000"""


def credits_group(program: HostProgram) -> click.Group:
    """Return the group `credits`. An account's name in place of a command shows its credits."""
    show = program.make_command(
        "show", _show, params=[_ACCOUNT, STATE_DIR], example="batchkiln serve credits show main"
    )
    buy = program.make_command(
        "buy", _buy, params=[_ACCOUNT, _AMOUNT, STATE_DIR], example="batchkiln serve credits buy main 5000"
    )
    return program.make_group(
        "credits", _credits, params=[STATE_DIR], example=_CREDITS_EXAMPLE, commands=[show, buy], default_command="show"
    )


def _credits(_: HostProgram, *, state_dir: Path | None) -> None:
    """Show the credits of an account, or buy more.

    Works whether or not the service is running. Initial credits are bought when the service starts for the first time.
    """
    remember_state_dir(state_dir)


def _show(program: HostProgram, *, account: str, state_dir: Path | None) -> None:
    """Show the credits that ACCOUNT has bought, used and left.

    The word `show` may be left out.
    """
    with account_admin(program, state_dir) as admin:
        balance = admin.balance(account)
    _print(program, balance)


def _buy(program: HostProgram, *, account: str, amount: int, state_dir: Path | None) -> None:
    """Buy N credits for ACCOUNT.

    A running service can use them from the next request on.
    """
    with account_admin(program, state_dir) as admin:
        balance = admin.buy(account, amount)
    _print(program, balance)


def _print(program: HostProgram, balance: CreditBalance) -> None:
    if program.options().is_json:
        program.print_json(asdict(balance))
        return
    program.print_result(
        f"Account {balance.account} has {balance.available_credits:,} credits left of"
        f" {balance.bought_credits:,} bought: {balance.reserved_credits:,} reserved,"
        f" {balance.charged_credits:,} charged."
    )
