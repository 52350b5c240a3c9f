"""The page that asks before an action: what it does, what it may cost, and what follows."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.api import ItemSummary, Reader, RetryGroup
from batchkiln.api.changes import Action, Question, question_of
from batchkiln.core.states import FAILED_STATES, NOT_DELIVERED, ItemState
from batchkiln.dashboard.context import Context
from batchkiln.dashboard.messages import button_label
from batchkiln.dashboard.rendering import action_url
from batchkiln.presentation.takers import after_pause, who_takes

_SENT: Final = frozenset({Action.RETRY, Action.REDO, Action.UNPAUSE})
"""The actions after which items are sent, if a process runs the queue."""


class Row(Struct, frozen=True):
    """The items of a job in one state, in the question before a retry. `other_url` has them the other way."""

    group: RetryGroup
    is_included: bool
    other_url: str | None = None


class Asked(Struct, frozen=True):
    """A question, with the states of a retry without named items, and what a process does after the action.

    `shown` has the first items that would change, by their names: a person recognises them by picture and prompt.
    `items` are the named items; of a redo of what is stale, those that are.
    """

    question: Question
    states: tuple[ItemState, ...] = NOT_DELIVERED
    rows: tuple[Row, ...] = ()
    after: str = ""
    shown: Mapping[str, ItemSummary] = field(default_factory=dict)
    items: tuple[str, ...] = ()


def read_question(
    reader: Reader,
    action: Action,
    job: str,
    items: Sequence[str] = (),
    states: Sequence[ItemState] = (),
    *,
    is_stale: bool = False,
) -> Asked:
    """Return the question before an action. Raise `InputError` for an unknown job or item.

    A retry without named items is of `states`. Without these, it leaves out rejected items, which are rejected again,
    unless there are no others. `is_stale` asks about the stale items of the job, whichever they are now.
    """
    named = reader.items.stale_names(job) if is_stale else items
    asked = _asked(reader, action, job, named, states)
    shown = {each.name: reader.items.by_name(job, each.name) for each in asked.question.affected}
    return replace(asked, shown=shown, items=tuple(named))


def _takers(reader: Reader, action: Action, job: str) -> str:
    if action not in _SENT:
        return ""
    return who_takes(reader, [job], number=None if action is Action.UNPAUSE else 0)


def _asked(reader: Reader, action: Action, job: str, items: Sequence[str], states: Sequence[ItemState]) -> Asked:
    after = after_pause(reader, job) if action is Action.PAUSE else _takers(reader, action, job)
    if action is not Action.RETRY:
        question = question_of(reader, action, job, items)
        if action is Action.UNPAUSE and not question.figures[0]:  # nothing is queued: nothing begins
            return Asked(replace(question, spending=None))
        return Asked(question, after=after)
    if items:
        question = question_of(reader, action, job, items)
        return Asked(question, rows=tuple(Row(group, is_included=True) for group in question.groups), after=after)
    groups = reader.preview_retry(job, ()).groups
    chosen = states or [group.state for group in groups if group.state in FAILED_STATES] or NOT_DELIVERED
    wanted = tuple(state for state in NOT_DELIVERED if state in chosen)
    rows = tuple(Row(group, group.state in wanted, _other_url(job, wanted, group, groups)) for group in groups)
    return Asked(question_of(reader, action, job, (), wanted), wanted, rows, after)


def retry_url(job: str, states: Sequence[ItemState]) -> str:
    """Return the URL of the question before a retry of all items of a job in some states."""
    return f"{action_url(job, Action.RETRY)}?{urlencode({'state': list(states)}, doseq=True)}"


def _other_url(job: str, wanted: Sequence[ItemState], group: RetryGroup, groups: Sequence[RetryGroup]) -> str | None:
    """Return the question with a group included or left out; None if nothing would be left."""
    present = {each.state for each in groups}
    others = {state for state in wanted if state in present} ^ {group.state}
    return retry_url(job, [state for state in NOT_DELIVERED if state in others]) if others else None


def question_page(
    context: Context,
    action: Action,
    job: str,
    asked: Asked,
    *,
    back: str,
    target: str = "",
    is_changed: bool = False,
    posted: Sequence[str] = (),
) -> web.Response:
    """Return the page that asks, with a form that names the `posted` items and is sent to `target`, or to itself."""
    question = asked.question
    return context.page(
        "confirm.html",
        status=409 if is_changed else 200,
        label=button_label(action, question.number, question.spending),
        title=button_label(action, question.number),
        is_danger=action is Action.CANCEL,
        job=job,
        question=question,
        shown=asked.shown,
        rows=asked.rows,
        after=asked.after if question.number else "",
        is_changed=is_changed,
        back=back,
        posted=posted,
        target=target,
    )
