"""One item put into sentences: where it stands and why, what it has cost, and what to do next."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from batchkiln.core.errors import InvariantBroken, command_arguments
from batchkiln.core.job import AttemptState
from batchkiln.core.polling import is_long_pending, retention_ends_at
from batchkiln.core.states import WITH_SERVICE, WORKING_STATES, Event, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.formatting import REASONS, format_age, format_minute, plural, sanitize
from batchkiln.presentation.item_context import ItemContext, Wait
from batchkiln.store import AttemptDetail, ItemDetail, JobSummary

DAMAGED: Final = "attempt_damaged"  # an error's code; the event is that of a conflict
GONE: Final = "outputs_gone"  # likewise, of outputs that cannot be had
_TOLD_IN_FULL: Final = frozenset({GONE, "output_unusable"})  # codes of errors that are our own words
_COMMAND: Final = re.compile(r"""`(batchkiln (?:"'"|'[^']*'|[^`'])+)`""")  # a name in it is quoted, as shlex does it

_ASK: Final = "`batchkiln show --bundle support.zip {item}` gathers what the service's support needs to find it. "
_SAY: Final = (
    "Then say what you found: `batchkiln resolve --as generation --generation-id ID {item}` fetches it, "
    "`batchkiln resolve --as not-created {item}` queues it again with a new key, and `batchkiln resolve --as failed "
    "{item}` gives it up"
)
_ASK_AGAIN: Final = "; `batchkiln resolve --as ask-again {item}` sends the same request once more under the same key"


@dataclass(frozen=True, slots=True)
class HoldReason:
    """Why an item is held, and what a person may do."""

    why: str
    remedy: str


HOLDS: Final[Mapping[str, HoldReason]] = {
    Event.KEY_MISSING: HoldReason(
        "the API key that made the request is not configured, or was refused, and no other may ask for it (Service "
        "rules 4.2 and 4.4)",
        "put that key back beside the new one and run `batchkiln work`; where it is gone for good, `batchkiln resolve "
        "--as failed {item}` gives the item up and lets the account go on",
    ),
    Event.KEY_CONFLICT: HoldReason(
        "the service has said for an hour that it knows its idempotency key with another body (Service rule 4.3), so "
        "that something may have been created",
        "look for it in the account. " + _ASK + _SAY + _ASK_AGAIN,
    ),
    DAMAGED: HoldReason(
        "the disk no longer gives what was sent: key or request have changed, so that sending it again could pay twice",
        "look for it in the account, and look after the disk. " + _ASK + _SAY,
    ),
    Event.REFUSED_IN_DOUBT: HoldReason(
        "an earlier send of it got no reply, and sent again it was refused for an hour, which says nothing about the "
        "first: something may have been created (Law 2)",
        "look for it in the account. " + _ASK + _SAY + _ASK_AGAIN,
    ),
    Event.KEY_FORGOTTEN: HoldReason(
        "an earlier send of it got no reply, and the service has not answered for it for a day: it may have forgotten "
        "the key, and would make and charge it anew",
        "look for it in the account. " + _ASK + _SAY + _ASK_AGAIN,
    ),
    Event.SET_ASIDE: HoldReason(
        "the service works, and does not decide this request: sent again and again, it got no reply that names a "
        "generation or refuses it",
        "look for it in the account. " + _ASK + _SAY + _ASK_AGAIN,
    ),
    Event.INPUT_LOST: HoldReason(
        "a local image is gone or has changed since it was accepted",
        "put the image back and run its manifest again, `batchkiln run {manifest}`, which takes it up; `batchkiln "
        "resolve --as failed {item}` gives the item up",
    ),
    Event.OUTPUTS_UNUSABLE: HoldReason(
        "it is paid and generated, and not all of its outputs could be fetched",
        "look at the error, and mend what it names; `batchkiln resolve --as generation --generation-id {generation} "
        "{item}` fetches it again, which costs nothing, `batchkiln resolve --as saved {item}` takes the files on disk "
        "for all of it, and `batchkiln resolve --as failed {item}` gives it up",
    ),
    GONE: HoldReason(
        "it is paid, some of its outputs are on disk, and the service no longer holds the others",
        "`batchkiln resolve --as saved {item}` takes the files on disk for all of it, `batchkiln resolve --as failed "
        "{item}` gives it up, and `batchkiln resolve --as not-created {item}` generates all of it anew, and pays again",
    ),
    Event.GENERATION_LOST: HoldReason(
        "the service no longer knows the generation, which was paid",
        "ask its support about the id. " + _ASK + _SAY,
    ),
}

_BY_ITSELF: Final = "nothing, it goes on by itself"
WAITS: Final[Mapping[WaitReason, str]] = {
    WaitReason.NOW: _BY_ITSELF,
    WaitReason.MINUTE_WINDOW: _BY_ITSELF,
    WaitReason.DAY_REQUESTS: _BY_ITSELF,
    WaitReason.DAY_CREDITS: _BY_ITSELF + " after the reset; `batchkiln status {job}` tells when the job will end",
    WaitReason.JOB_DAY_CREDITS: (
        _BY_ITSELF + " after the reset; a larger budget.credits_per_day in the manifest, and `batchkiln run "
        "{manifest}`, lets it go on today"
    ),
    WaitReason.POLL_INTERVAL: _BY_ITSELF,
    WaitReason.THROTTLED: _BY_ITSELF,
    WaitReason.OTHER_GENERATION: _BY_ITSELF + " when the other program or key of this account is through",
    WaitReason.EDGE_FIREWALL: "let other programs of this machine ask the service less; it goes on by itself",
    WaitReason.UNREACHABLE: "look at the network and at the profile's base_url; it is tried on by itself",
    WaitReason.UNAVAILABLE: _BY_ITSELF + " when the service is back",
    WaitReason.NOT_UNDERSTOOD: "`batchkiln status` says what came, and what to do; `batchkiln ask-again` asks again",
    WaitReason.NO_PRICE: _BY_ITSELF + ", ever more rarely; `batchkiln cancel {item}` gives it up at no cost",
    WaitReason.NO_UPLOAD: _BY_ITSELF + ", ever more rarely; `batchkiln cancel {item}` gives it up at no cost",
    WaitReason.PREPARING: _BY_ITSELF,
    WaitReason.SETTLING: (
        _BY_ITSELF
        + " when what is under way has ended; or raise budget.credits in the manifest: `batchkiln run {manifest}`"
    ),
    WaitReason.ACCOUNT_BLOCKED: "`batchkiln doctor` says why the service refuses the account; then `batchkiln work`",
    WaitReason.NO_KEY: "put the account's API key where the configuration looks for it; then `batchkiln work`",
    WaitReason.UNDECIDED: _BY_ITSELF + ", ever more rarely; after an hour without a decision a person is asked",
    WaitReason.REFUSED_ALIKE: "look at what the service says of them, in `batchkiln items {job}`; it goes on by itself",
    WaitReason.HELD: "end the held item first: `batchkiln show {holder}` tells how",
    WaitReason.ENOUGH: "`batchkiln work` without --until and --max-credits goes on",
    WaitReason.NOTHING: _BY_ITSELF,
}
"""What a person may do about each reason to wait."""


_OF_THE_RUN: Final = frozenset({WaitReason.ENOUGH, WaitReason.NOTHING})


@dataclass(frozen=True, slots=True)
class Explanation:
    """One item's sentences, without full stops. `next` names commands in backquotes."""

    story: str
    charged: str
    next: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that `next` names, in its order."""
        return tuple(_COMMAND.findall(self.next))


def explain_item(story: ItemDetail, summary: JobSummary, standing: ItemContext) -> Explanation:
    """Put one item into sentences."""
    return Explanation(_story(story, summary, standing), charged(story), _next(story, summary, standing))


# --- where it stands -------------------------------------------------------------------------------------


def _story(story: ItemDetail, summary: JobSummary, standing: ItemContext) -> str:
    last = story.attempts[-1] if story.attempts else None
    error = story.item.error
    said = "" if error is None else f": {sanitize(error.code)}, {sanitize(error.message)}"
    match story.item.state:
        case ItemState.QUEUED:
            return _queued(story, summary, standing, said)
        case ItemState.HELD:
            details = said if error is not None and error.code in _TOLD_IN_FULL else ""
            return f"it needs you, since {_held_since(story)}: {hold_of(story).why}{details}"
        case ItemState.REJECTED:
            return f"it was rejected before anything was created{said}"
        case ItemState.CANCELED:
            return "a person canceled it before it was sent"
        case ItemState.FAILED:
            return _failed(story, last, said)
        case ItemState.SUBMITTING | ItemState.ACTIVE | ItemState.DOWNLOADING | ItemState.DONE | ItemState.EXPIRED:
            if last is None:
                raise InvariantBroken(f"item {story.item.id} is {story.item.state} without an attempt")
            return _sent(story, last, standing)
        case _:
            assert_never(story.item.state)


def _failed(story: ItemDetail, last: AttemptDetail | None, said: str) -> str:
    if last is None or last.state is AttemptState.ABANDONED:
        return "a person gave it up while it was held"
    if last.state is AttemptState.CANCELED:
        return f"the service canceled generation {last.generation_id}, and nothing says that it was refunded{said}"
    times = plural(story.failures, "time")
    return f"it failed {times} of {story.recipe.attempts} allowed, as the service verified{said}"


def _queued(story: ItemDetail, summary: JobSummary, standing: ItemContext, said: str) -> str:
    before = f"it was sent before, and is queued again{said}" if story.attempts else "it was not sent yet"
    if summary.is_paused:
        return f"{before}; its job is paused"
    before += _not_had(story)
    return f"{before}; {_waiting(standing)}" if _waiting(standing) else before


def _not_had(story: ItemDetail) -> str:
    """Say what the service fails to give each time it is asked; nothing where it did since."""
    kinds = {"price_not_had": "its price", "upload_not_had": "the upload of its image"}
    last = next((event for event in reversed(story.events) if event.kind in {*kinds, "quoted"}), None)
    if last is None or last.kind not in kinds or (last.kind == "price_not_had" and story.quote_credits is not None):
        return ""
    return f"; {kinds[last.kind]} cannot be had: {sanitize(str(last.detail.get('reason', '')))}"


def _sent(story: ItemDetail, last: AttemptDetail, standing: ItemContext) -> str:
    """Tell of an item whose last attempt reached the service, or may have."""
    waiting = f"; {_waiting(standing)}" if _waiting(standing) else ""
    here = plural(len(story.item.outputs), "file")
    match story.item.state:
        case ItemState.SUBMITTING:
            return (
                f"it was recorded at {format_minute(last.recorded_at)} and sent {plural(last.sends, 'time')} on "
                f"account {last.account} without a definite reply: it may or may not have been created{waiting}"
            )
        case ItemState.ACTIVE:
            status = f", which last called it {sanitize(last.generation_status)}" if last.generation_status else ""
            age_text = format_age(last.made_at, standing.now)
            return f"generation {last.generation_id} has been with the service for {age_text}{status}{waiting}"
        case ItemState.DOWNLOADING:
            ends = format_minute(retention_ends_at(last.made_at))
            return (
                f"generation {last.generation_id} is ready, and {here} here; the service keeps it until {ends}{waiting}"
            )
        case ItemState.EXPIRED:
            return f"generation {last.generation_id} was ready, but the service no longer holds it; {here} here"
        case _:
            return f"generation {last.generation_id} was fetched whole: {here}"


def _waiting(standing: ItemContext) -> str:
    """Say what it waits for; nothing where it simply has its turn."""
    wait = standing.wait
    if not standing.is_configured or wait is None:
        return ""
    if wait.reason is WaitReason.NOW:
        return "" if wait.holder is None else f"{_holder(wait)} has the one place of account {wait.account}"
    until = "" if wait.until is None else f" (until {format_minute(wait.until)})"
    if wait.reason in _OF_THE_RUN:
        return f"the run that drives account {wait.account} begins nothing new{until}"
    return f"it waits on account {wait.account} for {REASONS[wait.reason]}{until}"


def _holder(wait: Wait) -> str:
    assert wait.holder is not None
    return f"{wait.holder.job}/{sanitize(wait.holder.item)}"


def hold_of(story: ItemDetail) -> HoldReason:
    """Return why an item is held: by its error where that says more than the event, else by the event."""
    if story.item.error is not None and story.item.error.code in {DAMAGED, GONE}:
        return HOLDS[story.item.error.code]
    return HOLDS[next(event.kind for event in reversed(story.events) if event.state is ItemState.HELD)]


def _held_since(story: ItemDetail) -> str:
    return format_minute(next(event.at for event in reversed(story.events) if event.state is ItemState.HELD))


# --- what it has cost ------------------------------------------------------------------------------------


def charged(story: ItemDetail) -> str:
    """Say what an item has cost, attempt by attempt, and what is not known."""
    told = Counter(text for attempt in story.attempts if (text := _cost(attempt)))
    if told:
        return "; ".join(text if times == 1 else f"{times} times {text}" for text, times in told.items())
    return "nothing: it was refused before anything was created" if story.attempts else "nothing: it was never sent"


def _cost(attempt: AttemptDetail) -> str:
    """Say what one attempt has cost; empty for one of which the service said that nothing was created."""
    quote = plural(attempt.quote_credits, "credit")
    cost = quote if attempt.cost_credits is None else plural(attempt.cost_credits, "credit")
    match attempt.state:
        case AttemptState.REFUSED:
            told = ""
        case AttemptState.SENT:
            told = f"{quote} are reserved, and charged at most once, if it was created"
        case AttemptState.FAILED:
            told = f"{cost}, and refunded; they still count toward the day's credits (Service section 8)"
        case AttemptState.CANCELED:
            told = f"{cost}; nothing says that they were refunded"
        case AttemptState.DISPUTED if attempt.generation_id is None:
            told = f"{quote} stay reserved, since nobody knows whether they were charged"
        case AttemptState.ABANDONED if attempt.generation_id is None:
            told = f"{quote} may have been charged for an attempt that a person ended; they are not counted"
        case _:
            told = cost
    return told


# --- what to do ------------------------------------------------------------------------------------------


def _next(story: ItemDetail, summary: JobSummary, standing: ItemContext) -> str:
    text = _remedy(story, summary, standing)
    holder = standing.wait.holder if standing.wait else None
    return text.format(
        job=story.job,
        item=command_arguments(story.job, story.item.name),
        generation=shlex.quote((story.attempts[-1].generation_id if story.attempts else None) or "ID"),
        manifest="-" if summary.manifest_path == "<stdin>" else shlex.quote(summary.manifest_path),
        holder="" if holder is None else command_arguments(holder.job, holder.item),
    )


def _remedy(story: ItemDetail, summary: JobSummary, standing: ItemContext) -> str:
    state = story.item.state
    if state is ItemState.QUEUED and summary.is_paused:
        return "`batchkiln unpause {job}` lets it go on, and says first what that may cost"
    if state in WORKING_STATES:
        return _moving(story, summary, standing)
    if state is ItemState.HELD:
        return hold_of(story).remedy
    if state is ItemState.FAILED and story.attempts and story.attempts[-1].state is AttemptState.CANCELED:
        return "look at the account first; `batchkiln retry {item}` may pay for it again"
    if state is ItemState.FAILED and story.attempts and story.attempts[-1].state is AttemptState.ABANDONED:
        return "`batchkiln retry {item}` tries again, and pays again where the attempt that was given up was charged"
    return _ENDED[state]


def _moving(story: ItemDetail, summary: JobSummary, standing: ItemContext) -> str:
    if not standing.is_configured:
        place = f"its service, the profile {sanitize(summary.profile)}, is not in this configuration"
        return _escaped(place) + ": name the right one with --config, then `batchkiln work`"
    text = _BY_ITSELF if standing.wait is None else WAITS[standing.wait.reason]
    if is_stuck(story, standing):
        text = _STUCK[story.item.state] + _ASK.removesuffix(". ")
    if not standing.is_driven:
        start = "no process drives the queue: `batchkiln work` lets it go on"
        return start if text == _BY_ITSELF else f"{start}. Then: {text}"
    return text if "`" in text else text + "; `batchkiln status {job}` tells how far its job is"


_STUCK: Final[Mapping[ItemState, str]] = {
    ItemState.SUBMITTING: (
        "the same request is sent on, which is never charged twice (Service rule 4.2); `batchkiln resolve --as failed "
        "{item}` ends that while no process drives the queue. "
    ),
    ItemState.ACTIVE: (
        "ask the service's support about the generation; it is polled on and never replaced, since it may be charged "
        "(Service rule 4.5). Where its reads never succeed, `batchkiln resolve --as failed {item}` frees the account "
        "while no process drives the queue. "
    ),
}


def is_stuck(story: ItemDetail, standing: ItemContext) -> bool:
    """Whether an item was sent so long ago, without an end, that the service's support should hear of it."""
    return story.item.state in WITH_SERVICE and is_long_pending(story.attempts[-1].made_at, standing.now)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


_ENDED: Final[Mapping[ItemState, str]] = {
    ItemState.DONE: "nothing: it is done",
    ItemState.FAILED: "`batchkiln retry {item}` tries again, and is paid like any attempt",
    ItemState.REJECTED: (
        "mend the request, or raise the cap or budget that the error names, in the manifest, then `batchkiln run "
        "{manifest}`; where the reason has gone by itself, `batchkiln retry {item}`"
    ),
    ItemState.EXPIRED: "`batchkiln retry {item}` generates it anew, and pays again",
    ItemState.CANCELED: "`batchkiln retry {item}` queues it again",
}
