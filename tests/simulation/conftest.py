"""Collect the garbage of killed worlds before the next test."""

from collections.abc import Iterator

import pytest

from .log_silencing import silence


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect the test's garbage in silence: its finalisers warn of unclosed loops and connections."""
    yield
    with silence():
        pass  # it collects at its end
