"""The newest code opens, reads and resumes the queues of every earlier schema version."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

from batchkiln.cli.main import run_program
from batchkiln.core.errors import QueueUnusable
from batchkiln.core.states import ItemState
from batchkiln.store.sqlite import file_session as queue_connection
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln.store.sqlite.file_session import SCHEMA_VERSION
from golden.files import COMMAND, dump, load, queue_file, resumed_world, schema, surroundings_file
from support.fake_service import Create, content_of
from support.worker_world import World

SOURCE: Final = Path(__file__).parents[2] / "src"
VERSIONS: Final = [version for version in range(1, SCHEMA_VERSION + 1) if queue_file(version).exists()]
ENDINGS: Final = ("", "-wal")
MORE: Final = "CREATE TABLE more (x);\nINSERT INTO more SELECT id FROM item;\n"

ENDS: Final = {
    "done": "done",
    "second-try": "done",
    "failed": "failed",
    "canceled-there": "failed",
    "expired": "expired",
    "over-cap": "rejected",
    "rejected": "rejected",
    "with-image": "done",
    "canceled": "canceled",
    "held-conflict": "held",
    "held-in-doubt": "held",
    "held-image": "held",
    "held-lost": "held",
    "held-key": "done",  # its key is back
    "two-views": "done",
    "active": "done",
    "queued-behind": "done",
    "unknown-made": "done",
    "unknown-unmade": "done",
    "queued-unquoted": "done",
    "queued-image": "done",
    "paused": "queued",
}


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_every_schema_version_has_a_golden_queue(version: int) -> None:
    """A new schema version needs a golden queue, on which every later migration is tested."""
    for path in (queue_file(version), surroundings_file(version)):
        assert path.exists(), f"schema version {version} has no golden file {path.name}: run `{COMMAND}` and commit it"


def test_golden_queue_has_todays_schema(tmp_path: Path) -> None:
    """The golden queue of the current version is what today's code writes; a change needs a migration."""
    load(SCHEMA_VERSION, tmp_path / "golden.db")
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as connection:
        queue_connection.prepare_for_writing(connection, tmp_path / "new.db")

    assert schema(tmp_path / "golden.db") == schema(tmp_path / "new.db"), f"run `{COMMAND}`"


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_queue_holds_an_item_in_every_state(tmp_path: Path, version: int) -> None:
    """None of the ways in which an item can be met is left out."""
    load(version, tmp_path / "queue.db")
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        states = {state for (state,) in connection.execute("SELECT DISTINCT state FROM item")}
        doubts = connection.execute("SELECT count(*) FROM attempt WHERE state = 'sent' AND sends > 1").fetchone()

    assert states == {state.value for state in ItemState}
    assert doubts == (2,)


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: f"version {version}")
def resumed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, World]]:
    """Run the golden queue of a version to its end. Not to be changed."""
    world = resumed_world(tmp_path_factory.mktemp("resumed"), request.param)
    asyncio.run(world.run())
    yield request.param, world
    world.close()


def test_golden_queue_is_resumed_and_nothing_paid_twice(tmp_path: Path, resumed: tuple[int, World]) -> None:
    """Law 2: what was unresolved is sent with the same key, bytes and API key; no other attempt is made of it."""
    version, world = resumed
    load(version, tmp_path / "before.db")
    recorded = _recorded(tmp_path / "before.db")

    sent: dict[str, set[Create]] = defaultdict(set)
    for create in world.service.creates:
        sent[json.loads(create.body)["prompt"]].add(create)
    for prompt, create in recorded.items():
        assert sent.pop(prompt) == {create}
    assert set(sent) == {"a queued-behind", "a queued-unquoted", "a queued-image"}
    assert {name: world.state(name).value for name in ENDS} == ENDS
    assert all(world.service.charges_of(f"a {name}") <= 1 for name in ENDS)
    assert world.service.violations == []


def _recorded(path: Path) -> dict[str, Create]:
    """Return what was sent of each prompt whose reply is not known."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT account.name, is_video, body, idempotency_key, key_fingerprint"
            " FROM attempt JOIN account ON account.id = account_id WHERE state = 'sent'"
        )
        return {json.loads(row[2])["prompt"]: Create(row[0], bool(row[1]), *row[2:]) for row in rows}


def test_every_paid_file_of_a_golden_queue_is_fetched(resumed: tuple[int, World]) -> None:
    """Law 7: this includes the second of two files whose first the older program saved."""
    _, world = resumed

    outputs = {row[0] for row in world.rows("SELECT path FROM output")}
    done = [name for name, state in ENDS.items() if state == "done"]
    assert outputs == set(world.outputs.files)
    assert {Path(path).stem for path in outputs} == {*done, "two-views-2"}
    generation_id = world.one(
        "SELECT generation_id FROM attempt JOIN item ON item_id = item.id WHERE name = 'two-views'"
    )
    assert world.outputs.files["/out/guide/two-views.png"] == content_of(generation_id)
    assert world.outputs.files["/out/guide/two-views-2.png"] == content_of(f"{generation_id}/2")


def test_money_of_a_golden_queue_adds_up(resumed: tuple[int, World]) -> None:
    """What the queue says was charged and refunded is what the service's ledger says."""
    _, world = resumed

    charged, refunded = world.rows("SELECT sum(charged), sum(refunded) FROM job")[0]
    known = list(world.service.generations.values())
    assert charged == sum(generation.cost for generation in known)
    assert refunded == sum(generation.cost for generation in known if generation.refunded)


@pytest.mark.parametrize("version", VERSIONS)
def test_golden_queue_is_read_by_the_commands(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status`, `items` and `show` read an older queue after its migration."""
    resumed_world(tmp_path, version).close()
    monkeypatch.chdir(tmp_path)

    def told(*arguments: str) -> str:
        assert run_program([*arguments, "--json", "--queue", "queue.db"]) == 0
        return capsys.readouterr().out

    status = json.loads(told("status", "guide"))
    items = {item["item"]: item for item in map(json.loads, told("items", "guide").splitlines())}
    stories = {name: json.loads(told("show", "guide", name)) for name in items}
    assert status["items"]["total"] == len(items) == 18
    assert status["items"]["held"] == 4
    assert items["active"]["generation_id"].startswith("gen-")
    assert {story["state"] for story in stories.values()} >= {"done", "active", "held", "queued", "downloading"}


# --- migrations ---


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let this code know one more migration."""
    version = SCHEMA_VERSION + 1
    known = [*queue_connection.migrations(), (version, MORE)]
    monkeypatch.setattr(queue_connection, "migrations", lambda: known)
    monkeypatch.setattr(queue_connection, "SCHEMA_VERSION", version)
    return version


async def test_older_queue_is_migrated_and_resumed(tmp_path: Path, next_version: int) -> None:
    """The first command that writes brings a queue up to date; what was under way goes on."""
    world = resumed_world(tmp_path, SCHEMA_VERSION)
    await world.run()

    assert world.one("PRAGMA user_version") == next_version
    assert world.one("SELECT count(*) FROM more") == len(ENDS)
    assert {name: world.state(name).value for name in ENDS} == ENDS
    world.close()


@pytest.mark.usefixtures("next_version")
async def test_older_queue_opened_for_reading_says_what_to_do(tmp_path: Path) -> None:
    """A reader has no right to migrate: it names the command that does, and changes nothing."""
    load(SCHEMA_VERSION, tmp_path / "queue.db")
    before = (tmp_path / "queue.db").read_bytes()

    with pytest.raises(QueueUnusable, match="older schema; `batchkiln work` updates it"):
        await SqliteDatabase.open_for_reading(tmp_path / "queue.db")

    assert (tmp_path / "queue.db").read_bytes() == before


def test_kill_in_the_middle_of_a_migration_leaves_the_queue_as_it_was(tmp_path: Path) -> None:
    """A migration is whole or not at all, also when SIGKILL comes between two of its statements."""
    path = tmp_path / "queue.db"
    load(SCHEMA_VERSION, path)
    before = dump(path)
    script = dedent(
        """
        import os, signal, sqlite3, sys
        from pathlib import Path
        from batchkiln.store.sqlite import file_session as queue
        known = [*queue.migrations(), (queue.SCHEMA_VERSION + 1, sys.argv[2] + "SELECT die();\\n")]
        queue.migrations = lambda: known
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
        queue.prepare_for_writing(connection, Path(sys.argv[1]))
        """
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}

    process = subprocess.run([sys.executable, "-c", script, str(path), MORE], env=environment, check=False)

    assert process.returncode == -signal.SIGKILL
    assert dump(path) == before
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        queue_connection.prepare_for_writing(connection, path)
        assert connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION


@pytest.mark.parametrize("mode", ["writing", "reading"])
async def test_queue_of_the_future_is_left_alone_to_the_byte(tmp_path: Path, mode: str) -> None:
    """An older program changes nothing of what a newer one wrote, not even what is still in its log."""
    load(SCHEMA_VERSION, tmp_path / "newer.db")
    with closing(sqlite3.connect(tmp_path / "newer.db", isolation_level=None)) as newer:
        newer.execute("PRAGMA journal_mode = WAL")
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        before = {ending: (tmp_path / f"newer.db{ending}").read_bytes() for ending in ENDINGS}
    for ending, content in before.items():
        (tmp_path / f"queue.db{ending}").write_bytes(content)

    with pytest.raises(QueueUnusable, match="nothing was changed: update batchkiln"):
        await getattr(SqliteDatabase, f"open_for_{mode}")(tmp_path / "queue.db")

    assert {ending: (tmp_path / f"queue.db{ending}").read_bytes() for ending in ENDINGS} == before
