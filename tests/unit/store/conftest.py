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
