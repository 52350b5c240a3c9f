"""The results of the application layer as JSON values: `--json` prints them, and the HTTP interface replies with them.

The documents of jobs, items and events are in `presentation`.
"""

from collections.abc import Mapping
from typing import TypedDict

from batchkiln.api.apply_manifests import Applied
from batchkiln.api.changes import FetchReport
from batchkiln.core.states import ItemState
from batchkiln.presentation.item_documents import SkippedDocument, skipped_document
from batchkiln.store import (
    ApplyReport,
    CancelReport,
    Decided,
    JobSummary,
    MadeItem,
    RedoEffects,
    RedoReport,
    RetryReport,
    ReviewEffects,
    ReviewReport,
)


class WarningDocument(TypedDict):
    """A doubt about a manifest, with its place."""

    file: str | None
    line: int | None
    column: int | None
    reason: str
    remedy: str | None


class OutdatedDocument(TypedDict):
    """Items that become stale. `may_cost` is that of making them again, null without any known quote."""

    items: int
    first: str
    may_cost: int | None
    unquoted: int


class RedoEffectsDocument(TypedDict):
    """The effects of making items again: `kept` lose their verdicts, and `outdated` is null if none becomes stale.

    `kept_items` has the first names of `kept`.
    """

    kept: int
    kept_items: list[str]
    outdated: OutdatedDocument | None


class RedoDocument(TypedDict):
    """The items that `--on-change redo` makes again. `over_cap` of them have a quote over their cap."""

    items: int
    may_cost: int
    unquoted: int
    over_cap: int
    effects: RedoEffectsDocument


class AppliedDocument(TypedDict):
    """The result of one manifest. The counts are of items. `moved_from` is the profile of before, or null."""

    job: str
    profile: str
    new: int
    known: int
    updated: int
    kept: int
    requeued: int
    redone: int
    redo_may_cost: int
    redo_unquoted: int
    redo_over_cap: int
    redo_effects: RedoEffectsDocument
    missing: int
    pruned: int
    moved_from: str | None
    warnings: list[WarningDocument]


class EnqueuedDocument(TypedDict):
    """The results of manifests."""

    jobs: list[AppliedDocument]


class RetriedDocument(TypedDict):
    """The items that are queued again, by their previous state. `may_cost` is null without any known quote.

    `over_cap` of the items have a quote over their cap, and would be rejected.
    """

    job: str
    requeued: dict[str, int]
    may_cost: int | None
    unquoted: int
    over_cap: int
    paying_again: int
    skipped: list[SkippedDocument]


class RedoneDocument(TypedDict):
    """The number of done items that are made again. `may_cost` is null without any known quote.

    `over_cap` of the items have a quote over their cap, and would be rejected.
    """

    job: str
    redone: int
    may_cost: int | None
    unquoted: int
    over_cap: int
    effects: RedoEffectsDocument
    skipped: list[SkippedDocument]


class CanceledDocument(TypedDict):
    """The number of canceled items. `waiting` other items wait for the outputs of the canceled ones."""

    job: str
    canceled: int
    waiting: int
    skipped: list[SkippedDocument]


class PausedDocument(TypedDict):
    """Whether a job is paused, and whether that was changed."""

    job: str
    paused: bool
    changed: bool


class FileDocument(TypedDict):
    """A file of an item."""

    item: str
    path: str


class FetchedDocument(TypedDict):
    """The files that exist, the items that are downloaded again, and the files that the service no longer keeps.

    A new file is saved beside what lies in its place, which is in `kept_in_place`.
    """

    job: str
    present: int
    items_to_fetch: int
    lost: list[FileDocument]
    kept_in_place: list[FileDocument]
    skipped: list[SkippedDocument]


class ChosenVersionDocument(TypedDict):
    """An item whose files are now those of a version."""

    job: str
    item: str
    state: ItemState
    version: int


class MadeItemDocument(TypedDict):
    """An item that was sent with a file of a reviewed one. `done`: a redo can make it again."""

    job: str
    item: str
    made_from: str
    credits: int
    done: bool


class EffectsDocument(TypedDict):
    """What verdicts mean for the items that are made from the reviewed ones.

    `ready` can begin now, for `may_cost` credits by the known quotes; `unquoted` of them have none. `begun` were sent
    with a kept file, and `outdated` with one that is no longer the chosen one.
    """

    ready: list[str]
    may_cost: int | None
    unquoted: int
    begun: list[MadeItemDocument]
    outdated: list[MadeItemDocument]


class ReviewedDocument(TypedDict):
    """The items whose verdict changed, what that means for others, and the numbers of pending reviews."""

    job: str
    kept: list[str]
    dropped: list[str]
    undone: list[str]
    made_ready: int
    effects: EffectsDocument
    skipped: list[SkippedDocument]
    to_review: int
    to_choose: int


def applied_document(entry: Applied) -> AppliedDocument:
    """Return the result of one manifest as `enqueue --json` prints it."""
    report = entry.report
    return {
        "job": entry.job.name,
        "profile": entry.profile,
        "new": report.new,
        "known": report.known,
        "updated": report.updated,
        "kept": report.kept,
        "requeued": report.requeued,
        "redone": report.redone,
        "redo_may_cost": report.redo_cost,
        "redo_unquoted": report.redo_unquoted,
        "redo_over_cap": report.redo_over_cap,
        "redo_effects": _effects_document(report.redo_effects),
        "missing": report.missing,
        "pruned": report.pruned,
        "moved_from": report.moved_from,
        "warnings": [
            {
                "file": warning.file,
                "line": warning.line,
                "column": warning.column,
                "reason": warning.reason,
                "remedy": warning.remedy,
            }
            for warning in report.warnings
        ],
    }


def retried_document(job: str, report: RetryReport) -> RetriedDocument:
    """Return the result of a retry as `retry --json` prints it."""
    return {
        "job": job,
        "requeued": {state.value: number for state, number in report.requeued.items()},
        "may_cost": report.may_cost,
        "unquoted": report.unquoted,
        "over_cap": report.over_cap,
        "paying_again": report.paying_again,
        "skipped": skipped_document(report.skipped),
    }


def redone_document(job: str, report: RedoReport) -> RedoneDocument:
    """Return the result of a redo as `redo --json` prints it."""
    return {
        "job": job,
        "redone": report.redone,
        "may_cost": report.may_cost,
        "unquoted": report.unquoted,
        "over_cap": report.over_cap,
        "effects": _effects_document(report.effects),
        "skipped": skipped_document(report.skipped),
    }


def redo_document(report: ApplyReport) -> RedoDocument:
    """Return the items that a manifest makes again, and what that means for others."""
    return {
        "items": report.redone,
        "may_cost": report.redo_cost,
        "unquoted": report.redo_unquoted,
        "over_cap": report.redo_over_cap,
        "effects": _effects_document(report.redo_effects),
    }


def _effects_document(effects: RedoEffects) -> RedoEffectsDocument:
    outdated = effects.outdated
    return {
        "kept": effects.kept,
        "kept_items": list(effects.kept_names),
        "outdated": None
        if outdated is None
        else {
            "items": outdated.count,
            "first": outdated.first,
            "may_cost": outdated.may_cost,
            "unquoted": outdated.unquoted,
        },
    }


def canceled_document(job: str, report: CancelReport) -> CanceledDocument:
    """Return the result of a cancellation as `cancel --json` prints it."""
    return {
        "job": job,
        "canceled": report.canceled,
        "waiting": report.waiting,
        "skipped": skipped_document(report.skipped),
    }


def fetched_document(job: str, report: FetchReport) -> FetchedDocument:
    """Return the result of `fetch` as `fetch --json` prints it."""
    return {
        "job": job,
        "present": report.present,
        "items_to_fetch": report.fetched,
        "lost": [{"item": file.item, "path": file.path} for file in report.lost],
        "kept_in_place": [{"item": file.item, "path": file.path} for file in report.kept_in_place],
        "skipped": skipped_document(report.skipped),
    }


def _made_document(item: MadeItem) -> MadeItemDocument:
    return {
        "job": item.job,
        "item": item.name,
        "made_from": item.made_from,
        "credits": item.credits,
        "done": item.is_done,
    }


def reviewed_document(
    job: str, reports: Mapping[Decided, ReviewReport], summary: JobSummary, effects: ReviewEffects
) -> ReviewedDocument:
    """Return the results of decisions, their effects, and the pending reviews, as `review --json` prints it."""
    changed = {one: list(reports[one].changed) if one in reports else [] for one in Decided}
    return {
        "job": job,
        "kept": changed[Decided.KEEP],
        "dropped": changed[Decided.DROP],
        "undone": changed[Decided.UNDO],
        "made_ready": sum(report.made_ready for report in reports.values()),
        "effects": {
            "ready": list(effects.ready.items),
            "may_cost": effects.ready.credits,
            "unquoted": effects.ready.unpriced,
            "begun": [_made_document(item) for item in effects.begun],
            "outdated": [_made_document(item) for item in effects.outdated],
        },
        "skipped": skipped_document([entry for report in reports.values() for entry in report.skipped]),
        "to_review": summary.to_review,
        "to_choose": summary.to_choose,
    }
