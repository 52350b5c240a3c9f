"""A queue is moved to another database whole, and at no moment can two processes drive it in two places."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from batchkiln.api.queue_copy import copy_queue, keep_queue
from batchkiln.core.errors import InputError, QueueInUse, QueueUnusable
from batchkiln.core.lease_types import Egress, WorkerIdentity
from batchkiln.store import copying
from batchkiln.store.attempt_journal import AttemptJournal, JournalEntry
from batchkiln.store.copying import DRIVING
from batchkiln.store.location import DatabaseUrl
from batchkiln.store.meta import refuse_moved
from batchkiln.store.postgres.connecting import connect
from batchkiln.store.sqlite.file_session import SCHEMA_VERSION, prepare_for_writing
from batchkiln.store.store import Store
from golden.files import instant_of, load, new_world, surround
from golden.test_golden import ENDS
from support import postgres, stores
from support.builders import NOON

pytestmark = pytest.mark.postgres


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """A database with an empty queue."""
    postgres.require()
    with postgres.server().database() as lent:
        yield lent


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A queue file with an item in every state, which was killed on its way."""
    path = tmp_path / "golden.db"
    load(SCHEMA_VERSION, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_for_writing(connection, path)
        connection.execute("UPDATE attempt SET seen_going_ms = 2, seen_ended_ms = 5 WHERE id = 1")
    return path


def content(location: Path | DatabaseUrl) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows by table, but for who drives the queue and where it was moved to."""
    if isinstance(location, DatabaseUrl):
        with closing(connect(location)) as session:
            return _content(session, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    with closing(sqlite3.connect(location)) as connection:
        return _content(connection, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")


def _content(session: Any, names: str) -> dict[str, list[tuple[Any, ...]]]:  # noqa: ANN401  either driver's
    tables = {str(name) for (name,) in session.execute(names).fetchall()} - DRIVING - {"meta"}
    found = {
        table: sorted((tuple(row) for row in session.execute(f'SELECT * FROM "{table}"').fetchall()), key=repr)
        for table in tables
    }
    kept = "SELECT key, value FROM meta WHERE key NOT IN ('schema_version', 'moved')"
    return found | {"meta": sorted(tuple(row) for row in session.execute(kept).fetchall())}


def test_a_copy_there_and_back_is_equal(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """Every row of every table: keys, attempts, counters, ids, history."""
    there = copy_queue(golden, url)
    inside = content(url)
    back = copy_queue(url, tmp_path / "back.db")

    assert content(golden) == content(tmp_path / "back.db") == inside
    assert there == back
    assert there.items == len(ENDS)
    assert all(inside[table] for table in copying.ORDER if table not in {"asset", "variant_group"})


def test_new_ids_follow_the_copied_ones(golden: Path, url: DatabaseUrl) -> None:
    """An id that was given again would be another request's idempotency key."""
    copy_queue(golden, url)

    with closing(connect(url)) as session:
        for table in ("account", "job", "recipe", "input_file", "item", "attempt", "output", "request", "history"):
            highest, following = session.row(
                f"SELECT (SELECT max(id) FROM {table}), nextval(pg_get_serial_sequence('{table}', 'id'))"
            )
            assert following == highest + 1


async def test_what_was_pending_is_resumed_in_the_database_and_nothing_paid_twice(
    golden: Path, url: DatabaseUrl, tmp_path: Path
) -> None:
    """Law 2: the same keys and bytes, of the same accounts."""
    copy_queue(golden, url)
    with stores.queues_in("postgres"):
        stores._databases.known[tmp_path / "queue.db"] = url
        world = new_world(tmp_path, instant_of(SCHEMA_VERSION))
        surround(world, SCHEMA_VERSION)

        await world.run()

        assert {name: world.state(name).value for name in ENDS} == ENDS
        assert all(world.service.charges_of(f"a {name}") <= 1 for name in ENDS)
        assert world.service.violations == []
        world.close()


async def test_a_queue_that_was_moved_is_refused_with_its_new_place(golden: Path, url: DatabaseUrl) -> None:
    """Nobody drives both; the sentence has no password (Law 8)."""
    secret = replace(url, secret=url.secret.replace("batchkiln@", "batchkiln:hush@"))
    copy_queue(golden, secret)

    for opening in (Store.open_for_writing, Store.open_for_reading):
        with pytest.raises(QueueUnusable, match=r"was moved to postgresql://batchkiln:…@.*Use --queue") as refused:
            await opening(golden)
        assert "hush" not in str(refused.value)
    with pytest.raises(QueueUnusable, match="was moved to"):
        copy_queue(golden, secret)


async def test_a_queue_in_a_database_that_was_moved_is_refused(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """The same in the other direction."""
    copy_queue(golden, url)
    copy_queue(url, tmp_path / "back.db")

    for opening in (Store.open_for_writing, Store.open_for_reading):
        with pytest.raises(QueueUnusable, match=r"was moved to .*back\.db"):
            await opening(url)


async def test_a_process_that_had_the_queue_open_does_not_drive_it_after_the_move(
    golden: Path, url: DatabaseUrl
) -> None:
    """It is refused when it asks for the lock."""
    store = await Store.open_for_writing(golden)
    copy_queue(golden, url)

    with pytest.raises(QueueUnusable, match="was moved to"):
        async with store.locked(command="run", now=NOON):
            pass

    await store.close()


async def test_a_queue_that_is_driven_is_not_copied(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """Its driver is named, in a file and in a database."""
    file = await Store.open_for_writing(golden)
    async with file.locked(command="run", now=NOON):
        with pytest.raises(QueueInUse, match=r"process \d+ on .* \(run, since"):
            copy_queue(golden, url)
    await file.close()
    copy_queue(golden, url)
    database = await Store.open_for_writing(url)
    async with database.locked(command="run", now=NOON):
        with pytest.raises(QueueInUse, match=r"process \d+ on .* \(run, since"):
            copy_queue(url, tmp_path / "back.db")
    await database.close()


OWN = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"


def test_a_copied_queue_is_free_at_once(golden: Path, url: DatabaseUrl) -> None:
    """The server ends a closed connection only after a while, and the lock with it."""
    copy_queue(golden, url)

    with closing(connect(url)) as session:
        assert session.scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND " + OWN) == 0


def test_a_queue_with_workers_is_not_copied(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """They hold leases in place of the lock; those that were seen long ago are gone, and wake without a lease."""
    copy_queue(golden, url)
    with closing(connect(url)) as session:
        session.script(
            "INSERT INTO worker (name, egress, host, pid, version, started_at, seen_at)"
            " SELECT 'w1', 'e', 'h', 1, '1', 0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint;"
            "INSERT INTO egress (name, requests_per_minute, worker, epoch, expires_at) VALUES ('e', 120, 'w1', 3, 5)"
        )
    with pytest.raises(QueueInUse, match=r"workers drive this queue \(w1\)"):
        copy_queue(url, tmp_path / "back.db")
    with closing(connect(url)) as session:
        session.script("UPDATE worker SET seen_at = 0")

    copy_queue(url, tmp_path / "back.db")

    with closing(connect(url)) as session:
        assert session.scalar("SELECT epoch FROM egress") > 3


async def test_a_worker_that_stood_still_during_the_move_ends(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """Its connection is open still; it neither sends nor takes accounts again."""
    copy_queue(golden, url)
    store = await Store.open_for_writing(url)
    copy_queue(url, tmp_path / "back.db")
    worker = WorkerIdentity(name="w1", egress="e", host="h", pid=1, version="1")

    with pytest.raises(QueueUnusable, match="was moved to"):
        await store.leases().renew(worker, Egress("e", 120), None, [])

    await store.close()


def test_a_target_with_jobs_is_refused(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """Neither queue is changed."""
    load(SCHEMA_VERSION, tmp_path / "other.db")
    before = content(tmp_path / "other.db")

    with pytest.raises(QueueUnusable, match="there is a queue with jobs already; nothing was copied"):
        copy_queue(golden, tmp_path / "other.db")

    assert content(tmp_path / "other.db") == before
    copy_queue(golden, url)  # the source may still be copied elsewhere


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_copy_that_was_killed_at_the_commit_is_finished_by_the_same_command(
    golden: Path, url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In between, nobody can drive the source, whether or not the target is complete."""
    before, marks = content(golden), copying._Copy._mark

    def dying(self: Any, *, is_done: bool | None) -> None:  # noqa: ANN401  the class is private
        if is_done is not False:
            raise Died
        marks(self, is_done=is_done)

    def dying_within(_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(copying._Copy, "_mark", dying)
        if moment == "before":
            patch.setattr(copying._Copy, "_copy_meta", dying_within)
        with pytest.raises(Died):
            copy_queue(golden, url)
    with pytest.raises(QueueUnusable, match=r"was begun and has not ended.*queue copy"):
        await Store.open_for_writing(golden)

    again = copy_queue(golden, url)

    assert again.is_finished_only == (moment == "after")
    assert content(url) == before
    with pytest.raises(QueueUnusable, match="was moved to"):
        await Store.open_for_writing(golden)


async def test_a_copy_that_failed_leaves_the_source_as_it_was(golden: Path, url: DatabaseUrl) -> None:
    """A damaged attempt is found by its checksum; the target stays empty, and the source is not marked."""
    with closing(sqlite3.connect(golden)) as connection:
        connection.execute("DROP TRIGGER attempt_is_never_edited")
        connection.execute("UPDATE attempt SET checksum = checksum + 1 WHERE state = 'sent'")
        connection.commit()

    with pytest.raises(QueueUnusable, match=r"attempt \d+ is not what was recorded.*nothing was copied"):
        copy_queue(golden, url)

    assert content(url)["item"] == []
    await (await Store.open_for_writing(golden)).close()


def test_paths_are_relative_in_a_shared_database_and_absolute_in_a_file(
    golden: Path, url: DatabaseUrl, tmp_path: Path
) -> None:
    """The folder of the results may be mounted elsewhere on the next machine."""
    copy_queue(golden, replace(url, shared_dir=Path("/out")))
    inside = content(url)
    copy_queue(replace(url, shared_dir=tmp_path), tmp_path / "back.db")

    with closing(sqlite3.connect(golden)) as connection:
        folders = {folder for (folder,) in connection.execute("SELECT output_dir FROM job")}
    with closing(sqlite3.connect(tmp_path / "back.db")) as connection:
        moved = {folder for (folder,) in connection.execute("SELECT output_dir FROM job")}
        paths = [path for (path,) in connection.execute("SELECT path FROM output")]
    assert {folder for row in inside["job"] for folder in row if folder in {".", "guide"}}
    assert moved == {str(tmp_path / Path(folder).relative_to("/out")) for folder in folders}
    assert all(path.startswith(f"{tmp_path}/") for path in paths)


def test_results_outside_the_shared_folder_are_refused(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """The other machines could not read them; nothing is copied, and the source may be used."""
    with pytest.raises(InputError, match="is not below"):
        copy_queue(golden, replace(url, shared_dir=tmp_path))

    assert content(url)["item"] == []


def test_images_that_are_still_to_be_sent_come_along(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """Those that are not where their manifests said are named; they are held when their turn comes, as ever."""
    with closing(sqlite3.connect(golden)) as connection:
        (path, sha256), *_ = connection.execute("SELECT path, sha256 FROM input_file WHERE path LIKE '%hare%'")
        (tmp_path / "hare.png").write_bytes(b"hare")
        connection.execute("UPDATE input_file SET path = ? WHERE path = ?", (str(tmp_path / "hare.png"), path))
        connection.execute("UPDATE job SET output_dir = ?", (str(tmp_path / "out"),))
        connection.commit()

    copied = copy_queue(golden, replace(url, shared_dir=tmp_path))

    assert (tmp_path / ".inputs" / sha256).read_bytes() == b"hare"
    assert [Path(missing).name for missing in copied.missing_images] == ["fox.png"]


def test_what_a_restored_copy_has_lost_goes_along(golden: Path, url: DatabaseUrl) -> None:
    """The journal stays beside the old place: the new one has to know whose item must not be begun anew (Law 2)."""
    with closing(sqlite3.connect(golden)) as connection:
        ((uid,),) = connection.execute("SELECT value FROM meta WHERE key = 'queue_uid'")
    journal = AttemptJournal(golden)
    journal.begin(None)
    journal.append(JournalEntry(uid, "guide", "queued-image", "test", "main", 1, "lost-key", "key-1", 7, 10, 1))
    journal.close()

    copy_queue(golden, url)

    assert [row[0:2] for row in content(url)["lost_attempt"]] == [("guide", "queued-image")]
    assert "lost_attempts_found_at" in dict(content(url)["meta"])


def test_every_table_is_copied_or_about_who_drives(golden: Path, url: DatabaseUrl) -> None:
    """A table that a migration adds is copied after those that are named, since they refer to none of it."""
    found = content(golden).keys() - {"meta"}

    assert found >= set(copying.ORDER)
    assert found == content(url).keys() - {"meta"}


def test_source_of_an_interrupted_copy_whose_target_is_lost_is_kept(golden: Path, tmp_path: Path) -> None:
    """The refusal names the command; it is refused while the target may be driven."""
    target = tmp_path / "target.db"
    with (
        mock.patch.object(copying._Copy, "_mark", _mark_begun_only),
        pytest.raises(InterruptedError),
    ):
        copy_queue(golden, target)
    with closing(sqlite3.connect(golden)) as connection:
        connection.row_factory = sqlite3.Row
        with pytest.raises(QueueUnusable, match="batchkiln queue keep"):
            refuse_moved(connection, golden)
    with pytest.raises(QueueUnusable, match="the copy is there"):
        keep_queue(golden, target)

    target.unlink()
    keep_queue(golden, target)

    with closing(sqlite3.connect(golden)) as connection:
        connection.row_factory = sqlite3.Row
        refuse_moved(connection, golden)
    with pytest.raises(QueueUnusable, match="no copy to"):
        keep_queue(golden, target)


_mark = copying._Copy._mark


def _mark_begun_only(copy: copying._Copy, *, is_done: bool | None) -> None:
    """Fail once the target has committed, as a crash does."""
    if is_done:
        raise InterruptedError
    _mark(copy, is_done=is_done)


def test_files_on_the_disk_of_another_machine_are_told(golden: Path, url: DatabaseUrl, tmp_path: Path) -> None:
    """They cannot move along: the service has them for some days yet."""
    with closing(sqlite3.connect(golden)) as connection, connection:
        connection.execute(
            "INSERT INTO history (at, job_id, item_id, attempt_id, kind, detail) "
            "SELECT 1, job_id, id, attempt_id, 'file_staged', "
            """'{"number": 9, "host": "fra-1"}' FROM item WHERE state = 'downloading' LIMIT 1"""
        )

    there = copy_queue(golden, url)
    back = copy_queue(url, tmp_path / "back.db")

    assert there.staged_elsewhere == back.staged_elsewhere == ("fra-1",)
