"""Remedies for accounts that the service refuses, for the end of a run and the dashboard."""

from collections.abc import Mapping
from typing import Final

from batchkiln.core.responses import AccountProblem

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
        "set `replies: {fields: {generation_id: …}}` in the profile to the place of the generation's id in a reply, "
        "and resolve the held items with the ids that the service shows: `batchkiln resolve --as generation`"
    ),
    AccountProblem.REFUSED_ALIKE: (
        "several items in a row were refused with the same message, and not charged: check the account and the "
        "requests, then run the same command again; `batchkiln retry` queues the refused items again"
    ),
    AccountProblem.OVERCHARGED: (
        "the service charged more than the maximum that was sent, so its prices are unreliable and the job was "
        "paused: compare the item's charge with the account's history, ask the service's support, then resume the "
        "job with `batchkiln unpause`"
    ),
}
