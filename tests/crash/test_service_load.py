"""SIGKILL in the middle of a load of creates: a real process, real time, few kills but honest ones."""

from pathlib import Path

import pytest

from crash.service_load import Proof


@pytest.mark.long
async def test_service_killed_under_load_keeps_its_word(tmp_path: Path) -> None:
    """Whatever was accepted replays to its generation, the ledger balances. Service rules 3.1, 4.2 and 4.5."""
    proof = Proof(tmp_path, seed=7)

    await proof.run(kills=4)

    assert proof.violations == []
    assert len(proof.accepted) > 50  # the kills met a service at work
