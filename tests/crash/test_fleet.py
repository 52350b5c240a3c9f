"""A round with worker processes on a real PostgreSQL; `tests/crash/fleet.py` plays more of them, and longer ones."""

from pathlib import Path

import pytest

from crash import fleet
from support import postgres


@pytest.mark.long
@pytest.mark.postgres
def test_killed_and_stopped_workers_pay_nothing_twice_and_lose_nothing(tmp_path: Path) -> None:
    """Law 2, Law 4, Law 5: three workers on six accounts, with kills, ends and stops; the books say each paid once."""
    postgres.require()

    counts, found = fleet.play(tmp_path, 18, workers=3, accounts=6, items=36, blows=6, pause_seconds=2.0)

    assert found == []
    assert counts["generations"] == 36
