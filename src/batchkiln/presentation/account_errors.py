"""What mends an account that the service refuses: for the end of a run, and the dashboard."""

from collections.abc import Mapping
from typing import Final

from batchkiln.core.responses import AccountProblem

ACCOUNT_ADVICE: Final[Mapping[AccountProblem, str]] = {
    AccountProblem.UPGRADE_REQUIRED: (
        "its API key was issued before the API's launch (api_key_upgrade_required): make a new key in the account's "
        "settings, put it in front of the old one in the configuration"
    ),
    AccountProblem.KEY_REFUSED: (
        "its API key is refused: check that the key is whole and not revoked; if it is, make a new one and put it in "
        "front of the old one in the configuration"
    ),
    AccountProblem.NO_CREDITS: (
        "it has no credits left: buy some, or renew the subscription that generating needs, in the account's settings"
    ),
    AccountProblem.FORBIDDEN: "the service forbids it the API: see what the account's settings say",
    AccountProblem.KEY_CONFLICT: (
        "the service says that it knows a new request's key with another body: see whether another program makes the "
        "same keys, and ask the service's support"
    ),
    AccountProblem.IDS_UNKNOWN: (
        "say with `replies: {fields: {generation_id: …}}` in the profile where a reply has its generation's id, and "
        "give the held items the ids that the service shows: `batchkiln resolve --as generation`"
    ),
    AccountProblem.REFUSED_ALIKE: (
        "one item after the other was refused in the same words, and not charged: see whether the account or the "
        "requests are at fault; the same command goes on, and `batchkiln retry` brings the refused ones back"
    ),
    AccountProblem.OVERCHARGED: (
        "the service charged more than the maximum that was sent, so its prices cannot be relied on, and the job was "
        "paused: compare the item's charge with the account's, ask the service's support, then let the job go on with "
        "`batchkiln unpause`"
    ),
}
