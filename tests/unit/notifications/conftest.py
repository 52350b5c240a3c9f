"""A world on a queue file of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.worker_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One account, the documented limits, noon."""
    made = World(tmp_path)
    yield made
    made.close()
