"""A queue in a real file, checked once more after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.queue_file import QueueFile


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    yield opened
    opened.check()
    opened.connection.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an empty queue to copy: making one takes longer than most tests."""
    empty = QueueFile(tmp_path_factory.mktemp("template") / "queue.db")
    empty.connection.execute("PRAGMA journal_mode = DELETE")
    empty.connection.close()
    return empty.path
