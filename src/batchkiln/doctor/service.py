"""Checks of the service and its accounts with free requests only (Service section 4)."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from batchkiln.client import ServiceClient, fingerprint
from batchkiln.client.openapi import mismatches
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.error_text import describe_error, exit_status_of, scale_remedy
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.responses import AccountBlocked, AccountProblem, BalanceRead, BalanceReply, Described, DescribeReply
from batchkiln.doctor.check_results import CheckResult, fail, ok, warn

ClientOf = Callable[[Mapping[str, str]], ServiceClient]
"""Creates a client with the given API keys, by fingerprint."""

MAX_CLOCK_SKEW: Final = timedelta(seconds=5)
"""Clock difference that is still accepted; a `Date` header has a resolution of one second."""

_ROUND_CREDITS: Final = 100
"""Equal balances that are a multiple of this prove nothing: two accounts may simply have bought the same amount."""

_REMEDIES: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.KEY_REFUSED: "check that it is complete; if it is revoked, create a new one and list it first",
    AccountProblem.UPGRADE_REQUIRED: "create a new API key in the account's settings, and list it before the old one",
    AccountProblem.NO_CREDITS: "buy credits or renew the subscription",
    AccountProblem.FORBIDDEN: "check the account's settings",
    AccountProblem.KEY_CONFLICT: "check whether another program creates the same idempotency keys",
    AccountProblem.IDS_UNKNOWN: "set replies.fields.generation_id to the place of the id",
    AccountProblem.REFUSED_ALIKE: "read the service's messages about the refused items",
    AccountProblem.UNREACHABLE: "check the base URL and the network",
    AccountProblem.OVERCHARGED: "ask the service's support about the charge before you send more",
}


def check_reachable(reply: DescribeReply) -> CheckResult:
    """Check that the service answers."""
    if isinstance(reply, Described):
        title = " ".join(part for part in (reply.title, reply.version) if part) or "without a title"
        return ok("service", f"answers: {title}")
    if isinstance(reply, AccountBlocked):
        return warn("service", f"answers, but without its description: {describe_error(reply)}")
    message = f"{describe_error(reply)}; its description, clock and accounts were not checked"
    return fail("service", message, "check base_url and the network", exit_status=exit_status_of(reply))


def check_description(reply: DescribeReply) -> list[CheckResult]:
    """Compare the service's description with the requests of the client."""
    if not isinstance(reply, Described):
        return [warn("description", "not checked: the service did not return its description")]
    found = [
        fail("description", mismatch.what, _UPDATE_REMEDY, exit_status=ExitStatus.UNEXPECTED)
        if mismatch.is_breaking
        else warn("description", mismatch.what, "`doctor --probe` shows whether the service has it nevertheless")
        for mismatch in mismatches(reply.document)
    ]
    return found or [ok("description", "matches the requests of batchkiln")]


_UPDATE_REMEDY: Final = (
    "update batchkiln before the next run: the service may have changed, or base_url may belong to another service"
)


def agrees_with_machine(clock: ServiceClock, machine_now: datetime) -> bool:
    """Return whether this machine's clock agrees with the service's, so that a single reply tells the time."""
    return abs(_ahead(clock, machine_now)) <= MAX_CLOCK_SKEW


def _ahead(clock: ServiceClock, machine_now: datetime) -> timedelta:
    now = clock.now()
    return machine_now - now.latest if machine_now > now.latest else min(machine_now - now.instant, timedelta())


def check_clock(clock: ServiceClock, machine_now: datetime, *, is_scaled: bool) -> CheckResult:
    """Compare this machine's clock with the service's `Date` header."""
    if clock.apparent_scale is not None and not is_scaled:
        speed = f"the service's clock runs about {clock.apparent_scale:.0f} times as fast as this machine's"
        remedy = f"{scale_remedy(clock.apparent_scale)}; otherwise hosts of the service disagree on the time"
        return warn("clock", f"by two replies, {speed}", remedy)
    if clock.is_doubted and not clock.is_observed:
        return warn("clock", "two replies of the service disagree on the time", scale_remedy(None))
    if not clock.is_observed:
        return warn("clock", "not checked: the service did not send its time")
    if is_scaled:
        return ok("clock", "the service's time is scaled; the program follows it")
    if agrees_with_machine(clock, machine_now):
        return ok("clock", "agrees with the service's")
    ahead = _ahead(clock, machine_now)
    word = "ahead of" if ahead > timedelta() else "behind"
    return warn(
        "clock",
        f"this machine's clock is {abs(ahead).total_seconds():,.0f} s {word} the service's",
        "correct it; days and limits follow the service's clock, so no limit is exceeded",
    )


async def check_accounts(client_of: ClientOf, profile: Profile) -> AsyncIterator[CheckResult]:
    """Read the balance with each API key, to see which are accepted and whether accounts share one balance."""
    account_of_balance: dict[int, str] = {}
    for account in profile.account_names:
        try:
            keys = profile.keys(account)
        except InputError as error:
            yield warn(f"account {account}", f"not checked: {error}")
            continue
        balances: list[int | None] = []
        for number, key in enumerate(keys):
            try:
                reply = await client_of({fingerprint(key): key}).balance()
            except InputError as error:
                yield fail(f"account {account}", str(error), "check that the API key is complete")
                continue
            yield _check_key(account, fingerprint(key), reply, is_newest=number == 0)
            if isinstance(reply, BalanceRead):
                balances.append(reply.credits)
        for balance in {balance for balance in balances if balance is not None and balance % _ROUND_CREDITS}:
            if (other := account_of_balance.setdefault(balance, account)) != account:
                yield warn(
                    f"account {account}",
                    f"it has exactly the same balance as {other}, {balance:,} credits: they may be the same account",
                    "compare them on the service's website: the limits of one account under two names are exceeded",
                )
        if len(set(balances)) > 1:
            yield warn(
                f"account {account}",
                "its API keys show different balances: they may belong to different accounts",
                (
                    "configure only its own API keys for each account, or its limits are miscounted (a "
                    "generation that just ended also explains this)"
                ),
            )


def _check_key(account: str, name: str, reply: BalanceReply, *, is_newest: bool) -> CheckResult:
    check = f"account {account}"
    match reply:
        case BalanceRead(credits=None):
            return warn(check, f"the API key {name} is accepted; the balance was not understood")
        case BalanceRead(credits=0):
            return warn(check, f"the API key {name} is accepted; no credits are left", "buy credits before a run")
        case BalanceRead(credits=balance):
            return ok(check, f"the API key {name} is accepted; {balance:,} credits are left")
        case AccountBlocked(problem=problem):
            message, remedy = f"the API key {name}: {describe_error(reply)}", _REMEDIES[problem]
            is_key = problem in {AccountProblem.KEY_REFUSED, AccountProblem.UPGRADE_REQUIRED}
            if is_key and not is_newest:
                return warn(
                    check,
                    message,
                    ("generations created with it can no longer be downloaded; remove it when all of them have ended"),
                )
            return fail(check, message, remedy, exit_status=ExitStatus.ACCOUNT_CANNOT_WORK)
        case error:
            return warn(check, f"not checked: {describe_error(error)}")
