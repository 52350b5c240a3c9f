"""Quotes and uploads are made ahead, within the rate limits, and charge nothing."""

from datetime import timedelta
from pathlib import Path

import pytest

from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import (
    AccountBlocked,
    AccountProblem,
    EdgeBlocked,
    ErrorInfo,
    RefusalKind,
    Refused,
    Throttled,
    TicketRefused,
    Unavailable,
)
from batchkiln.core.states import ItemState
from batchkiln.core.waits import WaitReason
from batchkiln.worker.backoffs import Backoff, Backoffs
from batchkiln.worker.loop import next_due
from support.builders import NO
from support.fake_service import Lost
from support.worker_world import World

TROUBLES = [Lost.REPLY, Lost.REQUEST, Unavailable(None, NO), Throttled(timedelta(minutes=5), NO), EdgeBlocked()]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_of_a_quote_is_waited_out(world: World, trouble: object) -> None:
    """A quote without an answer is asked again; nothing is sent before (Law 6)."""
    world.service.say("quote", trouble)
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert len(world.service.creates) == 1


async def test_one_quote_serves_all_alike(world: World) -> None:
    """Items of one price are quoted once."""
    world.enqueue("a", "b", "c")

    await world.run()

    assert len(world.service.quotes) == 1
    assert world.states() == {"done": 3}


async def test_refused_quote_rejects_the_item(world: World) -> None:
    """What cannot be quoted is rejected before it is sent; others of its kind get their own answer."""
    world.service.say("quote", Refused(RefusalKind.INVALID, NO))
    first, second = world.enqueue("first", "second")

    await world.run()

    assert (world.state(first), world.state(second)) == (ItemState.REJECTED, ItemState.DONE)
    assert world.money() == (0, 10, 0)


async def test_recipe_refused_again_and_again_is_rejected_whole(world: World) -> None:
    """A recipe whose quote is refused three times is rejected with all its items."""
    world.service.say("quote", *[Refused(RefusalKind.INVALID, NO)] * 99)
    world.enqueue(*(f"item-{n}" for n in range(20)))

    await world.run()

    assert world.states() == {"rejected": 20}
    assert len(world.service.quotes) == 3


async def test_blocked_account_at_a_quote_ends_the_run(world: World) -> None:
    """A refused key found by a quote leaves the queue as it is."""
    world.service.say("quote", AccountBlocked(AccountProblem.KEY_REFUSED, NO))
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.QUEUED
    assert 1 in world.control.blocked


async def test_refused_account_prepares_nothing_more(world: World) -> None:
    """An upload under way when the account is refused is not completed, and the run ends."""
    world.service.latencies = {"create": 1.0, "put": 20.0}
    world.service.say("create", AccountBlocked(AccountProblem.KEY_REFUSED, NO))
    world.enqueue("a")
    world.enqueue("b", inputs=(world.inputs.put("owl.png", b"owl"),))

    await world.run()

    assert [request.kind for request in world.service.requests].count("upload") == 1
    assert world.states() == {"queued": 2}


async def test_account_without_a_key_begins_nothing(world: World) -> None:
    """It is driven only to finish its active items; the run continues for other accounts."""
    world.keys["main"] = ()
    world.enqueue("a")

    await world.run()

    assert world.states() == {"queued": 1}
    assert world.service.requests == []
    assert (await next_due(world.workers[0])).reason is WaitReason.NO_KEY


async def test_image_is_uploaded_once_for_all_items(world: World) -> None:
    """One upload serves every item that uses the image."""
    owl = world.inputs.put("owl.png", b"owl")
    world.enqueue("a", "b", "c", inputs=(owl,))

    await world.run()

    assert world.states() == {"done": 3}
    assert sum(request.kind == "upload" for request in world.service.requests) == 2
    assert world.one("SELECT upload_bytes FROM account_day") == 3


@pytest.mark.parametrize("kind", ["upload", "put"])
@pytest.mark.parametrize("trouble", [Lost.REPLY, Lost.REQUEST])
async def test_lost_upload_is_made_again(world: World, kind: str, trouble: Lost) -> None:
    """An upload that broke off is begun again."""
    owl = world.inputs.put("owl.png", b"owl")
    world.service.say(kind, trouble)
    (item,) = world.enqueue(inputs=(owl,))

    await world.run()

    assert world.state(item) is ItemState.DONE


async def test_refused_ticket_is_asked_again(world: World) -> None:
    """An upload link that expired is replaced by a new one."""
    owl = world.inputs.put("owl.png", b"owl")
    world.service.say("put", TicketRefused("expired"))
    (item,) = world.enqueue(inputs=(owl,))

    await world.run()

    assert world.state(item) is ItemState.DONE


async def upload_one(world: World) -> None:
    """Have an image uploaded and used, so that the account is known to understand uploads."""
    world.enqueue("before", job="before", inputs=(world.inputs.put("before.png", b"before"),))
    await world.run()
    assert world.state("before") is ItemState.DONE


async def test_images_are_refused_for_good_only_after_several_refusals(world: World) -> None:
    """Other troubles between do not count: a lost reply says nothing about the image."""
    owl = world.inputs.put("owl.png", b"owl")
    refused = Refused(RefusalKind.INVALID, NO)
    world.service.say("put", Lost.REQUEST, Lost.REQUEST, Lost.REQUEST)
    await upload_one(world)
    world.service.say("upload", refused, refused)
    (item,) = world.enqueue(inputs=(owl,))

    await world.run()

    assert world.state(item) is ItemState.DONE


async def test_images_that_are_refused_again_and_again_reject_the_item(world: World) -> None:
    """Uploads would otherwise go on for ever; nothing is charged."""
    await upload_one(world)
    owl = world.inputs.put("owl.png", b"owl")
    world.service.say("upload", *[Refused(RefusalKind.INVALID, NO)] * 3)
    (item,) = world.enqueue(inputs=(owl,))

    await world.run()

    assert world.state(item) is ItemState.REJECTED
    assert world.one("SELECT sum(reserved + charged) FROM job WHERE name <> 'before'") == 0


async def test_asset_that_is_gone_is_uploaded_again(world: World) -> None:
    """A create refused for its asset is made again with a new upload, and not charged. Service rule 2.2.5."""
    owl = world.inputs.put("owl.png", b"owl")
    world.service.say("create", Refused(RefusalKind.ASSET_GONE, NO))
    (item,) = world.enqueue(inputs=(owl,))

    await world.run()

    assert world.attempts(item) == ["refused", "succeeded"]
    assert sum(request.kind == "upload" for request in world.service.requests) == 4
    assert world.money() == (0, 10, 0)


async def test_changed_image_is_held(world: World) -> None:
    """An image that is no longer what the manifest was accepted with waits for a person."""
    owl = world.inputs.put("owl.png", b"owl")
    (item,) = world.enqueue(inputs=(owl,))
    world.inputs.put("owl.png", b"another owl")

    await world.run()

    assert (world.state(item), world.error(item)) == (ItemState.HELD, "input_lost")
    assert world.service.creates == []


async def test_uploads_that_wait_for_the_day_do_not_hold_up_texts(world: World) -> None:
    """The slot is kept busy: items without images go on while the day's uploads are used up."""
    world.connection.execute("INSERT INTO account (profile, name) VALUES ('test', 'main')")
    world.connection.execute(
        "INSERT INTO account_day (account_id, day_start_at, upload_files) VALUES (1, ?, 100)",
        (int(world.day.start_of(world.clock.instant).timestamp() * 1000),),
    )
    owl = world.inputs.put("owl.png", b"owl")
    world.enqueue("picture", inputs=(owl,))
    world.enqueue("text", cost_credits=20)
    done_at: list[float] = []

    def look() -> None:
        if world.state("text") is ItemState.DONE and not done_at:
            done_at.append(world.clock.monotonic)

    await world.run_watched(look)

    assert done_at[0] < 600.0
    assert world.states() == {"done": 2}


async def test_completing_an_upload_keeps_the_minute(tmp_path: Path) -> None:
    """Law 5: creates that leave while the bytes travel take no place that the upload's second request needs."""
    world = World(tmp_path, limits=Limits(creates_per_minute=6, poll_interval_seconds=1.0))
    world.service.duration_seconds = 0.5
    world.service.latencies["put"] = 20.0
    world.enqueue(*(f"text-{n}" for n in range(40)))
    for n in range(4):
        image = world.inputs.put(f"{n}.png", bytes([n + 1]))
        world.enqueue(f"picture-{n}", inputs=(image,), cost_credits=20 + n)

    await world.run()

    assert world.states() == {"done": 44}
    assert world.service.violations == []
    world.close()


async def test_limit_of_uploads_alone_lets_creates_go_on(world: World) -> None:
    """A 429 that speaks of uploads postpones uploads; the slot keeps working. Service section 8."""
    owl = world.inputs.put("owl.png", b"owl")
    daily = ErrorInfo("upload_limit", "100 files were uploaded today")
    world.service.say("upload", Throttled(timedelta(hours=2), daily))
    (clip,) = world.enqueue("clip", inputs=(owl,))
    (text,) = world.enqueue("text")
    began_at = world.clock.instant

    await world.run_until(text, ItemState.DONE)

    assert world.clock.instant - began_at < timedelta(hours=1)
    assert world.state(clip) is ItemState.QUEUED


async def test_image_beyond_any_day_is_rejected(tmp_path: Path) -> None:
    """An upload that no day allows is said at once, and not postponed for ever (Law 9)."""
    world = World(tmp_path, limits=Limits(upload_bytes_per_day=2))
    owl = world.inputs.put("owl.png", b"owl")
    (item,) = world.enqueue(inputs=(owl,))

    await world.run()

    assert (world.state(item), world.error(item)) == (ItemState.REJECTED, "over_upload_limit")
    assert world.service.creates == []
    world.close()


async def test_day_takes_no_more_files_than_it_allows(tmp_path: Path) -> None:
    """Law 5: images that wait together are announced only as far as the day has room for them. Service section 8."""
    world = World(tmp_path, limits=Limits(upload_files_per_day=2))
    images = [world.inputs.put(f"{n}.png", bytes([n + 1])) for n in range(3)]
    items = [world.enqueue(f"picture-{n}", inputs=(image,))[0] for n, image in enumerate(images)]

    await world.run_until(items[1], ItemState.DONE)

    assert world.service.violations == []
    assert world.one("SELECT max(upload_files) FROM account_day") == 2
    world.close()


def test_equal_images_wait_together() -> None:
    """One of them may come into sight after the other has failed: due at once, it would be looked at for ever."""
    failed, other = Backoff(failures=3), Backoff()
    backoffs = Backoffs(inputs={24: failed, 30: other})

    backoffs.share(24, alike=(1, 24))
    backoffs.share(33, alike=(33, 34))

    assert backoffs.inputs == {24: failed, 1: failed, 30: other}
