"""What holds for all tests."""

import gc
import logging
import os
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import structlog
from xdist.remote import Producer
from xdist.scheduler import WorkStealingScheduling

from support.examples import register_profiles

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 << 30
_SHARES: Final = 3
_SHARE: Final = "BATCHKILN_TESTS_SHARE"  # for all processes of a run: the number of today's share

register_profiles()
# Commands are started by the hundred, and each worker reads every test: without bytecode all would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A queue waits for the disk at each commit. What tests write is gone afterwards, so memory serves, where there is room.
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
gc.disable()  # until everything is imported


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all` and `--cpu-times`."""
    parser.addoption("--all", action="store_true", help="leave out nothing, also in a run of the whole suite")
    parser.addoption(
        "--cpu-times", type=Path, help="add a line to this file for each test: its seconds of CPU, its name"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with its fixtures and the processes that it waited for; others may have the cores meanwhile."""
    path: str | None = item.config.getoption("cpu_times")  # a text, which xdist can send to its workers
    before = sum(os.times()[:4])
    result = yield
    if path is not None:
        with Path(path).open("a") as file:
            file.write(f"{sum(os.times()[:4]) - before:8.2f} {item.nodeid}\n")
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkStealingScheduling | None:
    """Give each worker an equal share; one that is done steals from the end of the longest. `--dist` may differ."""
    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(autouse=True)
def _logging_of_each_test() -> Iterator[None]:
    """Undo what a test configured of logging: a command called within the test configures it for the process."""
    handlers, level = logging.root.handlers[:], logging.root.level
    was_configured, config = structlog.is_configured(), structlog.get_config()
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    if was_configured:
        structlog.configure(**config)
    else:
        structlog.reset_defaults()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal what takes long to the beginning of each worker's share: at the end, one worker would be at it alone."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    left_out = _left_out(items)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    total = len(items)
    items.clear()
    for number in range(workers):
        share_of_long = long[number::workers]
        size = (total - len(items)) // (workers - number)  # as the scheduler divides them
        rest = max(0, size - len(share_of_long))
        items += [*share_of_long, *others[:rest]]
        del others[:rest]


def _left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return two thirds of the tests that take turns: those that take long, and on PostgreSQL what SQLite has as well.

    Three cases of one test, one after the other, have their turns on three days.
    """
    if _SHARE not in os.environ:
        return []
    share, cases, left_out = int(os.environ[_SHARE]), Counter[str](), []
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        is_of_both_stores = item.get_closest_marker("postgres") and "postgres" in values
        if item.get_closest_marker("long") or is_of_both_stores:
            test = item.nodeid.partition("[")[0]
            if (zlib.crc32(test.encode()) + cases[test]) % _SHARES != share:
                left_out.append(item)
            cases[test] += 1
    return left_out


def pytest_report_header() -> str | None:
    """Say what is left out."""
    if _SHARE not in os.environ:
        return None
    return "tests that take long, and those that pass on SQLite too: a third, another one each day; --all takes all"


def pytest_collection_finish() -> None:
    """Never look for garbage again among what was imported and collected: some tests collect it a hundred times."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Name what all processes of this run share, and keep them out of the person's own folders.

    Whoever needs the PostgreSQL server first starts it. Journals of attempts and tokens go to a folder of the run. Only
    a run of the whole suite leaves something out.
    """
    if "BATCHKILN_TESTS_POSTGRES" not in os.environ:
        is_narrowed = config.option.markexpr or config.option.keyword or config.getoption("lf", default=False)
        is_whole = config.args_source is config.ArgsSource.TESTPATHS and not is_narrowed
        if is_whole and not config.getoption("all"):
            os.environ[_SHARE] = str(datetime.now(UTC).toordinal() % _SHARES)
        room = os.environ.get("PYTEST_DEBUG_TEMPROOT")
        os.environ["BATCHKILN_TESTS_POSTGRES"] = tempfile.mkdtemp(prefix="batchkiln-pg-", dir=room)
        os.environ["BATCHKILN_TESTS_BEGUN_BY"] = str(os.getpid())
        os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="batchkiln-state-", dir=room)
        os.environ["XDG_CACHE_HOME"] = str(Path(os.environ["XDG_STATE_HOME"], "cache"))


def pytest_unconfigure() -> None:
    """Remove the run's folders; a server that somebody needed has a watcher of its own, which removes its folder."""
    if os.environ.get("BATCHKILN_TESTS_BEGUN_BY") == str(os.getpid()):
        shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)
        with suppress(OSError):
            Path(os.environ["BATCHKILN_TESTS_POSTGRES"]).rmdir()
