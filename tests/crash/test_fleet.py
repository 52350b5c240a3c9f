"""A round with worker processes on a real PostgreSQL; `tests/crash/fleet.py` plays more of them, and larger ones."""

import pytest

from crash import fleet
from support import postgres


@pytest.mark.long
@pytest.mark.postgres
def test_a_fleet_that_meets_trouble_pays_nothing_twice_and_loses_nothing() -> None:
    """Law 2, Law 4, Law 5: three workers on twelve accounts; books, queue, journals, files and logs agree."""
    postgres.require()

    with postgres.reachable_folder() as folder:
        counts, found = fleet.play(folder, 3, fleet.Plan(accounts=12, items=36, blows=6, pause_seconds=1.0))

    assert found == []
    assert counts["generations"] == 36
