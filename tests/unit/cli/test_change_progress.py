"""What `cancel` and `retry` print while they change many items."""

import pytest

from batchkiln.cli.change_progress import ChangeProgress


def test_a_change_of_many_items_tells_its_rate_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A line is printed after two seconds, and none for the last items."""
    seconds = iter([100.0, 101.0, 104.0, 105.0, 108.0])
    progress = ChangeProgress(40_000, lambda: next(seconds))

    for _ in range(4):
        progress(10_000)

    assert capsys.readouterr().err == "20,000 of 40,000 items, 5,000 a second, 4 s left\n"
