"""SIGKILL of either side at random moments: real processes, real time, few but honest."""

from pathlib import Path

import pytest

from crash.process_harness import Ground, run_with_kills

IMAGES = [f"A lighthouse on rock {number}, sea mist" for number in range(1, 13)]
CLIPS = [f"A gull circles the mast of boat {number}" for number in range(1, 4)]


@pytest.mark.long
@pytest.mark.parametrize("target", ["run", "serve"])
def test_kills_cost_nothing_twice_and_lose_nothing(tmp_path: Path, target: str) -> None:
    """Law 2, Law 4, Law 5, Law 7: whichever side is killed, the service's own ledger shows a client without fault."""
    ground = Ground(tmp_path, IMAGES, CLIPS, scale=120.0)

    run_with_kills(ground, kills=4, target=target, seed=len(target), expected_seconds=5.0)

    assert ground.violations() == []
    assert ground.status()["finished"] is True
