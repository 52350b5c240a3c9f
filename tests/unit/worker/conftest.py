"""A world on a queue file of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stores import KINDS, queues_in
from support.worker_world import World

USES = {"World", "world"}


@pytest.fixture
def world(tmp_path: Path, _store: None) -> Iterator[World]:
    """One account, the documented limits, noon."""
    made = World(tmp_path)
    yield made
    made.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that opens a queue on both databases."""
    opens_queue = not USES.isdisjoint({*vars(metafunc.module), *metafunc.fixturenames})
    is_files = next(metafunc.definition.iter_markers("sqlite"), None) is not None
    metafunc.parametrize("store_kind", KINDS if opens_queue and not is_files else ["sqlite"], ids=None)


@pytest.fixture(autouse=True)
def _store(store_kind: str) -> Iterator[None]:
    with queues_in(store_kind):
        yield
