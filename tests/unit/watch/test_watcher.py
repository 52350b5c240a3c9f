"""The watcher, in virtual time: each manifest is taken once, answered, and answered again at its job's end."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from batchkiln.clock import ServiceClock
from batchkiln.core.errors import Diagnostic, InputError, QueueBusy, QueueUnusable
from batchkiln.rehearsal.network import MemoryNetwork
from batchkiln.rehearsal.virtual_loop import VirtualLoop
from batchkiln.watch.watcher import RETRY_SECONDS, Watcher
from simulation.log_silencing import silence


class FakeDesk:
    """A queue in memory: a manifest's content is its job's name; `broken` is refused."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.open: set[str] = set()
        self.jobs: set[str] = set()
        self.troubles: list[Exception] = []

    async def apply(self, path: Path) -> tuple[str, Mapping[str, Any]]:
        if self.troubles:
            raise self.troubles.pop(0)
        job = path.read_text()
        if job == "broken":
            raise InputError([Diagnostic("unknown field", str(path), 3, 1)])
        self.applied.append(job)
        self.open.add(job)
        self.jobs.add(job)
        return job, {"new": 1}

    async def open_jobs(self) -> frozenset[str]:
        return frozenset(self.open)

    async def known_jobs(self, names: Collection[str]) -> frozenset[str]:
        return frozenset(self.jobs & set(names))

    async def ended(self, job: str) -> Mapping[str, Any]:
        return {"exit": 0, "manifest": f"/elsewhere/{job}"}

    def refused(self, error: InputError) -> Mapping[str, Any]:
        return {"errors": [mistake.line for mistake in error.mistakes]}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with silence():
        yield


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play a scene in virtual time."""
    loop = VirtualLoop(MemoryNetwork())
    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()


def watched(folder: Path, desk: FakeDesk, *steps: tuple[float, Callable[[], object]]) -> Watcher:
    """Watch a folder while things happen in it, each so many seconds after the one before; return the watcher."""
    made: list[Watcher] = []

    async def scene() -> None:
        watcher = Watcher(folder, desk, ServiceClock())
        made.append(watcher)
        task = asyncio.create_task(watcher.run())
        for seconds, happens in steps:
            await asyncio.sleep(seconds)
            happens()
        await asyncio.sleep(10)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    played(scene)
    return made[0]


def answer(folder: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads((folder / f"{name}.result.json").read_bytes())
    return document


def test_manifest_is_taken_once_and_answered(tmp_path: Path, desk: FakeDesk) -> None:
    """Looking on does not enqueue it again."""
    watched(tmp_path, desk, (1, lambda: (tmp_path / "birds.yaml").write_text("birds")), (60, lambda: None))

    assert desk.applied == ["birds"]
    told = answer(tmp_path, "birds")
    assert (told["manifest"], told["status"], told["job"], told["new"]) == ("birds.yaml", "accepted", "birds", 1)


def test_slow_writer_is_waited_for(tmp_path: Path, desk: FakeDesk) -> None:
    """A file that grows every half second is taken whole, when it has come to rest."""
    path = tmp_path / "birds.yaml"

    def grow() -> None:
        with path.open("a") as file:
            file.write("b")

    watched(tmp_path, desk, *[(0.5, grow)] * 8)

    assert desk.applied == ["bbbbbbbb"]


def test_many_at_once_are_all_taken(tmp_path: Path, desk: FakeDesk) -> None:
    """Broken ones among them hold nobody up, and say what is wrong."""

    def move_in() -> None:
        for number in range(50):
            (tmp_path / f"m{number}.yaml").write_text("broken" if number == 7 else f"job-{number}")

    watcher = watched(tmp_path, desk, (1, move_in))

    assert len(desk.applied) == 49
    assert watcher.refused == 1
    assert answer(tmp_path, "m7")["errors"] == [3]
    assert len(list(tmp_path.glob("*.result.json"))) == 50


def test_end_of_a_job_replaces_the_answer(tmp_path: Path, desk: FakeDesk) -> None:
    """The answer keeps naming the manifest, whatever the end's document says."""
    (tmp_path / "birds.yaml").write_text("birds")

    watched(tmp_path, desk, (5, desk.open.clear))

    told = answer(tmp_path, "birds")
    assert (told["status"], told["exit"], told["manifest"]) == ("ended", 0, "birds.yaml")


def test_job_that_is_set_going_again_is_answered_again(tmp_path: Path, desk: FakeDesk) -> None:
    """After a retry the answer is that of the new end."""
    (tmp_path / "birds.yaml").write_text("birds")
    ends: list[str] = []

    async def ended(job: str) -> Mapping[str, Any]:
        ends.append(job)
        return {}

    desk.ended = ended  # type: ignore[method-assign]  # only to count
    watched(tmp_path, desk, (5, desk.open.clear), (5, lambda: desk.open.add("birds")), (5, desk.open.clear))

    assert ends == ["birds", "birds"]


def test_restart_takes_nothing_again(tmp_path: Path, desk: FakeDesk) -> None:
    """Answered manifests are recognized by their content; the end of accepted ones is still reported."""
    (tmp_path / "birds.yaml").write_text("birds")
    (tmp_path / "wrong.yaml").write_text("broken")
    watched(tmp_path, desk)
    (tmp_path / "birds.yaml").touch()

    watched(tmp_path, desk, (5, desk.open.clear))

    assert desk.applied == ["birds"]
    assert answer(tmp_path, "birds")["status"] == "ended"
    assert answer(tmp_path, "wrong")["status"] == "refused"


def test_kill_before_the_answer_applies_again(tmp_path: Path, desk: FakeDesk) -> None:
    """Enqueued and not answered: applying again is safe, and the answer is made up for."""
    (tmp_path / "birds.yaml").write_text("birds")
    watched(tmp_path, desk)
    (tmp_path / "birds.result.json").unlink()

    watched(tmp_path, desk)

    assert desk.applied == ["birds", "birds"]
    assert answer(tmp_path, "birds")["status"] == "accepted"


def test_refused_manifest_is_tried_again_when_it_is_touched(tmp_path: Path, desk: FakeDesk) -> None:
    """The reason may lie elsewhere (an image, a folder, an account), and be gone; a refusal costs nothing."""
    (tmp_path / "birds.yaml").write_text("birds")
    desk.troubles = [InputError("the image is not there")]

    watched(tmp_path, desk, (5, (tmp_path / "birds.yaml").touch))

    assert answer(tmp_path, "birds")["status"] == "accepted"


def test_manifest_that_is_taken_away_while_it_is_read_is_not_refused(tmp_path: Path, desk: FakeDesk) -> None:
    """There is nothing to answer; it is taken when it comes back."""
    path = tmp_path / "birds.yaml"
    path.write_text("birds")
    apply = desk.apply

    async def too_late(path: Path) -> tuple[str, Mapping[str, Any]]:
        path.unlink()
        desk.apply = apply  # type: ignore[method-assign]
        raise InputError("no such file")

    desk.apply = too_late  # type: ignore[method-assign]
    watched(tmp_path, desk)

    assert not (tmp_path / "birds.result.json").exists()

    watched(tmp_path, desk, (1, lambda: path.write_text("birds")))

    assert answer(tmp_path, "birds")["status"] == "accepted"


def test_two_manifests_of_one_stem_keep_their_own_answers(tmp_path: Path, desk: FakeDesk) -> None:
    """`birds.yaml` comes when `birds.yml` was answered under the shared name: each end is told in a file of its own."""
    (tmp_path / "birds.yml").write_text("yml")

    watched(tmp_path, desk, (5, lambda: (tmp_path / "birds.yaml").write_text("yaml")), (5, desk.open.clear))

    assert [answer(tmp_path, name)["job"] for name in ("birds", "birds.yml")] == ["yaml", "yml"]
    assert [answer(tmp_path, name)["status"] for name in ("birds", "birds.yml")] == ["ended", "ended"]


def test_changed_manifest_is_taken_again(tmp_path: Path, desk: FakeDesk) -> None:
    """A mended manifest replaces the refusal."""
    (tmp_path / "birds.yaml").write_text("broken")

    watched(tmp_path, desk, (5, lambda: (tmp_path / "birds.yaml").write_text("birds")))

    assert answer(tmp_path, "birds")["status"] == "accepted"


def test_accepted_by_a_queue_that_is_gone_is_brought_again(tmp_path: Path, desk: FakeDesk) -> None:
    """An answer is no proof that today's queue has the job; what has ended stays ended, since it was paid."""
    (tmp_path / "birds.yaml").write_text("birds")
    (tmp_path / "foxes.yaml").write_text("foxes")
    watched(tmp_path, desk, (5, lambda: desk.open.discard("foxes")))
    fresh = FakeDesk()

    watched(tmp_path, fresh)

    assert fresh.applied == ["birds"]


def test_busy_queue_is_tried_again(tmp_path: Path, desk: FakeDesk) -> None:
    """A full disk is no mistake of the manifest: it is not refused, and taken later."""
    (tmp_path / "birds.yaml").write_text("birds")
    desk.troubles = [QueueBusy("the disk is full")]

    watched(tmp_path, desk, (RETRY_SECONDS, lambda: None))

    assert desk.applied == ["birds"]
    assert answer(tmp_path, "birds")["status"] == "accepted"


def test_damaged_queue_ends_the_watch(tmp_path: Path, desk: FakeDesk) -> None:
    """The manifest is not the cause, and waiting would not help."""
    (tmp_path / "birds.yaml").write_text("birds")
    desk.troubles = [QueueUnusable("damaged")]

    with pytest.raises(QueueUnusable):
        watched(tmp_path, desk)

    assert not (tmp_path / "birds.result.json").exists()


def test_folder_that_is_gone_is_reported(tmp_path: Path, desk: FakeDesk) -> None:
    """There is nothing to watch any more."""
    folder = tmp_path / "inbox"
    folder.mkdir()

    with pytest.raises(InputError, match="cannot be read"):
        watched(folder, desk, (1, folder.rmdir))


def test_manifest_moved_away_is_still_answered(tmp_path: Path, desk: FakeDesk) -> None:
    """A pipeline may tidy up what was accepted; the end is written where it looks for it."""
    (tmp_path / "birds.yaml").write_text("birds")

    watched(tmp_path, desk, (5, (tmp_path / "birds.yaml").unlink), (5, desk.open.clear))

    assert answer(tmp_path, "birds")["status"] == "ended"


def test_end_is_reported_after_a_restart_also_where_the_manifest_is_gone(tmp_path: Path, desk: FakeDesk) -> None:
    """Who tidied up waits for the end as well; an answer of another folder, or of nobody, is left alone."""
    (tmp_path / "birds.yaml").write_text("birds")
    watched(tmp_path, desk, (5, (tmp_path / "birds.yaml").unlink))
    evil = {"manifest": "../evil.yaml", "sha256": "", "status": "accepted", "job": "birds"}
    (tmp_path / "evil.result.json").write_bytes(orjson.dumps(evil))

    watched(tmp_path, desk, (5, desk.open.clear))

    assert answer(tmp_path, "birds")["status"] == "ended"
    assert answer(tmp_path, "evil") == evil
    assert not (tmp_path.parent / "evil.result.json").exists()


def test_drain_awaits_a_job_that_is_open_again(tmp_path: Path, desk: FakeDesk) -> None:
    """--once after a retry: its answer says that it has ended, and it is run to its end again."""
    (tmp_path / "birds.yaml").write_text("birds")
    watched(tmp_path, desk, (5, desk.open.clear))
    desk.open.add("birds")
    drained: list[frozenset[str]] = []

    async def scene() -> None:
        watcher = Watcher(tmp_path, desk, ServiceClock())
        await watcher.drain()
        drained.append(watcher.jobs)

    played(scene)

    assert drained == [{"birds"}]


def test_drain_takes_all_files_in_the_folder(tmp_path: Path, desk: FakeDesk) -> None:
    """--once: it waits until every file is still, and returns."""
    for name in ("birds", "foxes"):
        (tmp_path / f"{name}.yaml").write_text(name)
    drained: list[frozenset[str]] = []

    async def scene() -> None:
        watcher = Watcher(tmp_path, desk, ServiceClock())
        await watcher.drain()
        drained.append(watcher.jobs)

    played(scene)

    assert desk.applied == ["birds", "foxes"]
    assert drained == [frozenset({"birds", "foxes"})]
