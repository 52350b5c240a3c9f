"""A queue in a real file, checked once more after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.queue_file import QueueFile
from support.stores import KINDS, queues_in

USES = {"World", "QueueFile", "queue"}


@pytest.fixture
def queue(tmp_path: Path, _store: None) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    yield opened
    opened.check()
    opened.connection.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that opens a queue on both databases."""
    opens_queue = not USES.isdisjoint({*vars(metafunc.module), *metafunc.fixturenames})
    is_files = next(metafunc.definition.iter_markers("sqlite"), None) is not None
    metafunc.parametrize("store_kind", KINDS if opens_queue and not is_files else ["sqlite"], ids=None)


@pytest.fixture(autouse=True)
def _store(store_kind: str) -> Iterator[None]:
    with queues_in(store_kind):
        yield
