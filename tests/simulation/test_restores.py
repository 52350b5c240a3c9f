"""A queue that is restored from an older copy, while several accounts work, pays nothing twice."""

from collections.abc import Iterator

import pytest

from .log_silencing import silence
from .restores import RESTORES, play_restores
from .simulated_world import RESTORED

FIXED_SEEDS = (0, 3, 7)
"""One, four and eight accounts; `sweep.py --short`, a part of CI, draws others."""
CLOCK_SEED = 2055
"""Eight accounts ask for the service's time right after a restore, when their address has no request left."""
SENT_SEED = 23118000002
"""A restored queue calls files staged whose objects were sent, and their local copies removed, in the lost records."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The dead of these worlds have nothing to say to who reads the tests."""
    with silence():
        yield


@pytest.mark.long
@pytest.mark.parametrize("seed", [*FIXED_SEEDS, CLOCK_SEED, SENT_SEED])
def test_older_copy_of_a_queue_pays_nothing_twice(seed: int) -> None:
    """Laws 2 and 5: with one to eight accounts; what the copy lacks is replayed by the account that sent it."""
    outcome = play_restores(seed)

    assert outcome.violations == ()
    assert outcome.died_at.count(RESTORED) == RESTORES
