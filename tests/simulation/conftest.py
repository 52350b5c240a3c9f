"""Worlds end in the middle of their work: what is left of them is collected before the next test."""

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect what a test left, whose finalisers complain of unclosed loops and connections, as after a kill."""
    yield
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
