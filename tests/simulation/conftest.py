"""Worlds end in the middle of their work: what is left of them is collected before the next test."""

from collections.abc import Iterator

import pytest

from .log_silencing import silence


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what a test left, whose finalisers complain of unclosed loops and connections, as after a kill."""
    yield
    with silence():
        pass  # it collects at its end
