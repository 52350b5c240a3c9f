"""A damaged queue is reported before anything is sent; undetectable damage leads to no second charge."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from batchkiln.core.errors import QueueUnusable
from batchkiln.store.session import Session
from batchkiln.store.sqlite import page_checks
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_session import SCHEMA_VERSION
from golden.files import load, resumed_world
from golden.test_golden import ENDS
from support.worker_world import World

from .file_damage import HARMS, PAGE, fate_of, is_told, pages, sound_queue


async def test_sound_queue_is_driven_to_its_end(tmp_path: Path) -> None:
    """The other tests mean something: without harm the same queue runs, and sends."""
    sound_queue(tmp_path)

    fate = await fate_of(tmp_path)

    assert (fate.refusal, fate.troubles()) == (None, [])
    assert fate.requests > 0


# --- the file ---


@pytest.mark.parametrize("how", ["zero", "garble"])
async def test_every_lost_page_is_found_before_anything_is_sent(tmp_path: Path, how: str) -> None:
    """Every page in turn: the queue is refused, and its file is not changed."""
    sound = sound_queue(tmp_path)
    content = sound.read_bytes()
    missed = []
    for page in pages(sound):
        harmed = bytearray(content)
        HARMS[how](harmed, page * PAGE, Random(f"{how} {page}"))
        sound.write_bytes(harmed)
        with pytest.raises(QueueUnusable) as raised:
            await SqliteDatabase.open_for_writing(sound)
        if sound.read_bytes() != harmed or "the queue is damaged" not in str(raised.value):
            missed.append((page, str(raised.value)))

    assert missed == []


@pytest.mark.long
async def test_flipped_bits_never_pay_twice(tmp_path: Path) -> None:
    """A flipped bit on any page is reported, or leads to no second charge. `sweep.py` tries many more."""
    sound = sound_queue(tmp_path)
    content = sound.read_bytes()
    for page in pages(sound):
        harmed = bytearray(content)
        HARMS["flip"](harmed, page * PAGE, Random(f"flip {page}"))
        sound.write_bytes(harmed)

        fate = await fate_of(tmp_path)

        assert fate.troubles() == [], f"page {page}"
        assert fate.refusal is None or is_told(fate.refusal), f"page {page}: {fate.refusal!r}"


@pytest.mark.parametrize("length", [0, 1, 99, 512, PAGE - 1, PAGE, 10 * PAGE, -PAGE - 1, -PAGE, -1])
async def test_truncated_file_is_refused(tmp_path: Path, length: int) -> None:
    """A file that lost its end, even all of it: an empty one would be taken for new, and all be paid again."""
    path = sound_queue(tmp_path)
    content = path.read_bytes()[:length]
    path.write_bytes(content)

    with pytest.raises(QueueUnusable, match="the queue is damaged"):
        await SqliteDatabase.open_for_writing(path)

    assert path.read_bytes() == content


async def test_new_queue_may_have_an_empty_file(tmp_path: Path) -> None:
    """A kill in the first moment leaves one, and was no drive yet."""
    (tmp_path / "queue.db").touch()

    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")

    await database.close()


@pytest.mark.parametrize("table", ["account", "job", "recipe", "item", "attempt"])
async def test_row_that_others_need_is_missed(tmp_path: Path, table: str) -> None:
    """A missing row that another row refers to is reported."""
    path = sound_queue(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})")

    with pytest.raises(QueueUnusable, match="damaged"):
        await SqliteDatabase.open_for_writing(path)


async def test_value_that_no_check_allows_is_reported(tmp_path: Path) -> None:
    """A value that violates a CHECK is reported, also where the CHECK cannot be evaluated."""
    path = sound_queue(tmp_path)
    content = path.read_bytes()
    told = []
    for right, wrong in ((b"behindqueued", b"behindquoued"), (b'["gen-1",', b'["gen-1";')):
        assert right in content
        path.write_bytes(content.replace(right, wrong))
        with pytest.raises(QueueUnusable) as raised:
            await SqliteDatabase.open_for_writing(path)
        told.append("damaged" in str(raised.value))

    assert told == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE item SET state = 'canceled' WHERE state = 'submitting'",
        "UPDATE item SET attempt_id = (SELECT min(id) FROM attempt) WHERE state = 'active'",
        "UPDATE attempt SET state = 'refused', ended_at = 1 WHERE state = 'sent'",
    ],
)
async def test_items_and_attempts_that_contradict_each_other_are_reported(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items and attempts must agree on what is unresolved, also in a large queue."""
    monkeypatch.setattr(page_checks, "CHECKED_WHOLE_BYTES", 0)
    path = sound_queue(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(change)

    with pytest.raises(QueueUnusable, match="contradict"):
        await SqliteDatabase.open_for_writing(path)


@pytest.mark.parametrize("name", ["meta", "account", "account_day", "job", "job_day", "request", "attempt_unresolved"])
async def test_large_queue_is_checked_where_money_is(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million items are not read at the start, but what says how much may be spent, and what is unresolved, is."""
    monkeypatch.setattr(page_checks, "CHECKED_WHOLE_BYTES", 0)
    path = sound_queue(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    harmed = bytearray(path.read_bytes())
    HARMS["zero"](harmed, (root - 1) * PAGE, Random(name))
    path.write_bytes(harmed)

    with pytest.raises(QueueUnusable, match="damaged"):
        await SqliteDatabase.open_for_writing(path)


# --- what was to be sent again ---


@pytest.mark.parametrize(
    "change",
    [
        "body = CAST(replace(CAST(body AS TEXT), 'unknown-', 'Unknown-') AS BLOB)",
        "idempotency_key = replace(idempotency_key, 'bk-', 'bK-')",
        "is_video = 1",
        "checksum = checksum + 1",
    ],
)
async def test_attempt_that_changed_on_the_disk_is_held_and_not_sent(tmp_path: Path, change: str) -> None:
    """Law 2: with another key it would be paid twice. SQLite sees no damage in a row of another content."""
    path = sound_queue(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (trigger,) = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE name = 'attempt_is_never_edited'"
        ).fetchone()
        connection.execute("DROP TRIGGER attempt_is_never_edited")
        connection.execute(f"UPDATE attempt SET {change} WHERE state = 'sent' AND account_id <> 4")
        connection.execute(trigger)

    fate = await fate_of(tmp_path)

    assert fate.refusal is None
    assert fate.troubles() == []
    assert {fate.items[name] for name in ("unknown-made", "unknown-unmade")} == {("held", "attempt_damaged")}
    assert not any(b"nknown-" in create.body for create in fate.creates)


# --- the log, and old copies ---


async def died(folder: Path) -> World:
    """Drive the golden queue and die on the way: what was committed since the start is in the log alone."""
    world = resumed_world(folder, SCHEMA_VERSION)
    world.connection.execute("PRAGMA wal_autocheckpoint = 0")
    world.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await world.run_killed(400)
    assert Path(f"{world.path}-wal").stat().st_size > 10 * PAGE
    return world


def copied(world: World, folder: Path, *endings: str) -> Path:
    """Copy some files of an open queue, as a kill would leave them."""
    folder.mkdir()
    for ending in ("", *endings):
        shutil.copy(f"{world.path}{ending}", folder)
    Path(folder / "queue.db.lock").touch()
    return folder / "queue.db"


def done(items: dict[str, tuple[str, str | None]]) -> set[str]:
    return {name for name, (state, _) in items.items() if state == "done"}


ALL_DONE = {name for name, state in ENDS.items() if state == "done"}


@pytest.mark.parametrize("endings", [(), ("-shm",)], ids=["alone", "beside its index"])
async def test_queue_whose_log_was_lost_pays_nothing_twice(tmp_path: Path, endings: tuple[str, ...]) -> None:
    """Law 2: missing commits go unnoticed, but the derived idempotency keys are the same again."""
    (tmp_path / "first").mkdir()
    world = await died(tmp_path / "first")
    charged = world.service.charged
    copied(world, tmp_path / "second", *endings)

    fate = await fate_of(tmp_path / "second", world)

    assert charged > 0
    assert (fate.refusal, fate.troubles()) == (None, [])
    assert done(fate.items) == ALL_DONE
    world.close()


async def test_queue_restored_from_an_old_copy_pays_nothing_twice(tmp_path: Path) -> None:
    """Law 2: requests paid since the copy are sent under the same keys, and replayed by the service."""
    (tmp_path / "first").mkdir()
    world = resumed_world(tmp_path / "first", SCHEMA_VERSION)
    await world.run()
    world.close()
    (tmp_path / "second").mkdir()
    load(SCHEMA_VERSION, tmp_path / "second" / "queue.db")
    charged = world.service.charged

    fate = await fate_of(tmp_path / "second", world)

    assert (fate.refusal, fate.troubles()) == (None, [])
    assert done(fate.items) == ALL_DONE
    assert world.service.charged == charged


async def test_log_that_is_none_is_refused(tmp_path: Path) -> None:
    """SQLite would drop it without a word; it stays, and so does the file."""
    (tmp_path / "first").mkdir()
    world = await died(tmp_path / "first")
    path = copied(world, tmp_path / "second")
    garbage = Random(1).randbytes(20 * PAGE)
    Path(f"{path}-wal").write_bytes(garbage)
    before = path.read_bytes()

    fate = await fate_of(tmp_path / "second", world)

    assert is_told(fate.refusal)
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == (before, garbage)
    world.close()


async def test_log_with_a_hole_pays_nothing_twice(tmp_path: Path) -> None:
    """SQLite keeps what is before the hole: an older state, and no damage that it could tell from a power cut."""
    (tmp_path / "first").mkdir()
    world = await died(tmp_path / "first")
    path = copied(world, tmp_path / "second", "-wal")
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)

    fate = await fate_of(tmp_path / "second", world)

    assert (fate.refusal, fate.troubles()) == (None, [])
    assert done(fate.items) == ALL_DONE
    world.close()


async def test_log_of_another_queue_is_refused_and_not_folded_in(tmp_path: Path) -> None:
    """The log's pages do not fit the file, and none of them is written into it."""
    (tmp_path / "first").mkdir()
    world = await died(tmp_path / "first")
    path = sound_queue(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM request")
        connection.execute("VACUUM")
    before = path.read_bytes()
    shutil.copy(f"{world.path}-wal", tmp_path / "queue.db-wal")

    with pytest.raises(QueueUnusable, match="damaged"):
        await SqliteDatabase.open_for_writing(path)

    assert path.read_bytes() == before
    assert (tmp_path / "queue.db-wal").exists()
    world.close()


async def test_new_queue_is_itself_without_its_log(tmp_path: Path) -> None:
    """A copy of the file alone has the queue's id, and so its keys, from the first moment on."""
    database = await SqliteDatabase.open_for_writing(tmp_path / "queue.db")
    shutil.copy(tmp_path / "queue.db", tmp_path / "copy.db")
    copy = await SqliteDatabase.open_for_writing(tmp_path / "copy.db")

    def uid(connection: Session) -> str:
        return str(connection.execute("SELECT value FROM meta WHERE key = 'queue_uid'").fetchone()[0])

    assert await database.read(uid) == await copy.read(uid)
    await database.close()
    await copy.close()
