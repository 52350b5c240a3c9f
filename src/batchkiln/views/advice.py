"""What an item waits for, or why it ended so, and what a person may do: for `show` and the dashboard."""

from collections.abc import Mapping
from typing import Final

from batchkiln.core.job import AttemptState
from batchkiln.core.replies import AccountProblem
from batchkiln.core.states import Event, ItemState
from batchkiln.queue.stories import ItemStory
from batchkiln.queue.summaries import JobSummary

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
}
"""What mends an account that the service refuses."""

_DAMAGED: Final = "attempt_damaged"  # an error's code; the event is that of a conflict
_DAMAGED_NEXT: Final = (
    "the disk no longer gives what was sent: key or request have changed, so that sending it again could pay twice. "
    "Look for it in the account, then say what you found with `batchkiln resolve`; and look after the disk"
)
HELD: Final[Mapping[str, str]] = {
    Event.KEY_MISSING: (
        "the API key that made the request is not configured, or was revoked, and no other may ask for it (Service "
        "rules 4.2 and 4.4). Put that key back beside the new one and run `batchkiln work`; or, where it is gone for "
        "good, end the item with `batchkiln resolve`, which also lets the account go on"
    ),
    Event.KEY_CONFLICT: (
        "the service knows its idempotency key with another body (Service rule 4.3), so that something may have been "
        "created. Look for it in the account, then say what you found with `batchkiln resolve`"
    ),
    Event.REFUSED_IN_DOUBT: (
        "an earlier send of it got no reply, and sent again it was refused over a price or an image, which may have "
        "changed in between: something may have been created. Look for it in the account, then say what you found "
        "with `batchkiln resolve`"
    ),
    Event.INPUT_LOST: (
        "a local image is gone or has changed. Put it back and run the manifest again, which takes it up; or give the "
        "item up with `batchkiln resolve`"
    ),
    Event.GENERATION_LOST: (
        "the service no longer knows the generation, which was paid. Ask its support about the id, then say what you "
        "learned with `batchkiln resolve`"
    ),
}

NEXT: Final[Mapping[ItemState, str]] = {
    ItemState.QUEUED: "it waits for its turn and for credits; `batchkiln status` tells what its account waits for",
    ItemState.SUBMITTING: "it was sent; the same request is sent on until a definite reply comes, never charged twice",
    ItemState.ACTIVE: "it is being generated, and is polled until it ends",
    ItemState.DOWNLOADING: "it is paid and ready, and its files are being fetched",
    ItemState.DONE: "nothing: it is done",
    ItemState.FAILED: "`batchkiln retry {job} {item}` tries again; the attempts below tell what was refunded",
    ItemState.REJECTED: (
        "nothing was charged; mend the request, or raise the cap or budget that the error names, in the manifest and "
        "run it again; where the reason has gone by itself, `batchkiln retry {job} {item}`"
    ),
    ItemState.EXPIRED: "it was paid, and the service no longer has it; `batchkiln retry {job} {item}` pays again",
    ItemState.CANCELED: "it was canceled before it was sent; `batchkiln retry {job} {item}` queues it again",
}

_CANCELED_BY_SERVICE: Final = (
    "the service canceled it, and nothing says that it was refunded: look at the account first; `batchkiln retry {job} "
    "{item}` may pay for it again"
)


def next_step(story: ItemStory, summary: JobSummary) -> str:
    """Say what an item waits for, or why it ended so, and what a person may do."""
    if story.item.state is ItemState.QUEUED and summary.is_paused:
        return f"its job is paused: `batchkiln unpause {story.job}` lets it go on"
    if story.item.state is ItemState.HELD:
        held = next((event.kind for event in reversed(story.events) if event.state is ItemState.HELD), "")
        if story.item.error is not None and story.item.error.code == _DAMAGED:
            return f"it needs you: {_DAMAGED_NEXT}"
        return "it needs you: " + HELD.get(held, "say what you know of it with `batchkiln resolve`")
    if story.item.state is ItemState.FAILED and story.attempts and story.attempts[-1].state is AttemptState.CANCELED:
        return _CANCELED_BY_SERVICE.format(job=story.job, item=story.item.name)
    return NEXT[story.item.state].format(job=story.job, item=story.item.name)
