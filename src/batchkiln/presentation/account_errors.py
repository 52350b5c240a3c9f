"""Texts for account problems and for replies that were not understood."""

from collections.abc import Container, Mapping, Sequence
from typing import Final

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.responses import AccountBlocked, AccountProblem
from batchkiln.presentation.formatting import sanitize

ACCOUNT_ADVICE: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.UPGRADE_REQUIRED: (
        "its API key was issued before the API's launch (api_key_upgrade_required): create a new API key in the "
        "account's settings and list it before the old one in the configuration"
    ),
    AccountProblem.KEY_REFUSED: (
        "the service refuses its API key: check that the API key is complete and not revoked; if it is revoked, "
        "create a new one and list it before the old one in the configuration"
    ),
    AccountProblem.NO_CREDITS: (
        "it has no credits left: buy credits or renew the subscription in the account's settings"
    ),
    AccountProblem.FORBIDDEN: "the service denies this account API access: check the account's settings",
    AccountProblem.KEY_CONFLICT: (
        "the service says that it has seen a new request's idempotency key with another body: check whether another "
        "program creates the same idempotency keys, and ask the service's support"
    ),
    AccountProblem.IDS_UNKNOWN: (
        "the service does not know the ids that were read from its replies: set `replies: {fields: {generation_id: "
        "…}}` in the profile to the place of the generation's id in a reply, "
        "and resolve the held items with the ids that the service shows: `batchkiln resolve --as generation`"
    ),
    AccountProblem.REFUSED_ALIKE: (
        "several items in a row were refused with the same message, and not charged: check the account and the "
        "requests, then run the same command again; `batchkiln retry` queues the refused items again"
    ),
    AccountProblem.UNREACHABLE: (
        "the service has given no usable answer since the run began: check `base_url` or BATCHKILN_BASE_URL, and the "
        "network (`batchkiln doctor`), then run the same command again, which charges nothing twice; "
        "`--contact-timeout 0` waits for the service"
    ),
    AccountProblem.OVERCHARGED: (
        "the service charged more than the maximum that was sent, so its prices are unreliable and the job was "
        "paused: compare the item's charge with the account's history, ask the service's support, then resume the "
        "job with `batchkiln unpause`"
    ),
}


def key_missing_text(places: str) -> str:
    """Return the cause and the remedy of an account without an API key, as a clause behind its name and a colon."""
    return (
        f"it has no API key: none was found in {sanitize(places)}. Put it there; a file is read again within a minute, "
        "and after any other change, start the process that runs the queue again"
    )


def blocked_text(blocked: AccountBlocked) -> str:
    """Return the remedy for an account that cannot work, and the words of the service, or else of the network."""
    return f"{ACCOUNT_ADVICE[blocked.problem]}. {_words_of(blocked)}"


def cannot_work_text(account: str, reason: str, *, is_driven: bool) -> str:
    """Return a sentence about an account, PROFILE/NAME, that cannot work, without the final full stop."""
    cannot = "cannot work" if is_driven else "could not work in the last run"
    return f"The account {account} {cannot}: {reason}"


def blocked_lines(accounts: Sequence[str], blocked: AccountBlocked, told: Container[tuple[str, str]] = ()) -> str:
    """Return the text of `blocked_text` in lines, for accounts that cannot work for the same reason.

    The words of the service are left out if their code and message are among those that were `told` above.
    """
    cause, _, remedy = ACCOUNT_ADVICE[blocked.problem].partition(": ")
    first, *others = accounts
    also = f" The same holds for {' and '.join(others)}." if others else ""
    lines = [f"The account {first} cannot work: {cause}.{also}", f"    {remedy[0].upper()}{remedy[1:]}."]
    if (blocked.error.code, blocked.error.message) not in told:
        lines.append(f"    {_words_of(blocked)}.")
    return "\n".join(lines)


def _words_of(blocked: AccountBlocked) -> str:
    """Return what the service said, or the last error of the network."""
    error = blocked.error
    if blocked.problem is AccountProblem.UNREACHABLE:
        return f"The last try: {sanitize(error.message)}"
    return f"The service said: {sanitize(f'{error.code}: {error.message}')}"


CALLS: Final[Mapping[Call, str]] = {
    Call.CREATE: "a request to generate",
    Call.READ: "a poll of a generation",
    Call.QUOTE: "a quote",
    Call.UPLOAD: "the preparation of an upload",
    Call.COMPLETION: "the completion of an upload",
    Call.DESCRIPTION: "the service's description",
}
"""The text for each kind of call."""

_CALL_IS_SUSPENDED: Final = (
    "Nothing was charged. The call is not repeated, and the items that need it stay queued, until the program, its "
    "configuration or the service's description changes, or you run `batchkiln ask-again`"
)
_CALL_CONTINUES: Final[Mapping[Call, str]] = {
    Call.CREATE: (
        "It is unknown whether it was charged. The same request is sent again, less and less often, which is never "
        "charged twice; in the end the item is held, and `batchkiln resolve` decides it. No other item is sent until "
        "the program, its configuration or the service's description changes, or you run `batchkiln ask-again`; the "
        "next one may be charged then"
    ),
    Call.READ: (
        "The paid generation is still polled, less and less often, but at least once an hour. `batchkiln "
        "ask-again` polls at once"
    ),
}


def misunderstanding(entry: Misunderstood, account: str) -> str:
    """Return sentences that describe a reply that was not understood, without the final full stop.

    `account` is PROFILE/NAME.
    """
    remedy = f". To make it readable, add this to the configuration: {sanitize(entry.remedy)}" if entry.remedy else ""
    received = f"status {entry.status}, shape {sanitize(entry.shape)}" if entry.status else sanitize(entry.shape)
    return (
        f"Not understood on account {account}: the reply to {CALLS[entry.call]} {sanitize(entry.lacking)} "
        f"({received}). {_CALL_CONTINUES.get(entry.call, _CALL_IS_SUSPENDED)}{remedy}"
    )
