"""`batchkiln serve credits`: showing and buying the credits of the local service's accounts."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from batchkiln.cli.command import ServerCommand, command
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_json, print_result
from batchkiln.cli.serve_config import STATE_DIR, at_desk, state_dir_of
from batchkiln.core.errors import ExitStatus
from batchkiln.service import Purse

MOST_AT_ONCE: Final = 10**12
_EXAMPLE: Final = """\
batchkiln serve credits main
batchkiln serve credits buy main 5000"""


class CreditsGroup(ServerCommand, click.Group):
    """Two commands; an account's name alone, without one of them, shows its credits."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take what is no command for an account."""
        is_account = bool(args) and args[0] not in self.commands and not args[0].startswith("-")
        return super().resolve_command(ctx, ["show", *args] if is_account else args)


@click.group("credits", cls=CreditsGroup, example=_EXAMPLE)
@STATE_DIR
def credits_(state_dir: Path | None) -> None:
    """Show the credits of an account, or buy more.

    While the service runs or not. What an account begins with is bought at its first start.
    """
    state_dir_of(state_dir)


@command("show", example="batchkiln serve credits show main", cls=ServerCommand)
@click.argument("account")
@STATE_DIR
def show(common: Common, *, account: str, state_dir: Path | None) -> ExitStatus:
    """Show what ACCOUNT has bought and what is left.

    The word `show` may be left out.
    """
    with at_desk(common, state_dir) as desk:
        purse = desk.purse(account)
    _tell(common, purse)
    return ExitStatus.OK


@command("buy", example="batchkiln serve credits buy main 5000", cls=ServerCommand)
@click.argument("account")
@click.argument("amount", type=click.IntRange(1, MOST_AT_ONCE), metavar="N")
@STATE_DIR
def buy(common: Common, *, account: str, amount: int, state_dir: Path | None) -> ExitStatus:
    """Buy N credits for ACCOUNT.

    A running service has them for the next request.
    """
    with at_desk(common, state_dir) as desk:
        purse = desk.buy(account, amount)
    _tell(common, purse)
    return ExitStatus.OK


credits_.add_command(show)
credits_.add_command(buy)


def _tell(common: Common, purse: Purse) -> None:
    if common.is_json:
        print_json(asdict(purse))
        return
    print_result(
        f"Account {purse.account} has {purse.available_credits:,} credits left of {purse.bought_credits:,} bought:"
        f" {purse.reserved_credits:,} reserved, {purse.charged_credits:,} charged."
    )
