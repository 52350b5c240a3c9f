"""Requests and credits on disk, as the windows count them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.rate_limits import DayUsage, RequestKind, RequestNote
from batchkiln.store import usage
from support.attempt_steps import account_of
from support.builders import NOON, day_of
from support.worker_world import PROFILE, World

TODAY, TOMORROW = day_of(NOON), day_of(NOON) + timedelta(days=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A queue with one account."""
    made = World(tmp_path)
    account_of(made)
    yield made
    made.close()


def send(world: World, kind: RequestKind, seconds: float = 0.0, upload_files: int = 0, upload_bytes: int = 0) -> None:
    note = RequestNote(1, kind, NOON + timedelta(seconds=seconds), (TODAY,), upload_files, upload_bytes)
    world.write(usage.write_request, note, keep_seconds=300.0)


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        (RequestKind.CREATE, DayUsage(creates=1)),
        (RequestKind.UPLOAD, DayUsage(creates=1, upload_files=2, upload_bytes=30)),
        (RequestKind.READ, DayUsage(reads=1)),
        (RequestKind.QUOTE, DayUsage(reads=1)),
        (RequestKind.OTHER, DayUsage()),
    ],
)
def test_each_kind_counts_in_its_window(world: World, kind: RequestKind, counted: DayUsage) -> None:
    """Law 5: creates with uploads, reads with quotes; the description in none. Service section 8."""
    fields = {"upload_files": 2, "upload_bytes": 30} if kind is RequestKind.UPLOAD else {}

    send(world, kind, **fields)

    assert usage.usages(world.connection, 1, [TODAY, TOMORROW]) == (counted, DayUsage())


def test_request_at_a_reset_counts_in_both_days(world: World) -> None:
    """Law 5: whichever day the service takes it for, it is counted."""
    note = RequestNote(1, RequestKind.CREATE, NOON, (TODAY, TOMORROW))

    world.write(usage.write_request, note, keep_seconds=300.0)

    assert usage.usages(world.connection, 1, [TODAY, TOMORROW]) == (DayUsage(creates=1), DayUsage(creates=1))
    assert len(usage.logged_requests(world.connection, PROFILE, 300.0)) == 1


def test_question_for_the_time_is_found_whatever_clock_logged_it(world: World) -> None:
    """Law 5: the first one ever is logged by the machine's clock, which may be an hour behind."""
    send(world, RequestKind.OTHER, seconds=-3600.0)
    send(world, RequestKind.READ)

    assert [request.kind for request in usage.logged_requests(world.connection, PROFILE, 300.0)] == ["other", "read"]


def test_log_is_pruned_but_keeps_the_last_minutes(world: World) -> None:
    """Law 5: the file does not grow with the weeks, and no request that still counts is forgotten."""
    for n in range(600):
        send(world, RequestKind.READ, seconds=n * 10.0)

    kept = usage.logged_requests(world.connection, PROFILE, 300.0)

    assert len(world.rows("SELECT * FROM request")) < 300
    assert {request.sent_at for request in kept} >= {NOON + timedelta(seconds=10.0 * n) for n in range(570, 600)}
    assert usage.usages(world.connection, 1, [TODAY])[0].reads == 600
