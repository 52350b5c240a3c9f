"""`batchkiln serve credits`: show and buy the credits of the service's accounts."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from batchkiln_service.commands.config_loading import STATE_DIR, account_admin, remember_state_dir
from batchkiln_service.commands.host_program import HostProgram
from batchkiln_service.db.credits import CreditBalance

MAX_PURCHASE: Final = 10**12
_ACCOUNT: Final = click.Argument(["account"])
_AMOUNT: Final = click.Argument(["amount"], type=click.IntRange(1, MAX_PURCHASE), metavar="N")
_EXAMPLE: Final = """\
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
        "credits", _credits, params=[STATE_DIR], example=_EXAMPLE, commands=[show, buy], default_command="show"
    )


def _credits(_: HostProgram, *, state_dir: Path | None) -> None:
    """Show the credits of an account, or buy more.

    Works whether or not the service is running. Initial credits are bought when the service starts for the first time.
    """
    remember_state_dir(state_dir)


def _show(program: HostProgram, *, account: str, state_dir: Path | None) -> None:
    """Show what ACCOUNT has bought and what is left.

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
    program.say(
        f"Account {balance.account} has {balance.available_credits:,} credits left of"
        f" {balance.bought_credits:,} bought: {balance.reserved_credits:,} reserved,"
        f" {balance.charged_credits:,} charged."
    )
