"""Says who takes queued items, and what a pause does to them: the process or the workers that run the queue."""

from batchkiln.core.errors import command_arguments
from batchkiln.presentation.formatting import plural
from batchkiln.store import Reader


def who_takes(reader: Reader, options: str = "") -> str:
    """Return a sentence about who takes the items that were just queued.

    `options` are those that name the queue, such as ` --queue animals.db`, for the commands in the sentence.
    """
    work = f"`batchkiln work{options}`"
    lease = reader.lease()
    if lease is not None and lease.is_alive:
        process = f"Process {lease.pid} on {lease.host} runs this queue ({lease.command})"
        if lease.command == "work":
            return f"{process} and takes them, unless it was started for other jobs."
        return f"{process} and takes those of its own jobs; {work} takes the others when it has ended."
    workers = reader.workers.all() if reader.is_shared() else []
    if alive := [worker for worker in workers if worker.is_alive and not worker.is_draining]:
        verbs = "shares this queue and takes" if len(alive) == 1 else "share this queue and take"
        return f"{plural(len(alive), 'worker')} {verbs} them; `batchkiln workers{options}` shows what each does."
    return f"{work} takes them now, and ends with them; `batchkiln work{options} --forever` keeps taking."


def to_resume(job: str, options: str = "", *, is_driven: bool = False) -> str:
    """Return the sentence, without its full stop, that names the commands which resume a paused job.

    `options` are as in `who_takes`. `is_driven` says that a process runs the queue, and may still do so then.
    """
    unpause, work = f"`batchkiln unpause{options} {command_arguments(job)}`", f"`batchkiln work{options}`"
    return f"To resume: {unpause}, then {work}" + (" if no process runs the queue any more" if is_driven else "")


def after_pause(reader: Reader, job: str, options: str = "") -> str:
    """Return sentences about what becomes of the process that runs the queue once `job` is paused, and how to resume.

    `options` are as in `who_takes`.
    """
    lease = reader.lease()
    workers = reader.workers.all() if reader.is_shared() else []
    alive = sum(worker.is_alive and not worker.is_draining for worker in workers)
    resume = f"{to_resume(job, options, is_driven=True)}."
    if lease is not None and lease.is_alive:
        process = f"Process {lease.pid} on {lease.host}, which runs this queue ({lease.command}),"
        forever = ", unless it was started with `--forever`" if lease.command == "work" else ""
        if lease.command not in {"run", "work"}:
            return f"{process} goes on with other jobs. {resume}"
        return f"{process} waits on a terminal once only paused jobs are left, and ends elsewhere{forever}. {resume}"
    if alive:
        end = f"The {plural(alive, 'worker')} of this queue" + (" ends" if alive == 1 else " end")
        return f"{end} once only paused jobs are left, unless started with `--forever`. {resume}"
    return f"No process runs this queue. {to_resume(job, options)}."
