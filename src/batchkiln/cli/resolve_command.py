"""`batchkiln resolve`: end a held item by a person's decision, confirmed by typing the item's id."""

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
    help="not-created: nothing was created; queue it again. failed: give the item up. generation: download this "
    "generation. ask-again: send the same request again with the same idempotency key. saved: the files on disk are "
    "sufficient.",
)
@click.option("--generation-id", metavar="ID", help="With --as generation: the id of the generation.")
@click.option("--confirm", metavar="ITEM", help="The item's id again; required without a terminal.")
def resolve(
    common: Common, job: str, item: str, *, decision: str, generation_id: str | None, confirm: str | None
) -> ExitStatus:
    """End the held ITEM of JOB by your decision. `batchkiln show` states why the item is held.

    While no process runs the queue, an active item that makes no progress can be ended too. Because the decision may
    cost credits, the command asks for the item's id again. A wrong id changes nothing.
    """
    chosen = Decision(decision)
    if (generation_id is not None) != (chosen is Decision.GENERATION):
        raise InputError("--as generation needs --generation-id, and no other decision accepts it")
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
    """Check that the item's id is typed or given again. Raises `InputError` otherwise; nothing has changed then."""
    if confirm is None:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise InputError(
                f"not a terminal: add --confirm {item} to accept that this may cost credits; nothing was changed"
            )
        confirm = click.prompt(f"Type the item's id ({item}) to continue", err=True)
    if confirm != item:
        raise InputError(f"the confirmation {confirm!r} is not the item's id {item!r}; nothing was changed")
