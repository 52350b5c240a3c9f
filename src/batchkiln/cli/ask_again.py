"""`batchkiln ask-again`: repeat requests whose replies were not understood."""

import click

from batchkiln.api.changes import open_changes
from batchkiln.cli.command import command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_json, print_result
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.unread_replies import CALLS


@command("ask-again", example="batchkiln ask-again\nbatchkiln ask-again studio/main")
@click.argument("account", metavar="[PROFILE/ACCOUNT]", required=False)
def ask_again(common: Common, account: str | None) -> ExitStatus:
    """Repeat requests whose replies were not understood, on PROFILE/ACCOUNT or on all accounts.

    `batchkiln status` lists them. A quote, an upload or a read costs nothing. After a reply to a create that was not
    understood, the next queued item is sent, and may be charged. Works while another process runs the queue, which
    then repeats them immediately. Also ends waits that the service requested, such as a wrong Retry-After of days.
    """
    return run_async(_ask_again(common, account))


async def _ask_again(common: Common, account: str | None) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        asked, ended = await changes.ask_again(account)
    if common.is_json:
        calls = [{"profile": each.profile, "account": each.account, "call": each.entry.call.value} for each in asked]
        print_json({"asked_again": calls, "waits_ended": list(ended)})
    elif not asked and not ended:
        print_result("There is nothing to ask again: every reply was understood, and no account has to wait.")
    else:
        for each in asked:
            print_result(f"{each.profile}/{each.account}: {CALLS[each.entry.call]} is requested again.")
        for name in ended:
            print_result(
                f"{name}: ended the wait that the service requested. Restart a process that is already waiting."
            )
        print_result("`batchkiln work` runs the queued items.")
    return ExitStatus.OK
