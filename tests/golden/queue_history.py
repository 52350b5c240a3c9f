"""The life of the golden queue: real scheduler, real store, fake service, stopped with an item in every state."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from batchkiln.core.job import InputFile
from batchkiln.core.responses import ErrorInfo, GenerationStatus, IdempotencyConflict, RefusalKind, Refused
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.operations import cancel, pause
from batchkiln.store.sql import query
from batchkiln.worker.run_state import RunState
from support.fake_service import Lost
from support.worker_world import World

from .files import new_world

QUEUE_UID: Final = "0123456789abcdef0123456789abcdef"
_NO: Final = ErrorInfo("invalid_parameter", "the service did not like it")


async def told(folder: Path) -> World:
    """Live through it all, and return the world after the last kill, its queue closed."""
    world = new_world(folder)
    world.connection.execute("UPDATE meta SET value = ? WHERE key = 'queue_uid'", (QUEUE_UID,))  # drawn, as a rule
    await _ends(world)
    await _holds(world)
    await _loses_its_key(world)
    await _dies_while_downloading(world)
    await _dies_on_the_way(world)
    _waits(world)
    world.close()
    return world


async def _ends(world: World) -> None:
    """One item for each way to end."""
    await _live(world, "done")
    await _live(world, "second-try", GenerationStatus.FAILED, GenerationStatus.SUCCESS)
    await _live(world, "failed", GenerationStatus.FAILED, recipe_fields={"attempts": 1})
    await _live(world, "canceled-there", GenerationStatus.CANCELED)
    await _live(world, "expired", GenerationStatus.EXPIRED)
    await _live(world, "over-cap", recipe_fields={"max_cost_credits": 5})
    world.service.say("create", Refused(RefusalKind.INVALID, _NO))
    await _live(world, "rejected")
    await _live(world, "with-image", inputs=(world.inputs.put("owl.png", b"owl"),))
    _enqueue(world, "canceled")
    cancel(world.connection, "guide", ["canceled"], to_milliseconds(world.clock.instant))


LONG: Final = 20  # replies: more than a program waits for before it asks a person


async def _holds(world: World) -> None:
    """One item for each reason to wait for a person."""
    conflict = IdempotencyConflict(ErrorInfo("idempotency_conflict", "the same key with another body"))
    world.service.say("create", *[conflict] * LONG)
    await _live(world, "held-conflict")
    world.service.scripts.clear()
    dearer = Refused(RefusalKind.OVER_QUOTE, ErrorInfo("over_quote", "dearer"))
    world.service.say("create", Lost.REQUEST, *[dearer] * LONG)
    await _live(world, "held-in-doubt")
    world.service.scripts.clear()
    image = world.inputs.put("fox.png", b"fox")
    world.inputs.files[image.path] = b"changed"
    await _live(world, "held-image", inputs=(image,))
    _enqueue(world, "held-lost")
    await world.run_watched(lambda: _forget(world, "a held-lost"))


async def _loses_its_key(world: World) -> None:
    """The reply to a create is lost, and then the API key that made it."""
    world.service.rule = lambda kind, account: Lost.REPLY if (kind, account) == ("create", "fourth") else None
    _enqueue(world, "held-key", job="fourth", accounts=("fourth",))
    await _killed_when(world, lambda: "outcome_unknown" in world.kinds("held-key"))
    world.keys["fourth"] = ("key-2",)
    world.service.rule = None
    await world.run()


async def _dies_while_downloading(world: World) -> None:
    """One of two paid files is saved."""
    _enqueue(world, "two-views", prompt="two views of a fox")
    await _killed_when(world, lambda: world.one("SELECT count(*) FROM output WHERE path LIKE '%two-views%'") == 1)


async def _dies_on_the_way(world: World) -> None:
    """Killed with one generation known, one that only the service knows, and one that nobody made."""
    lost = {"second": Lost.REPLY, "third": Lost.REQUEST}
    world.service.rule = lambda kind, account: lost.get(account) if kind == "create" else None
    world.service.duration_seconds = 300.0
    _enqueue(world, "active", "queued-behind")
    _enqueue(world, "unknown-made", job="second", accounts=("second",), budget_credits_per_day=100)
    _enqueue(world, "unknown-unmade", job="third", accounts=("third",), budget_credits=100)
    on_the_way = ("unknown-made", "unknown-unmade")
    # The unfinished download is kept from ending meanwhile.
    world.service.links_refused = 1_000
    await _killed_when(
        world,
        lambda: (
            len(world.service.reads.get(_id_of(world, "active"), ())) > 1
            and all("outcome_unknown" in world.kinds(item) for item in on_the_way)
        ),
    )


def _waits(world: World) -> None:
    """Work that was never begun: priced and not yet priced, and of a job that pauses; and who drove the queue."""
    _enqueue(world, "queued-unquoted", cost_credits=37)
    _enqueue(world, "queued-image", inputs=(world.inputs.put("hare.png", b"hare"),), priority=5)
    _enqueue(world, "paused", job="later")
    pause(world.connection, "later", to_milliseconds(world.clock.instant))
    holder = {"pid": 1, "host": "studio", "command": "run", "now": to_milliseconds(world.clock.instant)}
    world.connection.execute(query("set_lease"), holder)


# --- how ---


async def _live(world: World, name: str, *outcomes: GenerationStatus, **fields: Any) -> None:  # noqa: ANN401
    """Enqueue one item and run until it cannot go on."""
    world.service.outcomes.extend(outcomes)
    _enqueue(world, name, **fields)
    await world.run()


def _enqueue(
    world: World,
    *names: str,
    job: str = "guide",
    prompt: str | None = None,
    inputs: tuple[InputFile, ...] = (),
    **fields: Any,  # noqa: ANN401  of the job
) -> None:
    if job == "guide":
        fields = {"description": "Birds and foxes", "budget_credits": 2000, "budget_credits_per_day": 900} | fields
    world.enqueue(*names, job=job, inputs=inputs, **fields)
    if prompt is not None:
        world.connection.execute("UPDATE item SET prompt = ? WHERE name = ?", (prompt, names[0]))


def _forget(world: World, prompt: str) -> None:
    for generation in world.service.generations.values():
        generation.is_forgotten |= json.loads(generation.create.body)["prompt"] == prompt


def _id_of(world: World, item: str) -> str:
    if world.state(item) is not ItemState.ACTIVE:
        return ""
    return str(world.one("SELECT generation_id FROM attempt JOIN item ON attempt_id = attempt.id WHERE name = ?", item))


class _Cut(Exception):
    pass


async def _killed_when(world: World, is_so: Callable[[], bool]) -> None:
    """Drive until something is so, and die in that instant; begin again on the same file."""
    world.control = RunState()

    def look() -> None:
        if is_so():
            world._die()
            raise _Cut

    try:
        await world.clock.run(world._drive(), each_turn=look)
    except _Cut:
        world.restart(after_seconds=60.0)
        return
    raise AssertionError("the run ended before")
