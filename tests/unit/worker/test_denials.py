"""Images that the service takes and then denies, and an account on which none has ever worked."""

import pytest

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.queue_types import Circumstances
from batchkiln.core.responses import ErrorInfo, NoResponse, RefusalKind, Refused, TicketRefused
from batchkiln.core.states import ItemState
from batchkiln.store.misunderstood import ask_again, forget_other_circumstances, record_misunderstood
from batchkiln.worker.run_state import RunState
from support.worker_world import World

GONE = Refused(RefusalKind.ASSET_GONE, ErrorInfo("asset_not_found", "no such asset"))
DENIALS = [
    ("upload", Refused(RefusalKind.INVALID, ErrorInfo("E1", "unknown field"))),
    ("completion", Refused(RefusalKind.INVALID, ErrorInfo("http_400", "no such asset"))),
    ("completion", GONE),
    ("completion", NoResponse("the address does not answer like this API", 404)),
    ("put", TicketRefused("the storage answered 403")),
    ("quote", GONE),
    ("create", GONE),
]


def deny(world: World, kind: str, reply: object) -> None:
    """Deny each image at this request."""
    service = world.service
    completed = len(service.puts)

    def rule(asked: str, _account: str) -> object:
        nonlocal completed
        is_completion = asked == "upload" and len(service.puts) > completed
        completed = len(service.puts) if is_completion else completed
        if kind in {"quote", "create"}:
            bodies = service.quotes if asked == "quote" else [create.body for create in service.creates]
            return reply if asked == kind and b"https://assets/" in bodies[-1] else None
        return reply if ("completion" if is_completion else asked) == kind else None

    service.rule = rule


def enqueue(world: World) -> None:
    """Queue two items with an image of their own, and one without."""
    for name in ("fox", "owl"):
        world.enqueue(name, inputs=(world.inputs.put(name, name.encode()),))
    world.enqueue("text", cost_credits=20, job="other")


@pytest.mark.parametrize(("kind", "reply"), DENIALS)
async def test_images_that_never_worked_rest_after_two_denials(world: World, kind: str, reply: object) -> None:
    """Law 10: the day's upload files are not spent on what is not understood; texts go on, and a person is told."""
    deny(world, kind, reply)
    enqueue(world)

    await world.run()

    assert world.state("text") is ItemState.DONE
    assert {world.state(name) for name in ("fox", "owl")} == {ItemState.QUEUED}
    assert world.one("SELECT max(upload_files) FROM account_day") <= 4
    (told,) = world.rows("SELECT * FROM misunderstood")
    assert told["call"] == ("upload" if kind == "upload" else "completion")
    assert told["remedy"].startswith("replies: {fields: ")


async def test_upload_link_that_expired_meanwhile_is_no_denial(world: World) -> None:
    """A slow line is no reply that a person has to look at: a fresh link is asked for (Service section 4)."""
    world.service.latencies["put"] = 155.0
    world.service.say("put", *[TicketRefused("the storage answered 403")] * 4)
    enqueue(world)

    await world.run()

    assert world.rows("SELECT * FROM misunderstood") == []
    assert world.states() == {"done": 3}


@pytest.mark.parametrize(("kind", "reply"), DENIALS)
async def test_rest_after_denials_outlasts_a_restart_and_ends_when_asked_again(
    world: World, kind: str, reply: object
) -> None:
    """A restart spends nothing more; once a person asks again, all items are made."""
    deny(world, kind, reply)
    enqueue(world)
    await world.run()
    files = len(world.service.puts)

    world.restart(after_seconds=3600)
    await world.run()
    assert len(world.service.puts) == files
    world.service.rule = None
    world.write(ask_again)
    await world.run()

    assert world.states() == {"done": 3}
    assert world.one("SELECT count(*) FROM misunderstood") == 0


@pytest.mark.parametrize("kind", ["quote", "create"])
async def test_assets_that_expire_where_images_work_are_uploaded_again(world: World, kind: str) -> None:
    """Service rule 2.2.5: two denials of an account whose images work are only what they say."""
    world.enqueue("before", job="before", inputs=(world.inputs.put("before.png", b"before"),))
    await world.run()
    world.service.say(kind, GONE, GONE)
    world.enqueue("fox", cost_credits=20, inputs=(world.inputs.put("fox", b"fox"),))

    await world.run()

    assert world.states() == {"done": 2}
    assert world.one("SELECT count(*) FROM misunderstood") == 0


async def test_text_that_is_refused_in_words_of_an_asset_rests_no_upload(world: World) -> None:
    """What has no image says nothing about uploads."""
    world.service.say("create", GONE, GONE)
    world.enqueue("text")

    await world.run()

    assert world.states() == {"done": 1}
    assert world.one("SELECT count(*) FROM misunderstood") == 0


async def test_runs_that_end_before_a_second_denial_spend_no_more_files(world: World) -> None:
    """Law 10: a restart forgets how often an upload was denied, but not what the day has spent."""
    deny(world, "completion", GONE)
    world.enqueue("fox", inputs=(world.inputs.put("fox", b"fox"),))

    for _ in range(5):
        control, before = RunState(), len(world.service.requests)

        def look(control: RunState = control, before: int = before) -> None:
            if sum(request.kind == "upload" for request in world.service.requests[before:]) > 1:
                control.stop()

        await world.run_watched(look, control)
        world.restart(after_seconds=600)

    assert len(world.service.puts) == 3
    assert world.one("SELECT call FROM misunderstood") == "completion"


def test_description_that_could_not_be_read_is_no_other_one(world: World) -> None:
    """Law 10: what rests is not asked again because the service's description could be read the next time."""
    world.connection.execute("INSERT INTO account (profile, name) VALUES ('test', 'main')")
    entry = Misunderstood(Call.UPLOAD, world.clock.instant, "has no upload_url", "{}", 200)
    world.write(lambda queue: record_misunderstood(queue, 1, entry, Circumstances("digest")))
    left = []

    for description in ("one", None, "one", "another"):
        now = Circumstances("digest", description)
        world.write(lambda queue, now=now: forget_other_circumstances(queue, 1, now))
        left.append(world.one("SELECT count(*) FROM misunderstood"))

    assert left == [1, 1, 1, 0]
