"""A kill at any step: the next process goes on, and the service's ledger shows that nothing was paid twice."""

from pathlib import Path
from random import Random

import pytest

from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import EdgeBlocked, GenerationStatus, NotFound, Throttled, Unavailable
from support.builders import NO
from support.fake_service import Lost
from support.worker_world import World

SEEDS = 80
_TROUBLES: dict[str, list[object]] = {
    "create": [Lost.REPLY, Lost.REQUEST, Unavailable(None, NO), Throttled(None, NO), EdgeBlocked()],
    "read": [Lost.REPLY, Unavailable(None, NO), Throttled(None, NO), NotFound(NO)],
    "quote": [Lost.REPLY, Unavailable(None, NO)],
    "upload": [Lost.REPLY, Lost.REQUEST],
    "put": [Lost.REPLY],
    "download": [Lost.REQUEST],
    "other": [Lost.REPLY],
}


async def _survive(world: World, random: Random) -> int:
    """Run with faults and kills until everything has ended; return how many processes that took."""
    names = [f"item-{n}" for n in range(random.randrange(1, 5))]
    picture = world.inputs.put("owl.png", b"owl")
    world.enqueue(*names, accounts=world.accounts)
    world.enqueue("picture", cost_credits=20, inputs=(picture,), accounts=world.accounts)
    world.service.duration_seconds = random.choice([0.0, 1.0, 25.0])
    world.service.outcomes.extend(random.choices([GenerationStatus.SUCCESS, GenerationStatus.FAILED], k=2))

    def rule(kind: str, account: str) -> object:
        assert account in world.accounts
        return random.choice(_TROUBLES[kind]) if random.random() < 0.08 else None

    world.service.rule = rule
    for process in range(1, 200):
        if await world.run_killed(random.randrange(400)):
            return process
        world.restart(after_seconds=random.choice([0.0, 0.5, 100.0]))
    raise AssertionError("the work is not over after 200 processes")


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
async def test_nothing_is_paid_twice_whatever_dies(tmp_path: Path, block: int) -> None:
    """Laws 1 to 5: killed at random steps, every item ends done, paid once, within all limits."""
    for seed in range(block, SEEDS, 10):
        random = Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(folder, accounts=random.choice([("a",), ("a", "b")]), limits=Limits(credits_per_day=200))

        await _survive(world, random)

        told = f"seed {seed}"
        assert world.states() == {"done": world.one("SELECT count(*) FROM item")}, told
        assert world.service.violations == [], told
        for (prompt,) in world.connection.execute("SELECT prompt FROM item"):
            assert world.service.charges_of(prompt) == 1, told
        reserved, charged, refunded = world.money()
        assert (reserved, charged) == (0, world.service.charged), told
        assert refunded == sum(g.cost for g in world.service.generations.values() if g.refunded), told
        assert len(world.outputs.files) == world.one("SELECT count(*) FROM output"), told
        world.close()
