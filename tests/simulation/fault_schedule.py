"""What befalls a world at its moments: kills, outages, a revoked key, somebody else on the account, and the calm."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from batchkiln.rehearsal.nodes import as_node
from batchkiln_service import open_account_admin
from batchkiln_service.db.keys import digest_of

from .plan import Intervention, Outage, QueueCopy, Restore

if TYPE_CHECKING:
    from .simulated_world import World

STRANGER: Final = "stranger"
TOPPED_UP_CREDITS: Final = 1_000_000
STRANGE_PROMPT: Final = "somebody else's picture"
_WISH: Final = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "prompt": STRANGE_PROMPT,
    "parameters": {"resolution": "512x512"},
}


def fates_of(world: "World") -> "Iterator[Any]":
    """Return the coroutines of all that is to happen."""
    plan = world.plan
    if plan.calm_at:
        yield _at(plan.calm_at, partial(_calm, world))
    for moment in plan.kills:
        yield _at(moment, partial(_kill, world))
    for copy in plan.copies:
        yield _at(copy.moment, partial(_copy, world, copy))
    for restore in plan.restores:
        yield _at(restore.moment, partial(_restore, world, restore))
    for intervention in plan.interventions:
        yield _at(intervention.moment, partial(_intervene, world, intervention))
    for outage in plan.outages:
        yield _at(outage.moment, partial(_out, world, outage))
    if plan.revoked_at is not None:
        yield _at(plan.revoked_at, partial(_revoke, world))
    if plan.topped_up_at is not None:
        yield _at(plan.topped_up_at, partial(_top_up, world))
    if plan.stranger_until:
        yield _at(0.0, partial(_meet_stranger, world))


async def _at(moment: float, act: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(moment)
    await act()


async def _calm(world: "World") -> None:
    if world.service is not None:
        world.service.faults.clear()


async def _kill(world: "World") -> None:
    world.kill_program()


async def _copy(world: "World", copy: QueueCopy) -> None:
    world.copies.expect(copy.stage)


async def _restore(world: "World", restore: Restore) -> None:
    world.restore(restore)


async def _intervene(world: "World", intervention: Intervention) -> None:
    with as_node("person"):
        world.intervene(intervention.kind)


async def _out(world: "World", outage: Outage) -> None:
    if world.service is None:
        return
    await world.kill_service()
    await asyncio.sleep(outage.seconds)
    await world.start_service()


async def _revoke(world: "World") -> None:
    """Make a new key for the first account and revoke its first one; the program is told when it starts again."""
    account = world.plan.accounts[0]
    service = await world.running_service()
    with open_account_admin(service.config) as desk:
        first = min(desk.list(account), key=lambda key: key.created_at_ms)
        (world.program_folder / "new-key").write_text(desk.create(account).secret)
        desk.revoke(first.id)
    world.note("a person", f"revokes the first API key of {account}")
    world.revoked_key = digest_of(service.api_key(account))
    world.write_config("{file: new-key}")


async def _top_up(world: "World") -> None:
    """Buy credits for the first account."""
    account = world.plan.accounts[0]
    service = await world.running_service()
    with open_account_admin(service.config) as desk:
        desk.buy(account, TOPPED_UP_CREDITS)
    world.note("a person", f"buys credits for {account}")


async def _meet_stranger(world: "World") -> None:
    """Let somebody else use the first account with a key of their own, now and then, and by the rules."""
    service = await world.running_service()
    with open_account_admin(service.config) as desk:
        made = desk.create(world.plan.accounts[0])
    with as_node(STRANGER):
        await asyncio.create_task(_strange(world, made.secret))


async def _strange(world: "World", key: str) -> None:
    chance = random.Random(f"stranger {world.plan.seed}")
    headers = {"Authorization": f"Bearer {key}"}
    base_url = "http://service/api/v1"
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector("service"), headers=headers) as session:
        while loop.time() < world.plan.stranger_until:
            await asyncio.sleep(chance.uniform(60, 3600))
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                names = {"Idempotency-Key": chance.randbytes(16).hex()}
                async with session.post(f"{base_url}/images", json=_WISH, headers=names) as reply:
                    await reply.read()
