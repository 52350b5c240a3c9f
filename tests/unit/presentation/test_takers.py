"""Who takes items that were just queued."""

import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from batchkiln.core.lease_types import WorkerState
from batchkiln.core.states import UNDER_WAY, ItemState
from batchkiln.presentation.takers import after_pause, after_unpause, who_takes
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
    summaries: tuple[SimpleNamespace, ...] = ()

    @property
    def jobs(self) -> "FakeQueue":
        return self

    def unfinished(self) -> frozenset[str]:
        return frozenset(each.name for each in self.summaries)

    def summary(self, job: str) -> SimpleNamespace:
        return next((each for each in self.summaries if each.name == job), queued(job, 0))

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


def queued(name: str, number: int, *, cost: int = 0, unquoted: int = 0, waiting: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        items={ItemState.QUEUED: number},
        waiting=waiting,
        queued_cost=cost,
        queued_unquoted=unquoted,
        is_paused=False,
    )


def said(queue: FakeQueue, *, jobs: tuple[str, ...] = ("birds",), number: int | None = None) -> str:
    return who_takes(cast("Reader", queue), jobs, number=number)


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
    """One ends with the items, the other waits for more. A killed, lost or leaving driver takes nothing."""
    assert said(queue) == (
        "`batchkiln work birds` makes them now, and then ends; `batchkiln work --forever birds` also waits for more."
    )


def test_what_else_a_command_would_take_is_told_with_its_cost() -> None:
    """A hint that is followed must not pay for other jobs, or for other items of this one, without a word."""
    queue = FakeQueue(summaries=(queued("birds", 3, cost=6), queued("slow", 248, cost=496, unquoted=2)))

    assert said(queue, number=1) == (
        "`batchkiln work birds` makes them now with 2 other queued items of birds (about 6 credits in all), and then "
        "ends; `batchkiln work --forever birds` also waits for more. Without the job's name, it also makes 248 items "
        "of slow, about 496 credits and 2 without a quote."
    )
    assert "makes them now, and then ends; `batchkiln work --forever birds`" in said(queue)
    assert "of birds (about 6 credits), and then ends" in said(queue, number=0)
    assert said(queue, jobs=()) == (
        "`batchkiln work` makes what is queued (251 items of 2 jobs, about 502 credits and 2 without a quote), and "
        "then ends; with `--forever`, it also waits for more."
    )


def test_items_that_wait_for_a_choice_are_not_taken_with_the_others() -> None:
    """Nor is their cost, of which the quotes give no share."""
    queue = FakeQueue(summaries=(queued("birds", 9, cost=90, waiting=7),))
    assert said(queue, number=1).startswith(
        "`batchkiln work birds` makes them now with 1 other queued item of birds, and then ends"
    )


def test_a_process_that_runs_the_queue_takes_them() -> None:
    """A `run` takes the items of its own jobs only."""
    assert said(FakeQueue("work")).endswith(
        "runs this queue (work) and takes them, unless it was started for other jobs."
    )
    assert said(FakeQueue("watch")).endswith("and takes them, unless it was started with `--once`.")
    assert said(FakeQueue("run")).endswith(
        "and takes those of its own jobs; `batchkiln work birds` takes the others when it has ended."
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
        (FakeQueue(), "No process runs this queue. To resume: `batchkiln unpause birds`, then `batchkiln work birds`."),
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


@pytest.mark.parametrize(
    ("command", "active", "told"),
    [
        (None, 2, "2 items are under way; `batchkiln work birds` finishes what was sent."),
        (None, 0, ""),
        ("run", 1, "1 item is under way, and is finished as during the pause."),
    ],
)
def test_nobody_takes_items_where_none_is_queued(command: str | None, active: int, told: str) -> None:
    """A job that is no longer paused may only have items that were sent before; a pause does not stop these."""
    summary = queued("birds", 0)
    summary.items.update(dict.fromkeys(UNDER_WAY, 0) | {ItemState.ACTIVE: active})

    assert after_unpause(cast("Reader", FakeQueue(command, summaries=(summary,))), "birds") == told


def test_queued_items_of_a_job_that_is_no_longer_paused_are_taken() -> None:
    """The sentence is that of other queued items."""
    queue = cast("Reader", FakeQueue(summaries=(queued("birds", 3),)))

    assert after_unpause(queue, "birds") == who_takes(queue, ["birds"])
