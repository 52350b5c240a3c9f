"""Which jobs a watched folder still waits for."""

from batchkiln.store.jobs import Jobs
from batchkiln.store.operations import pause
from support.queue_file import QueueFile, spec


def test_job_is_open_while_anything_is_queued_or_under_way(queue: QueueFile) -> None:
    """It ends with its last item."""
    queue.apply([spec("a"), spec("b")])
    queue.finish("a")
    assert Jobs(queue.connection).unfinished() == {"birds"}

    queue.fail("b")

    assert Jobs(queue.connection).unfinished() == frozenset()


def test_paused_job_has_not_ended(queue: QueueFile) -> None:
    """A person has stopped it, and may let it go on."""
    queue.apply([spec("a")])

    pause(queue.connection, "birds", now=1)

    assert Jobs(queue.connection).unfinished() == {"birds"}


def test_only_jobs_of_this_queue_are_known(queue: QueueFile) -> None:
    """A name that it has not is left out."""
    queue.apply([spec("a")])

    assert Jobs(queue.connection).known(["birds", "foxes"]) == {"birds"}
