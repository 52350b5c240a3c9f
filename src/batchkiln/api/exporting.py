"""Exports the outputs of a job, also while the queue runs."""

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from batchkiln.core.sample_names import DatasetRow, Splits
from batchkiln.exports import Export, ExportOptions, ExportResult, JobFacts, LeftOut, SchemaInference
from batchkiln.store import Filter, JobSummary, Reader

_SPLIT_NAME: Final = re.compile(r"\w+", re.ASCII)
_ROUNDING: Final = 1e-6


def checked_splits(shares: Mapping[str, float]) -> Splits:
    """Return splits by their names and shares. Raise `ValueError` for a name or share that is not valid."""
    for name, share in shares.items():
        if not _SPLIT_NAME.fullmatch(name) or not 0 < share <= 1:
            raise ValueError(f"{name}={share:g} is not a split: write NAME=SHARE, for example train=0.9,test=0.1")
    if abs(sum(shares.values()) - 1) > _ROUNDING:
        raise ValueError(f"the shares add up to {sum(shares.values()):g} instead of 1")
    return Splits(tuple(shares.items()))


class ExportStopped(Exception):
    """The caller stopped the export. Files that were exported stay."""


class ExportCallbacks(Struct, frozen=True):
    """Callbacks for progress: an output was left out, an item's metadata were read, a row was exported."""

    on_left_out: Callable[[LeftOut], None] = lambda _: None
    on_metadata_read: Callable[[], None] = lambda: None
    on_row: Callable[[DatasetRow], None] = lambda _: None


_UNOBSERVED: Final = ExportCallbacks()


def export_job(
    reader: Reader,
    job: str,
    options: ExportOptions,
    stop: threading.Event,
    *,
    wanted: Filter,
    callbacks: ExportCallbacks = _UNOBSERVED,
) -> ExportResult:
    """Export in the reader's thread: read rows page by page, and check their files between pages.

    Raise `ExportStopped` once `stop` is set, and `InputError` for an unknown job.
    """

    def check_interrupted() -> None:
        if stop.is_set():
            raise ExportStopped

    below = reader.exports.item_count(job)
    inference = SchemaInference()
    for shape in reader.exports.shapes(job, below=below):
        check_interrupted()
        inference.learn(makes_video=shape.makes_video, parameters=shape.parameters, metadata=shape.metadata)
        callbacks.on_metadata_read()
    export_run = Export(
        options,
        _job_facts(reader.jobs.summary(job)),
        inference,
        check_interrupted=check_interrupted,
        on_left_out=callbacks.on_left_out,
    )
    try:
        for row in reader.exports.rows(job, wanted, below=below):
            check_interrupted()
            export_run.add(row)
            callbacks.on_row(row)
        result = export_run.finish()
        result.place = export_run.title
        return result
    finally:
        export_run.close()


def _job_facts(summary: JobSummary) -> JobFacts:
    return JobFacts(
        name=summary.name,
        description=summary.description,
        items=summary.total,
        credits_spent=summary.credits.charged - summary.credits.refunded,
    )
