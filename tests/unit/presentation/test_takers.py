"""Who takes items that were just queued."""

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest

from batchkiln.core.lease_types import WorkerState
from batchkiln.presentation.takers import after_pause, who_takes
from batchkiln.store import Lease

if TYPE_CHECKING:
    from batchkiln.store import Reader

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def worker(*, silent_seconds: float = 1, is_draining: bool = False) -> WorkerState:
    return WorkerState("fra/1-a", "fra", "fra", 1, "1", NOW, NOW, is_draining, None, 1, silent_seconds, frozenset())


@dataclass(frozen=True, slots=True)
class FakeQueue:
    """The facts of a queue that the sentence needs."""

    command: str | None = None
    pid: int = os.getpid()
    found: tuple[WorkerState, ...] | None = None

    @property
    def workers(self) -> "FakeQueue":
        return self

    def lease(self) -> Lease | None:
        return None if self.command is None else Lease(self.pid, socket.gethostname(), self.command, NOW)

    def is_shared(self) -> bool:
        return self.found is not None

    def all(self) -> tuple[WorkerState, ...]:
        assert self.found is not None
        return self.found


def said(queue: FakeQueue, options: str = "") -> str:
    return who_takes(cast("Reader", queue), options)


@pytest.mark.parametrize(
    "queue",
    [
        FakeQueue(),
        FakeQueue("work", pid=2**22 + 1),
        FakeQueue(found=()),
        FakeQueue(found=(worker(silent_seconds=60), worker(is_draining=True))),
    ],
)
def test_without_a_driver_the_two_commands_are_named(queue: FakeQueue) -> None:
    """One ends with the items, the other keeps taking. A killed, lost or leaving driver takes nothing."""
    assert said(queue, " --queue a.db") == (
        "`batchkiln work --queue a.db` takes them now, and ends with them; "
        "`batchkiln work --queue a.db --forever` keeps taking."
    )


def test_a_process_that_runs_the_queue_takes_them() -> None:
    """A `run` takes the items of its own jobs only."""
    assert said(FakeQueue("work")).endswith(
        "runs this queue (work) and takes them, unless it was started for other jobs."
    )
    assert said(FakeQueue("run")).endswith(
        "and takes those of its own jobs; `batchkiln work` takes the others when it has ended."
    )


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1 worker shares this queue and takes"), (2, "2 workers share this queue and take")]
)
def test_workers_that_share_a_database_take_them(number: int, text: str) -> None:
    """No command is needed."""
    assert said(FakeQueue(found=(worker(),) * number)).startswith(f"{text} them; ")


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (FakeQueue(), "No process runs this queue. To resume: `batchkiln unpause birds`, then `batchkiln work`."),
        (FakeQueue("run", pid=2**22 + 1), "No process runs this queue."),
        (FakeQueue("run"), "(run), waits on a terminal once only paused jobs are left, and ends elsewhere. To"),
        (FakeQueue("work"), "elsewhere, unless it was started with `--forever`."),
        (FakeQueue("watch"), "(watch), goes on with other jobs."),
        (FakeQueue(found=(worker(),)), "The 1 worker of this queue ends once only paused jobs are left, unless"),
        (FakeQueue(found=(worker(), worker())), "The 2 workers of this queue end once only paused jobs are left"),
        (FakeQueue(found=(worker(is_draining=True),)), "No process runs this queue."),
    ],
)
def test_a_pause_says_what_becomes_of_the_process(queue: FakeQueue, text: str) -> None:
    """A run ends: whoever unpauses later has to start another."""
    assert text in after_pause(cast("Reader", queue), "birds")
