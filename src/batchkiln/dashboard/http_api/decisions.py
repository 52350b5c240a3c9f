"""The operations of a person: keep, drop, redo and so on. What may cost credits states its cost first."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from batchkiln.api import Decided, Reader, ReviewReport
from batchkiln.api.changes import Action, Changes, Question, question_before
from batchkiln.api.documents import (
    CanceledDocument,
    ChosenVersionDocument,
    FetchedDocument,
    PausedDocument,
    RedoneDocument,
    RetriedDocument,
    ReviewedDocument,
    canceled_document,
    fetched_document,
    redone_document,
    retried_document,
    reviewed_document,
)
from batchkiln.api.local_service import review_effects
from batchkiln.core.errors import InputError
from batchkiln.core.states import ItemState
from batchkiln.dashboard.http_api.operation import Call
from batchkiln.dashboard.http_api.problems import Kind, ProblemError
from batchkiln.dashboard.http_api.replies import QuestionDocument, question_document
from batchkiln.dashboard.http_api.requests import (
    ActionQuery,
    AgreedBody,
    FetchBody,
    Query,
    RedoBody,
    SomeItemsBody,
    VerdictBody,
    VersionBody,
)
from batchkiln.presentation.item_documents import skipped_document

D = TypeVar("D")

_VERDICTS: Final = {Decided.KEEP: "kept", Decided.DROP: "dropped", Decided.UNDO: None}
_PAID: Final = frozenset({Action.RETRY, Action.REDO, Action.UNPAUSE})
"""The actions after which items are sent, so that their cost needs a confirmation."""


# --- verdicts ---


async def keep(call: Call[Query, VerdictBody]) -> ReviewedDocument:
    """Keep done items."""
    return await _review(call, Decided.KEEP)


async def drop(call: Call[Query, VerdictBody]) -> ReviewedDocument:
    """Drop done items."""
    return await _review(call, Decided.DROP)


async def undo(call: Call[Query, VerdictBody]) -> ReviewedDocument:
    """Take verdicts back."""
    return await _review(call, Decided.UNDO)


async def _review(call: Call[Query, VerdictBody], decided: Decided) -> ReviewedDocument:
    """Decide about items. An item that has changed meanwhile is a conflict if nothing else was decided.

    A verdict that an item already has is none, so that a request can be repeated.
    """
    named, job = call.body.items, call.job
    async with call.context.changes() as changes:
        await _require(changes, job, list(named))
        report = await changes.review(job, named, decided, by=call.principal.name)
        summary = await changes.reader.read(lambda reader: reader.jobs.summary(job))
        effects = await changes.reader.read(review_effects, call.context.config, job, report.changed)
        if not report.changed and await changes.reader.read(_has_conflict, job, report, decided, named):
            reasons = "; ".join(f"{entry.name}: {entry.reason}" for entry in report.skipped)
            raise ProblemError(
                Kind.CONFLICT,
                reasons,
                "Look at the current version of the item, and decide again.",
                more={"skipped": skipped_document(report.skipped)},
            )
    return reviewed_document(job, {decided: report}, summary, effects)


def _has_conflict(
    reader: Reader, job: str, report: ReviewReport, decided: Decided, named: Sequence[str] | Mapping[str, int]
) -> bool:
    """Return whether an item was skipped for a reason other than that it already has this verdict."""
    for entry in report.skipped:
        item = reader.items.by_name(job, entry.name)
        seen = named[entry.name] if isinstance(named, Mapping) else item.version
        if item.state is not ItemState.DONE or item.version != seen or item.verdict != _VERDICTS[decided]:
            return True
    return False


# --- actions with a question ---


async def retry(call: Call[ActionQuery, SomeItemsBody]) -> RetriedDocument | QuestionDocument:
    """Queue ended items again."""

    async def act(changes: Changes) -> RetriedDocument:
        return retried_document(call.job, await changes.retry(call.job, call.body.items))

    return await _asked(call, Action.RETRY, call.body.items or (), act)


async def redo(call: Call[ActionQuery, RedoBody]) -> RedoneDocument | QuestionDocument:
    """Make done items again."""

    async def act(changes: Changes) -> RedoneDocument:
        return redone_document(call.job, await changes.redo(call.job, call.body.items))

    return await _asked(call, Action.REDO, call.body.items, act)


async def cancel(call: Call[ActionQuery, SomeItemsBody]) -> CanceledDocument | QuestionDocument:
    """Cancel items that were never sent."""

    async def act(changes: Changes) -> CanceledDocument:
        return canceled_document(call.job, await changes.cancel(call.job, call.body.items))

    return await _asked(call, Action.CANCEL, call.body.items or (), act)


async def pause(call: Call[ActionQuery, AgreedBody]) -> PausedDocument | QuestionDocument:
    """Start no new items of a job."""

    async def act(changes: Changes) -> PausedDocument:
        return {"job": call.job, "paused": True, "changed": await changes.pause(call.job)}

    return await _asked(call, Action.PAUSE, (), act)


async def unpause(call: Call[ActionQuery, AgreedBody]) -> PausedDocument | QuestionDocument:
    """Resume a paused job."""

    async def act(changes: Changes) -> PausedDocument:
        return {"job": call.job, "paused": False, "changed": await changes.unpause(call.job)}

    return await _asked(call, Action.UNPAUSE, (), act)


async def _asked(
    call: Call[ActionQuery, Any], action: Action, items: Sequence[str], act: Callable[[Changes], Awaitable[D]]
) -> D | QuestionDocument:
    """State the cost of an action, or perform it once its cost is confirmed."""
    context, job = call.context, call.job
    async with context.changes() as changes:
        await _require(changes, job, items)
        question = await question_before(changes, action, job, items)
        if call.query.dry_run:
            return question_document(job, question)
        agreed = call.body.agreed
        if (action in _PAID or agreed is not None) and not question.is_covered_by(agreed):
            raise _unconfirmed(action, question, is_first=agreed is None)
        return await act(changes)


def _unconfirmed(action: Action, question: Question, *, is_first: bool) -> ProblemError:
    told = question.cost
    remedy = f'To {action} at this cost, send the request again with "agreed": "{question.agreed}".'
    if not is_first:
        told = f"The figures have grown, or the items were sent again, since this was confirmed. {question.cost}"
        remedy = f"Look at the items first: an earlier request may have been performed. {remedy}"
    more = {
        "agreed": question.agreed,
        "number": question.number,
        "skipped": skipped_document(question.skipped),
    }
    return ProblemError(Kind.UNCONFIRMED if is_first else Kind.CONFLICT, told, remedy, more=more)


# --- without cost ---


async def fetch(call: Call[Query, FetchBody]) -> FetchedDocument:
    """Let the next run download files that are gone."""
    async with call.context.changes() as changes:
        await _require(changes, call.job, call.body.items or ())
        return fetched_document(call.job, await changes.fetch(call.job, call.body.items))


async def use_version(call: Call[Query, VersionBody]) -> ChosenVersionDocument:
    """Make the files of a version current."""
    body, job = call.body, call.job
    async with call.context.changes() as changes:
        await _require(changes, job, [body.item])
        state = await changes.use_version(job, body.item, body.version)
    return {"job": job, "item": body.item, "state": state, "version": body.version}


async def _require(changes: Changes, job: str, items: Sequence[str]) -> None:
    """Raise `ProblemError` for an unknown job or item."""
    try:
        await changes.reader.read(_check_names, job, items)
    except InputError as error:
        raise ProblemError(
            Kind.NOT_FOUND, str(error), "Read the jobs, or the items of the job, for the names."
        ) from error


def _check_names(reader: Reader, job: str, items: Sequence[str]) -> None:
    job_id = reader.jobs.id_of(job)
    if items:
        reader.jobs.items_named(job_id, job=job, names=list(items))
