"""What holds for all tests."""

import gc
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from support.examples import register_profiles

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 << 30

register_profiles()
# Commands are started by the hundred, and each worker reads every test: without bytecode all would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A queue waits for the disk at each commit. What tests write is gone afterwards, so memory serves, where there is room.
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
gc.disable()  # until everything is imported


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin what takes long: at the end, one worker would be at it alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Never look for garbage again among what was imported and collected: some tests collect it a hundred times."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Name the PostgreSQL server that all processes of this run share; whoever needs it first starts it."""
    if "BATCHKILN_TESTS_POSTGRES" not in os.environ:
        room = os.environ.get("PYTEST_DEBUG_TEMPROOT")
        os.environ["BATCHKILN_TESTS_POSTGRES"] = tempfile.mkdtemp(prefix="batchkiln-", dir=room)
        os.environ["BATCHKILN_TESTS_BEGUN_BY"] = str(os.getpid())


def pytest_unconfigure() -> None:
    """Remove the folder of a server that nobody needed; a server's own watcher removes the other."""
    if os.environ.get("BATCHKILN_TESTS_BEGUN_BY") == str(os.getpid()):
        with suppress(OSError):
            Path(os.environ["BATCHKILN_TESTS_POSTGRES"]).rmdir()
