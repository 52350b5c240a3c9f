"""The engine of a run: what it does after a wakeup from another process."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from batchkiln.api.app_context import AppContext
from batchkiln.api.engine import Engine, open_engine
from batchkiln.config import Config, Profile
from batchkiln.core.selection import Selection
from batchkiln.store import Store, Writer
from batchkiln.store.operations import redo
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
