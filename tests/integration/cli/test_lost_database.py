"""Worker processes whose way to the database is cut, refused or silent."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.store.location import DatabaseUrl
from support import postgres
from support.shared_queue import SharedQueue, wait_until
from support.tcp_gate import Gate, gate

pytestmark = [pytest.mark.postgres, pytest.mark.long]


@pytest.fixture
def way() -> Iterator[Gate]:
    """A proxy before the server."""
    postgres.require()
    with gate(postgres.server().folder / ".s.PGSQL.5432") as made:
        yield made


@pytest.fixture
def shared(tmp_path: Path, way: Gate) -> Iterator[SharedQueue]:
    """A queue that is reached through the proxy."""
    with postgres.server().database() as url:
        through = DatabaseUrl(f"postgresql://batchkiln@127.0.0.1:{way.port}/{url.name}", may_lose_commits=True)
        with SharedQueue(tmp_path, through, ["anna"], scale=120.0).serving() as made:
            yield made


def _at_work(shared: SharedQueue, config: str, *, items: int) -> tuple[subprocess.Popen[str], Path]:
    """Return a worker that has saved a file, and its log."""
    assert shared.call("enqueue", shared.manifest("birds", items=items), config=config)[0] == 0
    worker, log = shared.work("fra-1", config=config), shared.folder / "fra-1.log"
    wait_until(lambda: "file_saved" in log.read_text(), shared.said)
    return worker, log


def test_worker_outlives_a_database_that_is_away(shared: SharedQueue, way: Gate) -> None:
    """It connects again, also while it shows its progress, which it reads by a connection of its own."""
    config = shared.machine("fra-1")
    worker, log = _at_work(shared, config, items=30)

    way.refuse()
    wait_until(lambda: "database_lost" in log.read_text(), shared.said)
    way.mend()
    wait_until(lambda: "database_found" in log.read_text() or worker.poll() is not None, shared.said)

    assert worker.poll() is None, shared.said()
    (lost, *_) = (line for line in log.read_text().splitlines() if "database_lost" in line)
    assert "connect again by itself" in lost
    assert "un the command again" not in lost
    wait_until(lambda: shared.done(config) == 30 or worker.poll() is not None, shared.said, pause_seconds=0.5)
    assert worker.poll() is None, shared.said()


def test_worker_that_is_told_to_stop_ends_as_told_though_its_connection_was_cut(shared: SharedQueue, way: Gate) -> None:
    """It notices the loss only while it stops: a service manager would call exit status 1 a failure."""
    worker, _ = _at_work(shared, shared.machine("fra-1"), items=1)

    way.cut()
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(30) in {128 + signal.SIGTERM, -signal.SIGTERM}, shared.said()
