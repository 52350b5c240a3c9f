"""The journal of attempts as a file: what is read of it, whatever happened to it."""

import json
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from batchkiln.core.errors import QueueBusy, QueueUnusable
from batchkiln.store import attempt_journal
from batchkiln.store.attempt_journal import AttemptJournal, JournalEntry
from support.worker_world import World

ENTRY = JournalEntry("uid", "job", "Füchsin", "test", "main", 1, "bk-1", "key-1", 7, 10, 1_000)
OTHER = replace(ENTRY, item="owl", idempotency_key="bk-2")


def written(folder: Path, *entries: JournalEntry) -> AttemptJournal:
    """Return a journal with entries, closed."""
    journal = AttemptJournal(folder / "queue.db")
    journal.begin(None)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return journal


def test_missing_journal_is_empty(tmp_path: Path) -> None:
    """The first start has none."""
    assert AttemptJournal(tmp_path / "queue.db").read() == ([], 0)


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    """What was appended is what is read."""
    assert written(tmp_path, ENTRY, OTHER).read() == ([ENTRY, OTHER], 0)


def test_versions_and_images_come_back_beside_lines_of_earlier_programs(tmp_path: Path) -> None:
    """Each line has what its attempt needs; one without images is as short as before."""
    again = replace(OTHER, delivered=(1, 2))
    clip = replace(ENTRY, idempotency_key="bk-3", input_urls=("https://service.example/assets/1",))
    both = replace(clip, idempotency_key="bk-4", delivered=(3,))

    assert written(tmp_path, ENTRY, again, clip, both).read() == ([ENTRY, again, clip, both], 0)
    assert len(ENTRY.lines()) < len(replace(ENTRY, delivered=(1,)).lines()) < len(replace(clip, delivered=(1,)).lines())


def test_further_sends_and_refusals_come_back(tmp_path: Path) -> None:
    """Each has a line of its own. What was known stays known where an entry is added once more, and its end is torn."""
    again, refused = replace(ENTRY, sends=3), replace(OTHER, sends=2, is_refused=True)

    journal = written(tmp_path, ENTRY, replace(ENTRY, sends=2), again, refused, ENTRY, OTHER)

    assert journal.read() == ([again, refused], 0)


@pytest.mark.parametrize("more", [[["1"]], [[1], [2]], [[1], ["a"], []], [[True]]])
def test_line_of_unknown_values_is_skipped(tmp_path: Path, more: list[object]) -> None:
    """Its checksum fits, as that of a later program's line may."""
    journal = written(tmp_path, ENTRY)
    values = json.loads(OTHER.lines()[9:])
    with journal.path.open("ab") as file:
        file.write(attempt_journal._line([*values, *more]))

    assert journal.read() == ([ENTRY], 1)


def test_journal_is_private(tmp_path: Path) -> None:
    """Only its owner may read it, as the queue."""
    journal = written(tmp_path, ENTRY)

    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """A crash cut it off before its attempt was sent; it is no damage."""
    journal = written(tmp_path, ENTRY, OTHER)
    content = journal.path.read_bytes()

    for length in range(content.index(b"\n") + 1, len(content)):
        journal.path.write_bytes(content[:length])
        assert journal.read() == ([ENTRY], 0)


def test_damaged_line_is_counted_and_skipped(tmp_path: Path) -> None:
    """A changed key would be paid again: no flipped bit of a line is believed."""
    journal = written(tmp_path, ENTRY, OTHER)
    content = bytearray(journal.path.read_bytes())

    for place in range(content.index(b"\n")):
        damaged = bytes(content[:place]) + bytes([content[place] ^ 1]) + bytes(content[place + 1 :])
        journal.path.write_bytes(damaged)
        assert journal.read() == ([OTHER], 1)


def test_line_after_a_failed_one_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes half a line; the next one is not joined to it."""
    journal = AttemptJournal(tmp_path / "queue.db")
    journal.begin(None)
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:20]) and _fail())
    with pytest.raises(QueueBusy, match="free disk space"):
        journal.append(ENTRY)
    monkeypatch.undo()

    journal.append(OTHER)
    journal.close()

    assert journal.read() == ([OTHER], 1)


def _fail() -> int:
    raise OSError(28, "No space left on device")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder of that name is told, and nothing is sent."""
    (tmp_path / "queue.db.attempts").mkdir()

    with pytest.raises(QueueUnusable, match="not a regular file"):
        AttemptJournal(tmp_path / "queue.db").read()


async def test_journal_of_another_queue_is_reported_and_kept(tmp_path: Path) -> None:
    """It is not used for this queue, and is there when the other one is back in its place."""
    written(tmp_path, ENTRY)
    world = World(tmp_path, keeps_journal=True)
    world.enqueue("fox")

    with capture_logs() as logs:
        await world.run()

    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["attempt_journal_foreign"]
    entries, _ = world.journal.read()
    assert [entry.item for entry in entries] == ["Füchsin", "fox"]
    world.close()


async def test_damage_is_reported_once(tmp_path: Path) -> None:
    """The start that finds it drops the line."""
    world = World(tmp_path, keeps_journal=True)
    world.enqueue("fox")
    await world.run()
    world.journal.path.write_bytes(b"damaged\n" + world.journal.path.read_bytes())
    told = []
    for _ in range(2):
        world.restart()
        with capture_logs() as logs:
            await world.run()
        told.append([entry["event"] for entry in logs if entry["log_level"] == "warning"])

    assert told == [["attempt_journal_damaged"], []]
    assert len(world.journal.read()[0]) == 1
    world.close()


async def test_attempts_that_ended_before_the_retention_are_dropped(tmp_path: Path) -> None:
    """The journal is bounded; the horizon is counted from the newest attempt, since a clock may be wrong."""
    world = World(tmp_path, keeps_journal=True)
    world.enqueue("old")
    await world.run()
    world.restart(after_seconds=15 * 86_400)
    world.enqueue("new")
    await world.run()
    world.restart()
    await world.run()

    assert [entry.item for entry in world.journal.read()[0]] == ["new"]
    world.close()


async def test_queue_without_a_journal_gets_one(tmp_path: Path) -> None:
    """An update of the program, or a crash between row and line: the start adds what is missing."""
    world = World(tmp_path, keeps_journal=True)
    world.enqueue("fox", "owl")
    await world.run()
    before, _ = world.journal.read()
    world.journal.path.unlink()

    world.restart()
    await world.run()

    assert world.journal.read() == (before, 0)
    world.close()


async def test_journal_holds_no_prompt_and_no_key(tmp_path: Path) -> None:
    """Law 8."""
    world = World(tmp_path, keeps_journal=True)
    world.enqueue("fox")
    await world.run()

    content = world.journal.path.read_text()

    assert "a fox" not in content
    assert "http" not in content
    world.close()
