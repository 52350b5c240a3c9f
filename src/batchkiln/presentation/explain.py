"""Explains one item in sentences: its state and the reason, its cost, and the next step."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Final, assert_never

from msgspec import Struct

from batchkiln.core.errors import InvariantBroken, command_arguments
from batchkiln.core.job import AttemptState
from batchkiln.core.polling import is_long_pending, retention_ends_at
from batchkiln.core.states import FAILED_STATES, RETRYABLE, WITH_SERVICE, WORKING_STATES, Event, ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.chained_inputs import stale_text, waits_remedy, waits_text
from batchkiln.presentation.formatting import REASONS, format_minute, format_service_age, format_until, plural, sanitize
from batchkiln.presentation.item_context import ItemContext, Wait
from batchkiln.presentation.rejections import manifest_argument
from batchkiln.store import AttemptDetail, ItemDetail, JobSummary

DAMAGED: Final = "attempt_damaged"  # an error code that is more specific than its event KEY_CONFLICT
ID_TAKEN: Final = "generation_known"  # likewise
UNUSABLE: Final = "input_unusable"  # likewise, than INPUT_LOST
GONE: Final = "outputs_gone"  # likewise, than OUTPUTS_UNUSABLE
_SHOWN_IN_FULL: Final = frozenset({ID_TAKEN, GONE, UNUSABLE, "output_unusable"})  # codes whose messages are our own
_COMMAND: Final = re.compile(r"""`(batchkiln (?:"'"|'[^']*'|[^`'])+)`""")  # names in commands are quoted as by shlex

_ASK_SUPPORT: Final = (
    "`batchkiln show --bundle support.zip {item}` collects what the service's support needs to find it. "
)
_RECORD_DECISION: Final = (
    "Then record what you found: `batchkiln resolve --as generation --generation-id ID {item}` downloads it, "
    "`batchkiln resolve --as not-created {item}` queues it again with a new idempotency key, and `batchkiln resolve "
    "--as failed {item}` gives it up"
)
_ASK_AGAIN: Final = (
    "; `batchkiln resolve --as ask-again {item}` sends the same request once more with the same idempotency key"
)


class HoldReason(Struct, frozen=True):
    """The reason why an item is held, and the remedy."""

    why: str
    remedy: str


HOLDS: Final[Mapping[str, HoldReason]] = {
    Event.KEY_MISSING: HoldReason(
        "the API key that sent the request is not configured or was refused, and no other API key may read it",
        "put that API key back beside the new one and run `batchkiln work`; if it is gone for good, `batchkiln "
        "resolve --as failed {item}` gives the item up and frees the account",
    ),
    Event.KEY_CONFLICT: HoldReason(
        "the service has said for an hour that it knows the idempotency key with another body, so something "
        "may have been created",
        "look for it in the account. " + _ASK_SUPPORT + _RECORD_DECISION + _ASK_AGAIN,
    ),
    DAMAGED: HoldReason(
        "the stored request or its idempotency key no longer matches its checksum, so sending it again could pay twice",
        "look for it in the account, and check the disk. " + _ASK_SUPPORT + _RECORD_DECISION,
    ),
    ID_TAKEN: HoldReason(
        "the service accepted the request with the id of a generation that belongs to another item, so something may "
        "have been created under another id",
        "look for it in the account; if the id was read from the wrong place of the reply, set "
        "replies.fields.generation_id in the profile. " + _ASK_SUPPORT + _RECORD_DECISION,
    ),
    Event.REFUSED_IN_DOUBT: HoldReason(
        "an earlier send got no reply, and later sends were refused for an hour; a refusal does not decide the first "
        "send, so something may have been created",
        "look for it in the account. " + _ASK_SUPPORT + _RECORD_DECISION + _ASK_AGAIN,
    ),
    Event.KEY_FORGOTTEN: HoldReason(
        "an earlier send got no reply, and the service has not answered for a day: it may have forgotten the "
        "idempotency key, and would create and charge the item again",
        "look for it in the account. " + _ASK_SUPPORT + _RECORD_DECISION + _ASK_AGAIN,
    ),
    Event.SET_ASIDE: HoldReason(
        "the service works but does not decide this request: no reply to its repeated sends named a generation or "
        "refused it",
        "look for it in the account. " + _ASK_SUPPORT + _RECORD_DECISION + _ASK_AGAIN,
    ),
    Event.INPUT_LOST: HoldReason(
        "a local image is gone or has changed since it was accepted",
        "put the image back and run the manifest again with `batchkiln run {manifest}`; `batchkiln resolve --as "
        "failed {item}` gives the item up",
    ),
    UNUSABLE: HoldReason(
        "the image that it is made from cannot be uploaded",
        "have the image made again in another format, as with `output_format: png`, or name a file instead, and run "
        "the manifest again with `batchkiln run {manifest}`; `batchkiln resolve --as not-created {item}` queues it "
        "again, and `batchkiln resolve --as failed {item}` gives it up",
    ),
    Event.OUTPUTS_UNUSABLE: HoldReason(
        "it is paid and generated, but not all of its outputs could be downloaded",
        "fix what the error names; `batchkiln resolve --as generation --generation-id {generation} {item}` downloads "
        "it again at no cost, `batchkiln resolve --as saved {item}` accepts the files on disk as complete, and "
        "`batchkiln resolve --as failed {item}` gives it up",
    ),
    GONE: HoldReason(
        "it is paid, some of its outputs are on disk, and the service no longer keeps the others",
        "`batchkiln resolve --as saved {item}` accepts the files on disk as complete, `batchkiln resolve --as failed "
        "{item}` gives it up, and `batchkiln resolve --as not-created {item}` generates all of it again, and pays "
        "again",
    ),
    Event.GENERATION_LOST: HoldReason(
        "the generation was paid, and the service no longer knows it",
        "ask its support about the id. " + _ASK_SUPPORT + _RECORD_DECISION,
    ),
}

_BY_ITSELF: Final = "nothing: it continues by itself"
WAITS: Final[Mapping[WaitReason, str]] = {
    WaitReason.NOW: _BY_ITSELF,
    WaitReason.MINUTE_WINDOW: _BY_ITSELF,
    WaitReason.DAY_REQUESTS: _BY_ITSELF,
    WaitReason.DAY_CREDITS: _BY_ITSELF + " after the reset; `batchkiln status {job}` shows when the job will end",
    WaitReason.JOB_DAY_CREDITS: (
        _BY_ITSELF
        + " after the reset; to continue today, raise budget.credits_per_day in the manifest, then `batchkiln run "
        "{manifest}`"
    ),
    WaitReason.POLL_INTERVAL: _BY_ITSELF,
    WaitReason.THROTTLED: _BY_ITSELF,
    WaitReason.OTHER_GENERATION: _BY_ITSELF + " when the other program or API key of this account has finished",
    WaitReason.EDGE_FIREWALL: "let other programs on this machine send fewer requests; it continues by itself",
    WaitReason.UNREACHABLE: "check the network and the profile's base_url; the program keeps trying",
    WaitReason.UNAVAILABLE: _BY_ITSELF + " when the service is back",
    WaitReason.NOT_UNDERSTOOD: "`batchkiln status` shows the reply and what to do; `batchkiln ask-again` asks again",
    WaitReason.NO_PRICE: _BY_ITSELF + ", less and less often; `batchkiln cancel {item}` gives it up at no cost",
    WaitReason.NO_UPLOAD: _BY_ITSELF + ", less and less often; `batchkiln cancel {item}` gives it up at no cost",
    WaitReason.PREPARING: _BY_ITSELF,
    WaitReason.SETTLING: (
        _BY_ITSELF
        + (
            " when the items under way have ended, of which `batchkiln status {job}` shows those that need you; or "
            "raise the job's budget in the manifest, then `batchkiln run "
            "{manifest}`"
        )
    ),
    WaitReason.ACCOUNT_BLOCKED: "`batchkiln doctor` shows why the service refuses the account; then `batchkiln work`",
    WaitReason.NO_KEY: "set the account's API key where the configuration expects it; then `batchkiln work`",
    WaitReason.RESTORED: _BY_ITSELF,
    WaitReason.UNDECIDED: _BY_ITSELF + ", less and less often; after an hour without a decision it is held for you",
    WaitReason.REFUSED_ALIKE: "read the service's messages with `batchkiln items {job}`; it continues by itself",
    WaitReason.HELD: "resolve the held item first: `batchkiln show {holder}` explains how",
    WaitReason.ENOUGH: "run `batchkiln work` without --until and --max-credits to continue",
    WaitReason.NOTHING: _BY_ITSELF,
}
"""The next step of a person for each wait reason."""


_RUN_REASONS: Final = frozenset({WaitReason.ENOUGH, WaitReason.NOTHING})
"""Wait reasons that concern the current run, and not the item."""


class Explanation(Struct, frozen=True):
    """One item's sentences, without final full stops. `next` contains commands in backquotes."""

    situation: str
    charged: str
    next: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands in `next`, in order."""
        return tuple(_COMMAND.findall(self.next))


def explain_item(detail: ItemDetail, summary: JobSummary, context: ItemContext) -> Explanation:
    """Return the explanation of one item."""
    situation = _situation(detail, summary, context)
    if stale := stale_text(detail.item.sources, detail.job):
        situation = f"{situation}; {stale}"
    return Explanation(situation, charged(detail), _next(detail, summary, context))


# --- the state -------------------------------------------------------------------------------------------


def _situation(detail: ItemDetail, summary: JobSummary, context: ItemContext) -> str:
    last = detail.attempt
    error = detail.item.error
    error_text = "" if error is None else f": {sanitize(error.code)}, {sanitize(error.message)}"
    match detail.item.state:
        case ItemState.QUEUED:
            return _queued(detail, summary, context, error_text)
        case ItemState.HELD:
            details = error_text if error is not None and error.code in _SHOWN_IN_FULL else ""
            return f"it needs your decision, since {_held_since(detail)}: {hold_of(detail).why}{details}"
        case ItemState.REJECTED:
            return f"it was rejected, and nothing was created{error_text}"
        case ItemState.CANCELED:
            return "a person canceled it before it was sent"
        case ItemState.FAILED:
            return _failed(detail, last, error_text)
        case ItemState.SUBMITTING | ItemState.ACTIVE | ItemState.DOWNLOADING | ItemState.DONE | ItemState.EXPIRED:
            if last is None:
                raise InvariantBroken(f"item {detail.item.id} is {detail.item.state} without an attempt")
            return _sent(detail, last, context)
        case _:
            assert_never(detail.item.state)


def _failed(detail: ItemDetail, last: AttemptDetail | None, error_text: str) -> str:
    if last is None or last.state is AttemptState.ABANDONED:
        return "a person gave it up while it was held"
    if last.state is AttemptState.CANCELED:
        return f"the service canceled generation {last.generation_id}, and did not confirm a refund{error_text}"
    times = plural(detail.failures, "time")
    return f"it failed {times} of {detail.recipe.attempts} allowed, as the service verified{error_text}"


def _queued(detail: ItemDetail, summary: JobSummary, context: ItemContext, error_text: str) -> str:
    before = f"it was sent before, and is queued again{error_text}" if detail.attempts else "it has not been sent yet"
    if detail.item.version is not None:
        before = f"it is to be made again; the files of version {detail.item.version} stay current until then"
    if summary.is_paused:
        return f"{before}; its job is paused"
    if waits := waits_text(detail.item.sources, detail.job):
        return f"{before}; {waits}"
    before += _not_supplied(detail)
    return f"{before}; {_waiting(context)}" if _waiting(context) else before


def _not_supplied(detail: ItemDetail) -> str:
    """Describe a quote or upload that has failed every time; return "" if there is none."""
    kinds = {"price_not_had": "its price", "upload_not_had": "the upload of its image"}
    last = next((event for event in reversed(detail.events) if event.kind in {*kinds, "quoted"}), None)
    if last is None or last.kind not in kinds or (last.kind == "price_not_had" and detail.quote_credits is not None):
        return ""
    return f"; the service does not supply {kinds[last.kind]}: {sanitize(str(last.detail.get('reason', '')))}"


def _sent(detail: ItemDetail, last: AttemptDetail, context: ItemContext) -> str:
    """Describe an item whose last attempt may have reached the service."""
    waiting = f"; {_waiting(context)}" if _waiting(context) else ""
    here = plural(len(detail.item.outputs), "file")
    match detail.item.state:
        case ItemState.SUBMITTING:
            return (
                f"it was recorded at {format_minute(last.recorded_at)} and sent {plural(last.sends, 'time')} on "
                f"account {last.account} without a definite reply: it may or may not have been created{waiting}"
            )
        case ItemState.ACTIVE:
            status = f", last reported as {sanitize(last.generation_status)}" if last.generation_status else ""
            age_text = format_service_age(last.made_at, context.now, context.time_scale)
            return f"generation {last.generation_id} has been with the service for {age_text}{status}{waiting}"
        case ItemState.DOWNLOADING:
            ends = format_minute(retention_ends_at(last.made_at))
            return (
                f"generation {last.generation_id} is ready, and {here} here{_staged(detail, last)}; the service "
                f"keeps it until {ends}{waiting}"
            )
        case ItemState.EXPIRED:
            return f"generation {last.generation_id} was ready, but the service no longer keeps it; {here} here"
        case _:
            number, versions = detail.item.version, len(detail.versions)
            which = f"; version {number} of {versions} is current" if versions > 1 else ""
            return f"generation {last.generation_id} was downloaded completely: {here}{which}"


def _staged(detail: ItemDetail, last: AttemptDetail) -> str:
    """Describe the files that are complete on a disk and are to be written to a URL; return "" if there are none."""
    staged = {
        event.detail.get("number"): str(event.detail.get("host"))
        for event in detail.events
        if event.kind == "file_staged" and event.attempt_id == last.id
    }
    saved = {output.number for output in detail.item.outputs}
    hosts = [host for number, host in staged.items() if number not in saved]
    if not hosts:
        return ""
    where = ", ".join(sorted(set(hosts)))
    return f"; {plural(len(hosts), 'file')} complete on the disk of {where}, to be written to the job's URL"


def _waiting(context: ItemContext) -> str:
    """Describe the wait of the item; return "" if it does not wait."""
    wait = context.wait
    if not context.is_configured or wait is None:
        return ""
    if wait.reason is WaitReason.NOW:
        return "" if wait.holder is None else f"{_holder(wait)} occupies the only slot of account {wait.account}"
    until = "" if wait.until is None else f" (until {format_until(wait.until, context.time_scale)})"
    if wait.reason in _RUN_REASONS:
        return f"the current run of account {wait.account} starts nothing new{until}"
    return f"it waits on account {wait.account} for {REASONS[wait.reason]}{until}"


def _holder(wait: Wait) -> str:
    assert wait.holder is not None
    return f"{wait.holder.job}/{sanitize(wait.holder.item)}"


def hold_of(detail: ItemDetail) -> HoldReason:
    """Return the reason for a hold, by the error's code if that is more specific than the event."""
    if detail.item.error is not None and detail.item.error.code in {DAMAGED, ID_TAKEN, GONE, UNUSABLE}:
        return HOLDS[detail.item.error.code]
    return HOLDS[next(event.kind for event in reversed(detail.events) if event.state is ItemState.HELD)]


def _held_since(detail: ItemDetail) -> str:
    return format_minute(next(event.at for event in reversed(detail.events) if event.state is ItemState.HELD))


# --- the cost --------------------------------------------------------------------------------------------


_REFUNDED: Final = "which were refunded, but still count toward the day's credits"


def charged(detail: ItemDetail) -> str:
    """Describe the cost of an item, attempt by attempt, including unknown charges."""
    costs = Counter(text for attempt in detail.attempts if (text := _cost(attempt)))
    if costs:
        texts = sorted(costs, key=lambda text: text.endswith(_REFUNDED))  # first what it has really cost
        return "; besides, ".join(text if costs[text] == 1 else f"{costs[text]} times {text}" for text in texts)
    return "nothing: it was refused, and nothing was created" if detail.attempts else "nothing: it was never sent"


def _cost(attempt: AttemptDetail) -> str:
    """Describe the cost of one attempt; return "" if the service stated that nothing was created."""
    quote = plural(attempt.quote_credits, "credit")
    cost = quote if attempt.cost_credits is None else plural(attempt.cost_credits, "credit")
    match attempt.state:
        case AttemptState.REFUSED:
            text = ""
        case AttemptState.SENT:
            text = f"{quote} are reserved; they are charged at most once, and only if it was created"
        case AttemptState.FAILED:
            text = f"{cost}, {_REFUNDED}"
        case AttemptState.CANCELED:
            text = f"{cost}; a refund was not confirmed"
        case AttemptState.DISPUTED if attempt.generation_id is None:
            text = f"{quote} stay reserved, because it is unknown whether they were charged"
        case AttemptState.ABANDONED if attempt.generation_id is None:
            text = f"{quote} may have been charged for an attempt that a person gave up; they are not counted"
        case _:
            text = cost
    return text


# --- the next step ------------------------------------------------------------------------------------------


def _next(detail: ItemDetail, summary: JobSummary, context: ItemContext) -> str:
    text = _remedy(detail, summary, context)
    holder = context.wait.holder if context.wait else None
    return text.format(
        job=command_arguments(detail.job),
        item=command_arguments(detail.job, detail.item.name),
        generation=shlex.quote((detail.attempts[-1].generation_id if detail.attempts else None) or "ID"),
        manifest=manifest_argument(summary.manifest_path),
        holder="" if holder is None else command_arguments(holder.job, holder.item),
    )


def _remedy(detail: ItemDetail, summary: JobSummary, context: ItemContext) -> str:
    if detail.item.state is ItemState.DONE and detail.item.is_stale:
        return "`batchkiln redo {item}` makes it again from the current input, at the price of a new attempt"
    text, version = _remedy_of_state(detail, summary, context), detail.item.version
    if detail.item.state not in RETRYABLE or version is None:
        return text
    return f"{text}; `batchkiln use-version {{item}} {version}` makes it done with the files that it had, at no cost"


def _remedy_of_state(detail: ItemDetail, summary: JobSummary, context: ItemContext) -> str:
    state = detail.item.state
    if state is ItemState.QUEUED and summary.is_paused:
        return "`batchkiln unpause {job}` resumes it, and first shows what that may cost"
    if state in WORKING_STATES:
        return _unfinished(detail, summary, context)
    if state is ItemState.HELD:
        return hold_of(detail).remedy
    if state in FAILED_STATES:
        return retry_remedy(state, detail.attempt.state if detail.attempt else None, "`batchkiln retry {item}`")
    return _ENDED[state]


def retry_remedy(state: ItemState, attempt: AttemptState | None, retry: str) -> str:
    """Return the next step for failed or expired items, as a clause. `retry` is the words for the command.

    `attempt` is how the latest attempt ended. What the service canceled stays charged, as far as is known.
    """
    if state is ItemState.EXPIRED:
        return f"{retry} generates it again, and pays again"
    match attempt:
        case AttemptState.CANCELED:
            return f"check the account first, because no refund was confirmed; {retry} may pay for it again"
        case AttemptState.ABANDONED:
            return f"{retry} tries again, and pays again if the attempt that was given up was charged"
        case _:
            return f"{retry} tries again, at the price of a new attempt"


def _unfinished(detail: ItemDetail, summary: JobSummary, context: ItemContext) -> str:
    if not context.is_configured:
        place = f"its profile {sanitize(summary.profile)} is not in this configuration"
        return _escape_braces(place) + ": pass the right configuration with --config, then `batchkiln work`"
    text = _BY_ITSELF if context.wait is None else WAITS[context.wait.reason]
    remedy = waits_remedy(detail.item.sources) if detail.item.state is ItemState.QUEUED else None
    if remedy is not None:
        text = _escape_braces(remedy)
    if is_stuck(detail, context):
        text = _STUCK[detail.item.state] + _ASK_SUPPORT.removesuffix(". ")
    if not context.is_driven:
        start = "no process is running this queue: `batchkiln work` continues it"
        if summary.stuck and remedy is not None:  # nothing else of the job can begin before a person has acted
            return f"{text}. Then: {start}"
        return start if text == _BY_ITSELF else f"{start}. Then: {text}"
    return text if "`" in text else text + "; `batchkiln status {job}` shows its job's progress"


_STUCK: Final[Mapping[ItemState, str]] = {
    ItemState.SUBMITTING: (
        "the same request is sent again, which is never charged twice; to give it up, stop the "
        "process that runs the queue and use `batchkiln resolve --as failed {item}`. "
    ),
    ItemState.ACTIVE: (
        "ask the service's support about the generation; it is still polled and never replaced, because it may be "
        "charged. If its polls never succeed, stop the process that runs the queue and free the "
        "account with `batchkiln resolve --as failed {item}`. "
    ),
}


def is_stuck(detail: ItemDetail, context: ItemContext) -> bool:
    """Return whether an unfinished item was sent so long ago that the service's support should be asked about it."""
    return detail.item.state in WITH_SERVICE and is_long_pending(
        detail.attempts[-1].made_at, context.now, context.time_scale
    )


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


_ENDED: Final[Mapping[ItemState, str]] = {
    ItemState.DONE: "nothing: it is done",
    ItemState.REJECTED: (
        "fix the request in the manifest, or raise the cap or budget that the error names, then `batchkiln run "
        "{manifest}`; if the cause no longer exists, `batchkiln retry {item}`"
    ),
    ItemState.CANCELED: "`batchkiln retry {item}` queues it again",
}
