"""`batchkiln ask-again`: ends the rest of calls whose replies were not understood."""

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
    """Have the service asked again for what was not understood: on PROFILE/ACCOUNT, or on all accounts.

    `batchkiln status` says what that is. A price, an upload or a reading costs nothing; where requests to generate were
    not understood, the next queued item is sent, and may be charged. Works while another process drives the queue,
    which then asks at once. Ends waits as well that the service asked for, as by a wrong Retry-After of days.
    """
    return run_async(_ask_again(common, account))


async def _ask_again(common: Common, account: str | None) -> ExitStatus:
    async with open_changes(common.queue) as changes:
        asked, ended = await changes.ask_again(account)
    if common.is_json:
        calls = [{"profile": each.profile, "account": each.account, "call": each.entry.call.value} for each in asked]
        print_json({"asked_again": calls, "waits_ended": list(ended)})
    elif not asked and not ended:
        print_result("Nothing was misunderstood, and no wait is kept: there is nothing to ask again.")
    else:
        for each in asked:
            print_result(f"{each.profile}/{each.account}: {CALLS[each.entry.call]} is asked again.")
        for name in ended:
            print_result(
                f"{name}: the wait that the service asked for is ended; a process that waits has to be started again."
            )
        print_result("`batchkiln work` runs what is queued.")
    return ExitStatus.OK
