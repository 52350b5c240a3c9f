"""`batchkiln resolve`: ends a held item by what a person knows, after that person has named it again."""

import sys

import click

from batchkiln.api.changes import open_changes
from batchkiln.cli.command import JOB, command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import is_terminal, print_json, print_result, print_status
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.presentation.confirmations import cost_of_resolve
from batchkiln.store import Decision, check_resolvable


@command(
    "resolve",
    example="batchkiln resolve field-guide red-fox --as not-created\n"
    "batchkiln resolve field-guide red-fox --as generation --generation-id gen_123 --confirm red-fox",
)
@click.argument("job", type=JOB)
@click.argument("item")
@click.option(
    "--as",
    "decision",
    required=True,
    type=click.Choice([decision.value for decision in Decision]),
    help="not-created: nothing was made, queue it again. failed: give it up. generation: fetch the one it has become. "
    "ask-again: send the same request once more under the same key. saved: what is on disk is enough.",
)
@click.option("--generation-id", metavar="ID", help="With --as generation: the id that the service shows.")
@click.option("--confirm", metavar="ITEM", help="The item's id once more; needed where nobody can be asked.")
def resolve(
    common: Common, job: str, item: str, *, decision: str, generation_id: str | None, confirm: str | None
) -> ExitStatus:
    """End the held ITEM of JOB by what you know of it; `batchkiln show` tells why it is held.

    An item that is under way and never gets on can be ended as well, while no process drives the queue.
    It may cost credits, so the item's id is asked for once more. A wrong answer changes nothing.
    """
    chosen = Decision(decision)
    if (generation_id is not None) != (chosen is Decision.GENERATION):
        raise InputError("--generation-id belongs to --as generation, which needs it")
    return run_async(_resolve(common, job, item, decision=chosen, generation_id=generation_id, confirm=confirm))


async def _resolve(
    common: Common, job: str, item: str, *, decision: Decision, generation_id: str | None, confirm: str | None
) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        asked = await changes.item(job, item)
        check_resolvable(item, asked.item.state, is_undriven=True)  # `resolve` takes the lock where it matters
        print_status(cost_of_resolve(decision, asked))
        _check_confirmed(item, confirm)
        resolved = await changes.resolve(asked, decision, generation_id=generation_id)
    if common.is_json:
        print_json({"job": job, "item": item, "state": resolved.state, "may_pay_again": resolved.may_pay_again})
    else:
        print_result(f"{job}/{item} is {resolved.state}.")
    return ExitStatus.OK


def _check_confirmed(item: str, confirm: str | None) -> None:
    """Have the item named once more. Raises `InputError` where it is not, and nothing is changed."""
    if confirm is None:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise InputError(f"nobody can be asked here: add --confirm {item} to say that it may cost credits")
        confirm = click.prompt(f"Type the item's id ({item}) to go on", err=True)
    if confirm != item:
        raise InputError(f"{confirm!r} is not {item!r}; nothing was changed")
