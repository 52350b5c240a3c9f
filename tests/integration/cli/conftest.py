"""A workspace for each test, and one with a finished job for those that only read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cli.workspace import HURRIED, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path)
    made.configure(HURRIED)
    yield made
    made.end_all()


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Give a workspace whose job `foxes` of two items is done. Not to be changed."""
    made = Workspace(tmp_path_factory.mktemp("done"))
    made.configure(HURRIED)
    result = made.call("run", made.manifest())
    assert result.exit == 0, result.err
    return made
