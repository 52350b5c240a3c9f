"""Says who takes queued items, and what a pause does to them: the process or the workers that run the queue."""

from collections.abc import Sequence
from typing import Final

from batchkiln.core.errors import command_arguments
from batchkiln.core.states import UNDER_WAY, ItemState
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.store import JobSummary, Reader

_JOBS_READ: Final = 50
"""So many other jobs are read for what a run of the whole queue would take; of more, only the number is told."""

_OF_THE_WHOLE_QUEUE: Final = {"work": "for other jobs", "watch": "with `--once`"}
"""Commands that take items of each job, and when they do not."""


def who_takes(reader: Reader, jobs: Sequence[str], *, number: int | None = None) -> str:
    """Return a sentence about who takes the items of these jobs that were just queued, and what is taken with them.

    `number` of the queued items are meant, 0 before they are queued; None for all. Without `jobs`, all of the queue is
    meant.
    """
    arguments = f" {command_arguments(*jobs)}" if jobs else ""
    lease = reader.lease()
    if lease is not None and lease.is_alive:
        process = f"Process {lease.pid} on {lease.host} runs this queue ({lease.command})"
        if exception := _OF_THE_WHOLE_QUEUE.get(lease.command):
            return f"{process} and takes them, unless it was started {exception}."
        work = f"`batchkiln work{arguments}`"
        return f"{process} and takes those of its own jobs; {work} takes the others when it has ended."
    workers = reader.workers.all() if reader.is_shared() else []
    if alive := [worker for worker in workers if worker.is_alive and not worker.is_draining]:
        verbs = "shares this queue and takes" if len(alive) == 1 else "share this queue and take"
        return f"{plural(len(alive), 'worker')} {verbs} them; `batchkiln workers` shows what each does."
    others = _of_other_jobs(reader, jobs)
    if not jobs:
        queued = f" ({others})" if others else ""
        return (
            f"`batchkiln work` makes what is queued{queued}, and then ends; with `--forever`, it also waits for more."
        )
    beside = "" if number is None else _beside(reader, jobs, number)
    bare = f" Without the job's name, it also makes {others}." if others else ""
    return (
        f"`batchkiln work{arguments}` makes them now{beside}, and then ends; "
        f"`batchkiln work --forever{arguments}` also waits for more.{bare}"
    )


def _beside(reader: Reader, jobs: Sequence[str], number: int) -> str:
    """Return what else of these jobs can begin, beside `number` items, as a part of a sentence."""
    found = [reader.jobs.summary(job) for job in jobs]
    startable = [summary for summary in found if not summary.is_paused]
    others = sum(summary.items[ItemState.QUEUED] - summary.waiting for summary in startable) - number
    if others <= 0:
        return ""
    # The quotes are known of all queued items of a job together, those that wait for a choice included.
    cost = (
        "" if any(summary.waiting for summary in startable) else f" ({_cost(startable)}{' in all' if number else ''})"
    )
    return f" with {plural(others, 'other queued item')} of {' and '.join(map(sanitize, jobs))}{cost}"


def _of_other_jobs(reader: Reader, jobs: Sequence[str]) -> str:
    """Return what a run of the whole queue would take of other jobs; an empty text for nothing."""
    names = sorted(reader.jobs.unfinished() - set(jobs))
    found = [reader.jobs.summary(name) for name in names[:_JOBS_READ]]
    queued = [summary for summary in found if not summary.is_paused and summary.items[ItemState.QUEUED]]
    if not queued:
        return ""
    items = plural(sum(summary.items[ItemState.QUEUED] for summary in queued), "item")
    of = sanitize(queued[0].name) if len(queued) == 1 else f"{len(queued):,} jobs"
    more = f", and those of {plural(len(names) - _JOBS_READ, 'more job')}" if len(names) > _JOBS_READ else ""
    return f"{items} of {of}, {_cost(queued)}{more}"


def _cost(summaries: Sequence[JobSummary]) -> str:
    unquoted = sum(summary.queued_unquoted for summary in summaries)
    cost = sum(summary.queued_cost for summary in summaries)
    without = f"{unquoted:,} without a quote"
    if unquoted and not cost:
        return without
    return f"about {plural(cost, 'credit')}{f' and {without}' if unquoted else ''}"


def to_resume(job: str, *, is_driven: bool = False) -> str:
    """Return the sentence, without its full stop, that names the commands which resume a paused job.

    `is_driven` says that a process runs the queue, and may still do so then.
    """
    name = command_arguments(job)
    unpause, work = f"`batchkiln unpause {name}`", f"`batchkiln work {name}`"
    return f"To resume: {unpause}, then {work}" + (" if no process runs the queue any more" if is_driven else "")


def after_unpause(reader: Reader, job: str) -> str:
    """Return sentences about what becomes of a job that is no longer paused; empty if nothing of it is left to do."""
    summary = reader.jobs.summary(job)
    if summary.items[ItemState.QUEUED]:
        return who_takes(reader, [job])
    under_way = sum(summary.items[state] for state in UNDER_WAY)
    if not under_way:
        return ""
    items = plural(under_way, "item")
    lease = reader.lease()
    workers = reader.workers.all() if reader.is_shared() else []
    if (lease is not None and lease.is_alive) or any(worker.is_alive for worker in workers):
        is_under_way = "is under way, and is" if under_way == 1 else "are under way, and are"
        return f"{items} {is_under_way} finished as during the pause."
    is_under_way = "is" if under_way == 1 else "are"
    return f"{items} {is_under_way} under way; `batchkiln work {command_arguments(job)}` finishes what was sent."


def after_pause(reader: Reader, job: str) -> str:
    """Return sentences about what becomes of the process that runs the queue once a job is paused, how to resume."""
    lease = reader.lease()
    workers = reader.workers.all() if reader.is_shared() else []
    alive = sum(worker.is_alive and not worker.is_draining for worker in workers)
    resume = f"{to_resume(job, is_driven=True)}."
    if lease is not None and lease.is_alive:
        process = f"Process {lease.pid} on {lease.host}, which runs this queue ({lease.command}),"
        forever = ", unless it was started with `--forever`" if lease.command == "work" else ""
        if lease.command not in {"run", "work"}:
            return f"{process} goes on with other jobs. {resume}"
        return f"{process} waits on a terminal once only paused jobs are left, and ends elsewhere{forever}. {resume}"
    if alive:
        end = f"The {plural(alive, 'worker')} of this queue" + (" ends" if alive == 1 else " end")
        return f"{end} once only paused jobs are left, unless started with `--forever`. {resume}"
    return f"No process runs this queue. {to_resume(job)}."
