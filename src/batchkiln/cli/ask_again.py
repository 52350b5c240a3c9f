"""`batchkiln ask-again`: ends the rest of calls whose replies were not understood."""

import click

from batchkiln.cli.command import command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import print_json, say
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.queue import misunderstood
from batchkiln.queue.opening import changing
from batchkiln.queue.summaries import account_summaries
from batchkiln.views.misunderstood import CALLS


@command("ask-again", example="batchkiln ask-again\nbatchkiln ask-again studio/main")
@click.argument("account", metavar="[PROFILE/ACCOUNT]", required=False)
def ask_again(common: Common, account: str | None) -> ExitStatus:
    """Have the service asked again for what was not understood: on PROFILE/ACCOUNT, or on all accounts.

    `batchkiln status` says what that is. Costs nothing: what is asked again is a price, an upload or a reading. Works
    while another process drives the queue, which then asks at once.
    """
    return run_async(_ask_again(common, account))


async def _ask_again(common: Common, account: str | None) -> ExitStatus:
    async with changing(common.queue) as database:
        names = {entry.id: (entry.profile, entry.name) for entry in await database.read(account_summaries)}
        profile, _, name = (account or "").rpartition("/")
        if account is not None and (profile, name) not in names.values():
            known = ", ".join("/".join(each) for each in names.values()) or "none"
            raise InputError(f"the queue knows no account {account!r}; it knows {known}. Nothing was changed")
        asked = await database.write(misunderstood.ask_again, profile=profile or None, account=name or None)
    if common.is_json:
        calls = [(*names[entry.account_id], entry.entry.call) for entry in asked]
        print_json({"asked_again": [{"profile": each[0], "account": each[1], "call": each[2].value} for each in calls]})
    elif not asked:
        say("Nothing was misunderstood: there is nothing to ask again.")
    else:
        for entry in asked:
            say(f"{'/'.join(names[entry.account_id])}: {CALLS[entry.entry.call]} is asked again.")
        say("`batchkiln work` runs what is queued.")
    return ExitStatus.OK
