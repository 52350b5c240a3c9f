"""A file that always comes without its end is accepted after enough equal downloads."""

from datetime import timedelta

import pytest

from batchkiln.core.polling import RETENTION
from batchkiln.worker.truncation import TruncatedFiles
from support.fake_clock import NOON

HOUR = 3600.0
OUTPUT = (1, 1)


@pytest.mark.parametrize(
    ("came", "is_accepted"),
    [
        ([(0.0, "a"), (2 * HOUR, "a"), (4 * HOUR, "a"), (6 * HOUR, "a")], True),
        ([(0.0, "a"), (1.0, "a"), (2.0, "a"), (6 * HOUR - 1, "a")], False),  # a server may cut for hours
        ([(0.0, "a"), (3 * HOUR, "a"), (9 * HOUR, "a")], False),
        ([(0.0, "a"), (1.0, "b"), (2.0, "b"), (3.0, "a"), (7 * HOUR, "a")], False),
        ([(0.0, "a"), (1.0, "a"), (2.0, "a"), (3.0, "a"), (7 * HOUR, "b")], False),  # the last one is there to be saved
        ([(0.0, "b"), (1.0, "a"), (2.0, "a"), (3.0, "a"), (7 * HOUR, "a")], True),
    ],
)
def test_the_same_bytes_often_and_for_long(came: list[tuple[float, str]], *, is_accepted: bool) -> None:
    """Many downloads within a short time are not enough, and neither are two that are far apart."""
    files = TruncatedFiles()
    for at, sha256 in came:
        files.count(OUTPUT, sha256, at)

    assert files.is_accepted(OUTPUT, created_at=NOON, now=NOON) is is_accepted


@pytest.mark.parametrize(
    ("hours_left", "came", "is_accepted"),
    [(1, "a", True), (3, "a", False), (3, "abc", False), (23, "abcd", True), (25, "abcd", False)],
)
def test_last_day_believes_anything(hours_left: int, came: str, *, is_accepted: bool) -> None:
    """On the last day of retention a few different downloads suffice, and at the very end a single one."""
    files = TruncatedFiles()
    for at, sha256 in enumerate(came):
        files.count(OUTPUT, sha256, float(at))

    now = NOON + RETENTION - timedelta(hours=hours_left)
    assert files.is_accepted(OUTPUT, created_at=NOON, now=now) is is_accepted
