"""The engine of a run: what it does after a wakeup from another process."""

from collections.abc import AsyncIterator, Iterator
from io import StringIO
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace
from rich.console import Console, Group

from batchkiln.api.app_context import AppContext
from batchkiln.api.engine import Engine, open_engine
from batchkiln.api.fleet_engine import FleetEngine
from batchkiln.cli.status_text import overview_blocks
from batchkiln.clock import machine_now
from batchkiln.config import Account, Config, KeyNotFound, KeySource, Profile
from batchkiln.core.errors import InputError
from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo
from batchkiln.core.selection import Selection
from batchkiln.dashboard.live_state import LiveState
from batchkiln.dashboard.snapshot import Headline, Level, headline, read_snapshot
from batchkiln.notifications.from_status import status_notifications
from batchkiln.presentation.overview import read_status
from batchkiln.store import Store, Writer
from batchkiln.store.operations import cancel, redo
from batchkiln.worker.startup import resume_held
from support.queue_file import JOB, NOW, QueueFile, spec

ACCOUNT = 1


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    """Two items of a profile that is not configured, of which the first is done."""
    opened = QueueFile(tmp_path / "queue.db")
    opened.apply([spec("fox"), spec("owl")], job=replace(JOB, output_dir=str(tmp_path)), profile="other")
    opened.finish("fox", str(tmp_path / "fox.png"))
    yield opened
    opened.connection.close()


@pytest_asyncio.fixture
async def engine(queue: QueueFile, tmp_path: Path) -> AsyncIterator[Engine]:
    """The engine of a run that has started, and that may begin the first item only."""
    app = AppContext(queue.path, Config({"local": Profile("local")}, "local"), working_dir=tmp_path)
    store = await Store.open_for_writing(queue.path)
    try:
        async with open_engine(store, app, command="test") as opened:
            opened.control.scope = await store.run(Writer.select, None, Selection(limit=1))
            await opened.new_workers()
            yield opened
    finally:
        await store.close()


async def test_workers_that_read_the_selection_before_it_followed_a_change_read_again(
    engine: Engine, queue: QueueFile
) -> None:
    """A wakeup reaches the workers first: an item that a person has made again was not selected for them yet."""
    redo(queue.connection, "birds", ["fox"], NOW)
    engine.on_wakeup()
    seen, version = await engine.outstanding(engine.control.scope), engine.news.version

    await engine.new_workers()

    assert seen.total == 0
    assert (await engine.outstanding(engine.control.scope)).total == 1
    assert engine.news.has_news(ACCOUNT, version)


async def test_account_whose_key_has_gone_is_told_on_all_pages_until_it_is_back(tmp_path: Path) -> None:
    """A page of another process knows it from the queue; the metric, the headline and the webhook say the same."""
    queue = QueueFile(tmp_path / "queue.db")
    account = Account("anna", (KeySource(file="anna.key"),))
    profile = Profile("studio", "https://api.example/api/v1", (account,), folder=tmp_path)
    app = AppContext(queue.path, Config({"studio": profile}, "studio"), working_dir=tmp_path)
    store = await Store.open_for_writing(queue.path)
    try:
        async with open_engine(store, app, command="watch") as engine:
            with pytest.raises(KeyNotFound, match=r"account anna: no API key found in the file anna\.key"):
                engine.check_keys()
            await engine.new_workers()
            queue.apply([spec("fox")], job=replace(JOB, output_dir=str(tmp_path)), profile="studio")
            engine.on_wakeup()
            await engine.new_workers()

            missing = await store.read(
                lambda reader: headline(read_snapshot(reader, app.config, machine_now(), LiveState()))
            )
            (told,) = await status_notifications(engine, store, "uid")
            (tmp_path / "anna.key").write_text("a-key-of-anna")
            engine.check_keys()
            engine.on_wakeup()
            (worker,) = await engine.new_workers()
            await resume_held(worker)
            found = await store.read(
                lambda reader: headline(read_snapshot(reader, app.config, machine_now(), LiveState()))
            )
            untold = await status_notifications(engine, store, "uid")
    finally:
        await store.close()
        queue.connection.close()

    assert missing.level is Level.HELP
    assert "studio/anna cannot work: it has no API key: none was found in the file anna.key" in str(missing.reasons[0])
    assert (told.kind, told.data["problem"]) == ("account_blocked", "key_missing")
    assert found.level is Level.FINE
    assert untold == []


async def test_refused_account_is_told_on_all_pages_until_the_next_start(tmp_path: Path) -> None:
    """A page of another process, `status` and the history say it, also after the run has ended because of it."""
    queue = QueueFile(tmp_path / "queue.db")
    account = Account("anna", (KeySource(file="anna.key"),))
    (tmp_path / "anna.key").write_text("a-key-of-anna")
    profile = Profile("studio", "https://api.example/api/v1", (account,), folder=tmp_path)
    app = AppContext(queue.path, Config({"studio": profile}, "studio"), working_dir=tmp_path)
    queue.apply([spec("fox")], job=replace(JOB, output_dir=str(tmp_path)), profile="studio")
    refusal = AccountBlocked(AccountProblem.KEY_REFUSED, ErrorInfo("invalid_api_key", "it is unknown"))

    async def seen() -> tuple[Headline, str]:
        page = await store.read(lambda reader: read_snapshot(reader, app.config, machine_now(), LiveState()))
        overview = await store.read(lambda reader: read_status(reader, app.config, None, machine_now()))
        text = StringIO()
        Console(file=text, width=1000).print(Group(*overview_blocks(overview)))
        return headline(page), text.getvalue()

    store = await Store.open_for_writing(queue.path)
    try:
        async with open_engine(store, app, command="work") as engine:
            (worker,) = await engine.new_workers()
            engine.control.block(worker.account_id, refusal, is_cut_off=True)
            for _ in range(2):
                await engine.new_workers()
            during, status = await seen()
        after, status_after = await seen()
        async with open_engine(store, app, command="work") as engine:
            await engine.new_workers()
            next_run, _ = await seen()
    finally:
        await store.close()
        queue.connection.close()

    assert during.level is after.level is Level.HELP
    assert "studio/anna cannot work: the service refuses its API key" in str(during.reasons[0])
    assert "studio/anna cannot work: the service refuses its API key" in status
    assert "end not known yet: anna cannot work" in status
    assert "studio/anna could not work in the last run: the service refuses its API key" in str(after.reasons[0])
    assert "studio/anna could not work in the last run" in status_after
    assert next_run.level is Level.FINE


def test_key_file_may_be_a_credential_of_any_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systemd names the folder in a variable, so one configuration serves each unit."""
    (tmp_path / "studio").write_text("a-key")
    source = KeySource(file="${CREDENTIALS_DIRECTORY}/studio")

    assert source.read(tmp_path / "elsewhere") is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert source.read(tmp_path / "elsewhere") == "a-key"


def keyless(folder: Path, *names: str) -> Profile:
    """Return a profile whose accounts look for their keys in files of the folder."""
    accounts = tuple(Account(name, (KeySource(file=f"{name}.key"),)) for name in names)
    return Profile("studio", "https://api.example/api/v1", accounts, folder=folder)


async def test_run_with_work_and_without_a_key_does_not_start(tmp_path: Path) -> None:
    """Nothing is begun or stored, also where only one of two accounts lacks its key."""
    queue = QueueFile(tmp_path / "queue.db")
    (tmp_path / "anna.key").write_text("a-key-of-anna")
    app = AppContext(queue.path, Config({"studio": keyless(tmp_path, "anna", "ben")}, "studio"), working_dir=tmp_path)
    job = replace(JOB, output_dir=str(tmp_path), accounts=("anna", "ben"))
    queue.apply([spec("fox")], job=job, profile="studio")
    store = await Store.open_for_writing(queue.path)
    try:
        async with open_engine(store, app, command="run") as engine:
            with pytest.raises(KeyNotFound, match=r"account ben: no API key found in the file ben\.key"):
                await engine.new_workers()
            missing = dict(engine.without_key)
    finally:
        await store.close()
        queue.connection.close()

    assert missing == {}


async def test_account_without_a_key_stops_no_other_and_is_forgotten_with_its_work(tmp_path: Path) -> None:
    """A watching process begins what it has keys for, and tells of the other account once."""
    queue = QueueFile(tmp_path / "queue.db")
    (tmp_path / "anna.key").write_text("a-key-of-anna")
    app = AppContext(queue.path, Config({"studio": keyless(tmp_path, "anna", "ben")}, "studio"), working_dir=tmp_path)
    store = await Store.open_for_writing(queue.path)
    try:
        async with open_engine(store, app, command="watch") as engine:
            await engine.new_workers()
            job = replace(JOB, output_dir=str(tmp_path), accounts=("anna", "ben"))
            queue.apply([spec("fox")], job=job, profile="studio")
            engine.on_wakeup()
            begun = await engine.new_workers()
            engine.on_wakeup()
            again = await engine.new_workers()
            missing = set(engine.without_key)
            cancel(queue.connection, "birds", [], NOW)
            engine.on_wakeup()
            await engine.new_workers()
    finally:
        await store.close()
        queue.connection.close()

    assert [worker.viewpoint.account for worker in begun] == ["anna"]
    assert again == []
    assert missing == {("studio", "ben")}
    assert engine.without_key == {}


def test_worker_of_a_shared_queue_needs_one_key_of_all(tmp_path: Path) -> None:
    """Other machines may have the others; without any, the first start ends and names every place."""
    app = AppContext(tmp_path / "queue.db", Config({"studio": keyless(tmp_path, "anna", "ben")}, "studio"))
    engine = object.__new__(FleetEngine)  # only a database has one, and this question needs none
    engine.app = app

    with pytest.raises(InputError) as caught:
        engine.check_keys()
    (tmp_path / "ben.key").write_text("a-key-of-ben")
    engine.check_keys()

    assert "anna.key" in str(caught.value)
    assert "ben.key" in str(caught.value)
