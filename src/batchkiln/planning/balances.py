"""Account balances for `batchkiln balance`; one free request for each account."""

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.api.local_service import embedded_balances, embedded_folder
from batchkiln.config import Profile
from batchkiln.core.error_text import describe_error, exit_status_of
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.rate_limits import DayUsage
from batchkiln.core.responses import BalanceRead
from batchkiln.planning.queue_access import QueueAccess
from batchkiln.planning.quotes import AccountState, AccountUnavailable, open_quote_session, read_account_states


class Balance(Struct, frozen=True):
    """One account's balance.

    `credits` is None if it could not be read; `reason` says why. `usage` is today's usage, from the queue.
    """

    profile: str
    account: str
    credits: int | None
    usage: DayUsage
    credits_per_day: int
    reason: str | None = None
    exit_status: ExitStatus = ExitStatus.OK


async def read_balances(profile: Profile, access: QueueAccess) -> list[Balance]:
    """Return the balance of each account. An account that cannot be asked gets a `reason` instead of an error."""
    known = await read_account_states(access)
    balances = {
        name: Balance(profile.name, name, None, known[profile.name, name].usage, profile.limits.credits_per_day)
        for name in profile.account_names
    }
    if profile.is_embedded:
        left = embedded_balances(profile, embedded_folder(access.app.queue, profile))
        return [replace(balance, credits=left[name]) for name, balance in balances.items()]
    return [
        await _read_balance(profile, balance, known[profile.name, name], access) for name, balance in balances.items()
    ]


async def _read_balance(profile: Profile, balance: Balance, known: AccountState, access: QueueAccess) -> Balance:
    try:
        async with open_quote_session(profile, balance.account, known, access) as session:
            reply = await session.send(session.client.balance)
    except AccountUnavailable as error:
        return replace(balance, reason=str(error), exit_status=ExitStatus.UNEXPECTED)
    except InputError as error:
        return replace(balance, reason=str(error), exit_status=error.exit_status)
    match reply:
        case BalanceRead(credits=None):
            return replace(balance, reason="the reply could not be understood", exit_status=ExitStatus.UNEXPECTED)
        case BalanceRead(credits=left):
            return replace(balance, credits=left)
        case trouble:
            return replace(balance, reason=describe_error(trouble), exit_status=exit_status_of(trouble))
