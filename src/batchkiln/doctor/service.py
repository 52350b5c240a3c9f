"""Checks of the service and its accounts: only public reads and balances, which cost nothing (Service section 4)."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from batchkiln.client import ReplyMapping, ServiceClient, fingerprint
from batchkiln.client.openapi_check import as_map, mismatches
from batchkiln.client.openapi_fields import UndocumentedField, undocumented_fields
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.error_text import describe_error
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.response_rules import ReplyRules, remedy_line
from batchkiln.core.responses import AccountBlocked, AccountProblem, BalanceRead, BalanceReply, Described, DescribeReply
from batchkiln.doctor.check_results import CheckResult, Level, fail, ok, warn

ClientOf = Callable[[Mapping[str, str]], ServiceClient]
"""Makes a client with some keys, by fingerprint."""

SKEW: Final = timedelta(seconds=5)
"""How far this machine's clock may be off before it is told; a `Date` header is exact to a second."""

_ROUND_CREDITS: Final = 100
"""Two accounts may well have equal balances of a multiple of this: both as they were bought."""

_REMEDIES: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.KEY_REFUSED: "check that it is whole and not revoked; else make a new one, and put it in front",
    AccountProblem.UPGRADE_REQUIRED: "make a new key in the account's settings, and put it in front of the old one",
    AccountProblem.NO_CREDITS: "buy credits, or renew the subscription that generating needs",
    AccountProblem.FORBIDDEN: "see what the account's settings say",
    AccountProblem.KEY_CONFLICT: "see whether another program makes the same keys",
    AccountProblem.IDS_UNKNOWN: "say with replies.fields.generation_id where the id stands",
    AccountProblem.REFUSED_ALIKE: "see what the service says of the refused items",
    AccountProblem.OVERCHARGED: "ask the service's support about the charge, before anything more is sent",
}


def check_reachable(reply: DescribeReply) -> CheckResult:
    """Tell whether the service answers at all."""
    if isinstance(reply, Described):
        title = " ".join(part for part in (reply.title, reply.version) if part) or "without a title"
        return ok("service", f"answers: {title}")
    if isinstance(reply, AccountBlocked):
        return warn("service", f"answers, but does not describe itself: {describe_error(reply)}")
    message = f"{describe_error(reply)}; its description, clock and accounts were not checked"
    return fail("service", message, "check base_url and the network", exit_status=ExitStatus.UNEXPECTED)


def check_description(reply: DescribeReply, rules: ReplyRules = ReplyRules()) -> list[CheckResult]:  # noqa: B008  frozen
    """Hold the service's description of itself against what the client sends and needs.

    For each field that the service's document does not show: where the description says that it stands, whether it is
    read there, and what is done with it.
    """
    if not isinstance(reply, Described):
        return [warn("description", "not checked: the service did not describe itself")]
    found = [
        fail("description", mismatch.what, _UPDATE, exit_status=ExitStatus.UNEXPECTED)
        if mismatch.is_breaking
        else warn("description", mismatch.what, "replies of other shapes are understood where that is possible")
        for mismatch in mismatches(reply.document)
    ]
    if not as_map(reply.document.get("paths")):
        return found
    fields = undocumented_fields(reply.document, ReplyMapping(rules))
    found += [_of_field(each) for each in fields]
    is_expected = all(finding.level is Level.OK for finding in found)
    return [*found, ok("description", "as batchkiln expects it")] if is_expected else found


def _of_field(open_field: UndocumentedField) -> CheckResult:
    """Tell of one open field, with the configuration line that would mend it."""
    name, what = open_field.name, open_field.what
    check = f"description, {name.value}"
    if open_field.is_found:
        return ok(check, f"{what} is read at {open_field.found}; {open_field.sends}")
    if open_field.described is None:
        return warn(
            check,
            f"{what} is not described where it could be read; it is looked for in what comes",
            f"if it is not understood then, add to the profile: {remedy_line(name, None)}",
        )
    read = f"would be read at {open_field.found}" if open_field.found else "would not be found"
    return warn(
        check,
        f"{what} is described at {open_field.described}, and {read}",
        f"add to the profile: {remedy_line(name, open_field.described)}",
    )


_UPDATE: Final = (
    "update batchkiln, and do not run before: the service may have changed, or base_url be another service's"
)


def check_clock(clock: ServiceClock, machine_now: datetime, *, is_scaled: bool) -> CheckResult:
    """Compare this machine's clock with the service's `Date`."""
    if not clock.is_observed:
        return warn("clock", "not checked: the service did not tell its time")
    now = clock.now()
    if is_scaled:
        return ok("clock", "the service's time runs at its own pace, and is followed")
    ahead = machine_now - now.latest if machine_now > now.latest else min(machine_now - now.instant, timedelta())
    if abs(ahead) <= SKEW:
        return ok("clock", "agrees with the service's")
    word = "ahead of" if ahead > timedelta() else "behind"
    return warn(
        "clock",
        f"this machine's clock is {abs(ahead).total_seconds():,.0f} s {word} the service's",
        "set it; days and limits follow the service's clock, so that nothing is overstepped",
    )


async def check_accounts(client_of: ClientOf, profile: Profile) -> AsyncIterator[CheckResult]:
    """Ask each account's balance with each of its keys: which are accepted, and whether they are of one account."""
    told: dict[int, str] = {}
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
                yield fail(f"account {account}", str(error), "check that the key is whole")
                continue
            yield _of_key(account, fingerprint(key), reply, is_newest=number == 0)
            if isinstance(reply, BalanceRead):
                balances.append(reply.credits)
        for balance in {balance for balance in balances if balance is not None and balance % _ROUND_CREDITS}:
            if (other := told.setdefault(balance, account)) != account:
                yield warn(
                    f"account {account}",
                    f"it has exactly the balance of {other}, {balance:,} credits: the two may be one account",
                    "compare them on the service's website: limits of one account under two names are overstepped",
                )
        if len(set(balances)) > 1:
            yield warn(
                f"account {account}",
                "its keys show different balances: they may be of different accounts",
                "give each account only its own keys, or its limits are counted wrongly (or something just ended)",
            )


def _of_key(account: str, name: str, reply: BalanceReply, *, is_newest: bool) -> CheckResult:
    check = f"account {account}"
    match reply:
        case BalanceRead(credits=None):
            return warn(check, f"the key {name} is accepted; the balance was not understood")
        case BalanceRead(credits=0):
            return warn(check, f"the key {name} is accepted; no credits are left", "buy some before a run")
        case BalanceRead(credits=balance):
            return ok(check, f"the key {name} is accepted; {balance:,} credits are left")
        case AccountBlocked(problem=problem):
            message, remedy = f"the key {name}: {describe_error(reply)}", _REMEDIES[problem]
            is_key = problem in {AccountProblem.KEY_REFUSED, AccountProblem.UPGRADE_REQUIRED}
            if is_key and not is_newest:
                return warn(
                    check, message, "what was made with it can no longer be fetched; take it out when all ended"
                )
            return fail(check, message, remedy, exit_status=ExitStatus.ACCOUNT_CANNOT_WORK)
        case trouble:
            return warn(check, f"not checked: {describe_error(trouble)}")
