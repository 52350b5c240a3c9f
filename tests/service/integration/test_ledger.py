"""Credits as a client meets them: the balance, the reserve, the refund, and the budget of a day."""

import pytest

from batchkiln_service import Limits
from batchkiln_service.db.credits import audit

from .service_world import CLIP, World, WorldMaker, image_with


async def test_the_balance_is_what_is_left_to_spend(world: World) -> None:
    """What an active generation holds is not among it. Service rule 3.1."""
    before = await world.balance()
    created = await world.create(CLIP)

    assert (before, created.body["status"]) == (10_000, "pending")
    assert await world.balance() == 10_000 - 20


async def test_a_balance_is_of_the_account_not_of_the_key(world: World) -> None:
    """All keys of an account spend from one purse, and other accounts have their own. Service section 8."""
    await world.create(CLIP)

    balances = [
        (await world.send("GET", "/credits/balance", key=key)).body["balance"]
        for key in ("key-one-of-main", "key-two-of-main", "key-of-other")
    ]

    assert balances == [10_000 - 20, 10_000 - 20, 1_000_000]


@pytest.mark.parametrize("prompt", ["[fail]", "[cancel]", "A red fox"])
async def test_every_end_counts_toward_the_days_budget(make_world: WorldMaker, prompt: str) -> None:
    """Verified failures, too; the next day has a budget of its own. Service section 8."""
    world = await make_world(limits=Limits(credits_per_day=3))
    await world.finish(await world.create(image_with(prompt=prompt)))

    refused = await world.create()
    world.clock.advance(refused.retry_after)

    assert (refused.status, refused.code) == (429, "credit_budget_exhausted")
    assert (await world.create()).status == 202


async def test_a_budget_can_be_spent_to_the_last_credit(make_world: WorldMaker) -> None:
    """What just fits is accepted. Service section 8."""
    world = await make_world(limits=Limits(credits_per_day=2))

    assert (await world.create()).status == 202


async def test_the_books_are_sound_over_a_restart(world: World) -> None:
    """Ends that nobody watched are settled once, whenever somebody looks. Service rule 3.1."""
    for prompt in ("A red fox", "[fail]", "[cancel]"):
        await world.create(image_with(prompt=prompt))
        await world.service.idle()
        await world.stop()
        world.clock.advance(600)
        await world.start()

    assert await world.balance() == 10_000 - 2 - 2
    assert await world.service._run(audit) == []
    rows = await world.service.query("SELECT kind FROM transfers WHERE account = 'main' ORDER BY id")
    assert [row["kind"] for row in rows] == ["purchase", "reserve", "charge", "reserve", "refund", "reserve", "charge"]
