"""The Python interface on the embedded local service, in fast time."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

import batchkiln
from batchkiln import ItemState
from batchkiln.api.run import RunOptions
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.errors import InputError
from batchkiln.core.queue_types import Circumstances
from batchkiln.store.items import ItemSummary
from batchkiln.store.misunderstood import AskedAgain, record_misunderstood
from batchkiln.store.sqlite.file_database import SqliteDatabase

CONFIG: Final = {"profiles": {"local": {"time_scale": 600}}}
SMALL: Final[batchkiln.Defaults] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "parameters": {"resolution": "512x512"},
}
PATIENCE_SECONDS: Final = 120


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Nothing here waits for ever: what hangs is a failure. A timeout in a fixture would be of another task."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"it hangs: {PATIENCE_SECONDS} seconds are over")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def opened(folder: Path) -> AbstractAsyncContextManager[batchkiln.Queue]:
    return batchkiln.open_queue(folder / "queue.db", config=CONFIG, working_dir=folder)


async def charged(queue: batchkiln.Queue, job: str) -> int:
    return (await queue.status(job)).summary.credits.charged


async def price_of_one(queue: batchkiln.Queue) -> int:
    """Make one picture and tell what it cost."""
    await queue.enqueue_items(["A stone"], job="price", defaults=SMALL)
    await queue.run("price")
    return await charged(queue, "price")


async def test_run_ends_with_the_status_of_the_command(tmp_path: Path) -> None:
    """A failed item makes it 3, as the exit status of `batchkiln run` would be."""
    async with opened(tmp_path) as queue:
        items: list[object] = ["A fox", {"prompt": "An owl [fail]", "attempts": 1}]
        await queue.enqueue({"version": 1, "job": "foxes", "defaults": SMALL, "items": items})
        ending = await queue.run("foxes")

        states = [item.state async for item in queue.items("foxes")]

    assert ending.exit_status is batchkiln.ExitStatus.ITEMS_NOT_DONE
    assert states == [ItemState.DONE, ItemState.FAILED]


async def test_a_manifest_file_and_its_text_are_one_job(tmp_path: Path) -> None:
    """Path, text and mapping go through the same reader, and applying again adds nothing."""
    text = f"version: 1\njob: foxes\ndefaults: {SMALL}\nitems: [{{id: a, prompt: A fox}}, {{id: b, prompt: An owl}}]\n"
    (tmp_path / "foxes.yaml").write_text(text)

    async with opened(tmp_path) as queue:
        first = await queue.enqueue(tmp_path / "foxes.yaml")
        second = await queue.enqueue_text(text)
        with pytest.raises(batchkiln.InputError, match="enqueue_text"):
            await queue.enqueue(text)

    assert (first.report.new, second.report.new) == (2, 0)


async def test_second_driver_is_refused(tmp_path: Path) -> None:
    """One queue is driven once at a time; looking and enqueueing work beside it. Exit status 6."""
    async with opened(tmp_path) as queue, opened(tmp_path) as other:
        await queue.start(forever=True)

        with pytest.raises(batchkiln.QueueInUse) as refused:
            await other.start()
        with pytest.raises(batchkiln.QueueInUse):
            await queue.start()
        await other.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        view = await other.wait_job("foxes")

    assert refused.value.exit_status == 6
    assert view.summary.items[ItemState.DONE] == 1


async def test_two_starts_at_once_are_one_drive(tmp_path: Path) -> None:
    """The second is refused, and the first is still known: leaving ends it, and the queue is free afterwards."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        begun = await asyncio.gather(*(queue.start("foxes", forever=True) for _ in range(2)), return_exceptions=True)
        await queue.wait_job("foxes")
        stopped = await queue.stop()

    assert [type(outcome) for outcome in begun] == [type(None), batchkiln.QueueInUse]
    assert stopped is not None
    assert stopped.exit_status is batchkiln.ExitStatus.OK


async def test_a_stop_with_work_left_has_the_status_of_work_left(tmp_path: Path) -> None:
    """Nothing failed and nobody has to decide, so the status is not that of items that are not done."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items([f"Fox {number}" for number in range(6)], job="foxes", defaults=SMALL)
        await queue.start("foxes")
        stopped = await queue.stop()

    assert stopped is not None
    assert stopped.left > 0
    assert stopped.exit_status is batchkiln.ExitStatus.STOPPED_WITH_WORK_LEFT


@pytest.mark.parametrize("begin", ["start", "run"])
async def test_a_canceled_start_leaves_nothing_driven(begin: str, tmp_path: Path) -> None:
    """A cancellation while the lock is being taken ends the drive as well, and nobody is taken for its driver."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        beginning = asyncio.create_task(getattr(queue, begin)("foxes"))
        while not any(task.get_name() == "batchkiln-drive" for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait({beginning})

        assert beginning.cancelled()
        assert await queue.stop() is None
        with pytest.raises(batchkiln.NoDriver):
            await queue.wait_job("foxes")


@pytest.mark.parametrize("kind", ["attempt_recorded", "accepted", "outputs_ready"])
async def test_canceled_run_continues_where_it_was_and_pays_once(kind: str, tmp_path: Path) -> None:
    """Cancelling the caller's task in the middle is as safe as a crash (Law 2): each picture is charged once."""
    async with opened(tmp_path) as queue:
        one = await price_of_one(queue)
        await queue.enqueue_items(["A fox", "An owl"], job="birds", defaults=SMALL)
        with pytest.MonkeyPatch.context() as patch:
            reached, going = standstill(
                patch, queue, kind, after=await queue.reader.read(lambda reader: reader.events.last_id())
            )
            run = asyncio.create_task(queue.run("birds"))
            await reached.wait()
            run.cancel()
            going.set()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert not (await queue.status("birds")).summary.is_finished
        with pytest.raises(batchkiln.NoDriver):
            await queue.wait_job("birds")

        ending = await queue.run("birds")

        assert await charged(queue, "birds") == 2 * one
    assert ending.exit_status is batchkiln.ExitStatus.OK


def standstill(
    patch: pytest.MonkeyPatch, queue: batchkiln.Queue, kind: str, *, after: int
) -> tuple[asyncio.Event, asyncio.Event]:
    """Halt the drive once an event of this kind is on disk: return what tells so, and what lets it go on."""
    database = queue.writer._database
    reached, going, write = asyncio.Event(), asyncio.Event(), database.write

    async def halting(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401  as the original
        result = await write(*args, **kwargs)
        if any(event.kind == kind for event in await queue.reader.read(lambda reader: reader.events.after(after))):
            reached.set()
            await going.wait()
        return result

    patch.setattr(database, "write", halting)
    return reached, going


async def test_canceled_context_lets_go_of_the_queue(tmp_path: Path) -> None:
    """A cancellation inside the context ends the drive and frees the lock."""

    async def program() -> None:
        async with opened(tmp_path) as queue:
            await queue.start(forever=True)
            begun.set()
            await asyncio.Event().wait()

    begun = asyncio.Event()
    running = asyncio.create_task(program())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async with opened(tmp_path) as queue:
        assert (await queue.run()).exit_status is batchkiln.ExitStatus.OK


async def test_leaving_ends_the_drive_in_good_order(tmp_path: Path) -> None:
    """The lock is free afterwards, nobody is written down as driving, and the rest is done by the next drive."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox", "An owl"], job="birds", defaults=SMALL)
        await queue.start()
        await anext(aiter(queue.results("birds")))

    async with opened(tmp_path) as queue:
        lease = (await queue.overview()).lease
        ending = await queue.run()

    assert lease is None
    assert ending.exit_status is batchkiln.ExitStatus.OK


async def test_a_queue_that_was_left_says_so(tmp_path: Path) -> None:
    """It can be closed twice, but not used any more."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.close()

    await queue.close()
    for use in (queue.start(), queue.status("foxes"), queue.enqueue_items(["An owl"], job="owls", defaults=SMALL)):
        with pytest.raises(batchkiln.InputError, match="was closed"):
            await use


async def test_an_error_of_the_caller_is_what_is_raised(tmp_path: Path) -> None:
    """The drive ends, too, but what the caller met is told."""

    async def program() -> None:
        async with opened(tmp_path) as queue:
            await queue.start(forever=True)
            raise LookupError("the caller's own")

    with pytest.raises(LookupError):
        await program()


async def test_results_come_once_each_before_and_after(tmp_path: Path) -> None:
    """Those that had ended come first, those that end later follow, and a retried one comes again."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox", {"prompt": "x [fail]", "attempts": 1}], job="birds", defaults=SMALL)
        await queue.run()
        await queue.enqueue_items(
            ["A fox", {"prompt": "x [fail]", "attempts": 1}, "An owl"], job="birds", defaults=SMALL
        )
        seen: list[tuple[str, ItemState]] = []

        await queue.start("birds")
        async for item in queue.results("birds"):
            seen.append((item.name, item.state))
            if len(seen) == 2:
                await queue.retry("birds", ["item-2"])

    assert sorted(seen) == [
        ("item-1", ItemState.DONE),
        ("item-2", ItemState.FAILED),
        ("item-2", ItemState.FAILED),
        ("item-3", ItemState.DONE),
    ]


async def test_what_was_not_understood_is_asked_again(tmp_path: Path) -> None:
    """Law 10: `ask_again` does as the command, and says what it was; an account that is not known changes nothing."""
    entry = Misunderstood(Call.QUOTE, datetime(2026, 11, 21, tzinfo=UTC), "names no price", "{}", 200)
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.run()
        database = await SqliteDatabase.open_for_writing(Path(str(queue.app.queue)))
        await database.write(record_misunderstood, 1, entry, Circumstances("digest"))
        await database.close()

        with pytest.raises(InputError, match="local/main"):
            await queue.ask_again("local/mian")
        asked = await queue.ask_again("local/main")

        assert asked == (AskedAgain("local", "main", entry),)
        assert await queue.ask_again() == ()


async def test_events_come_from_now_on(tmp_path: Path) -> None:
    """Without `after`, only later events are yielded, in order, until the run ends."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.start()
        kinds = [event.kind async for event in queue.events()]
        again = [event.kind async for event in queue.events(after=0)]

        whole = [event.kind async for event in queue.events(after=0)]
        late = [event.kind async for event in queue.events()]

    assert kinds[-1] == "files_saved"
    assert (whole[: len(again)], late) == (again, [])
    assert repr(queue) == f"<Queue {tmp_path / 'queue.db'}, closed>"
    assert again[0] == "job_created"
    assert again[-len(kinds) :] == kinds


async def test_waiting_for_a_queue_that_nobody_drives_is_reported(tmp_path: Path) -> None:
    """Otherwise the wait would never end; the error names the command that continues the queue."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)

        with pytest.raises(batchkiln.NoDriver, match="`start`"):
            await queue.wait_job("foxes")
        with pytest.raises(batchkiln.NoDriver, match="queued"):
            await queue.wait_item("foxes", "item-1")
        assert [item async for item in queue.results("foxes")] == []


async def test_a_canceled_wait_leaves_the_drive_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `run` owns its drive."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        reached, going = standstill(monkeypatch, queue, "accepted", after=0)
        await queue.start()
        await reached.wait()
        waiting = asyncio.create_task(queue.wait_job("foxes"))
        for _ in range(2):  # behind the wait's own look, on the same connection
            await queue.status("foxes")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        going.set()
        ending = await queue.join()

    assert ending.exit_status is batchkiln.ExitStatus.OK


async def test_what_ends_the_drive_reaches_waiting_tasks(tmp_path: Path) -> None:
    """A folder that cannot be written is raised by the waits as well, and mended, the queue is driven again."""
    (tmp_path / "out").write_text("a file where the folder should be")
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.start(forever=True)
        with pytest.raises(batchkiln.InputError, match="Nothing was sent"):
            await queue.wait_job("foxes")
        with pytest.raises(batchkiln.InputError, match="Nothing was sent"):
            await queue.stop()
        (tmp_path / "out").unlink()
        ending = await queue.run()

    assert ending.exit_status is batchkiln.ExitStatus.OK


async def test_what_ended_the_drive_is_raised_once(tmp_path: Path) -> None:
    """Who has handled it is not told again on leaving; who has not is."""
    (tmp_path / "out").write_text("a file where the folder should be")
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        with pytest.raises(batchkiln.InputError, match="Nothing was sent"):
            await queue.run()

    async def careless() -> None:
        async with opened(tmp_path) as queue:
            await queue.start()
            assert queue._task is not None
            await asyncio.wait({queue._task})

    with pytest.raises(batchkiln.InputError, match="Nothing was sent"):
        await careless()


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"until": "tomorrow"}, "done, budget"),
        ({"until": batchkiln.Until(at=datetime(2030, 1, 1))}, "time zone"),  # noqa: DTZ001  that is the mistake
        ({"max_credits": -1}, "0 or more"),
    ],
)
async def test_invalid_options_are_refused(wishes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """Before anything is driven."""
    async with opened(tmp_path) as queue:
        with pytest.raises(batchkiln.InputError, match=reason):
            await queue.start(**wishes)


async def test_max_credits_of_nothing_spends_nothing(tmp_path: Path) -> None:
    """`max_credits` bounds one drive; work left is status 5."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        ending = await queue.run(max_credits=0)

        assert await charged(queue, "foxes") == 0
    assert ending.exit_status is batchkiln.ExitStatus.STOPPED_WITH_WORK_LEFT


async def test_pause_and_cancel_while_it_is_driven(tmp_path: Path) -> None:
    """Changes reach a drive at once, on a connection of their own."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items((f"A fox {number}" for number in range(50)), job="foxes", defaults=SMALL)
        await queue.start()
        assert await queue.pause("foxes")
        report = await queue.cancel("foxes")
        ending = await queue.join()

    assert report.canceled >= 48
    assert ending.left == 0


async def test_mistakes_of_items_name_their_index_and_field(tmp_path: Path) -> None:
    """All mistakes are told at once, each with the item as it was given; nothing is enqueued."""
    items: Any = [{"prompt": "A fox", "modle": "x"}, {"id": "b"}, {"id": "b", "prompt": "A fox"}, "A fox"]
    items += [{"id": "item-4", "prompt": "An owl"}]
    async with opened(tmp_path) as queue:
        with pytest.raises(batchkiln.InputError) as told:
            await queue.enqueue_items(items, job="foxes", defaults=SMALL)
        with pytest.raises(batchkiln.InputError) as told_by_plan:
            await queue.plan({"version": 1, "job": "foxes", "defaults": SMALL, "items": items})

        assert (await queue.overview()).jobs == ()
    first, second, third, fourth = told.value.mistakes
    assert (first.place, first.source_line) == ("items[0].modle", '{"prompt": "A fox", "modle": "x"}')
    assert (second.place, second.source_line) == ("items[1]", '{"id": "b"}')
    assert (third.place, third.reason) == ("items[2]", "the id 'b' is already used at items[1]")
    assert (fourth.place, fourth.reason) == ("items[4]", "the id 'item-4' is already used at items[3]")
    assert str(told_by_plan.value) == str(told.value)


async def test_a_generator_that_fails_enqueues_nothing(tmp_path: Path) -> None:
    """What the caller's own generator raises passes through."""

    def broken() -> Iterator[str]:
        yield "A fox"
        raise LookupError("the caller's own")

    async with opened(tmp_path) as queue:
        with pytest.raises(LookupError):
            await queue.enqueue_items(broken(), job="foxes", defaults=SMALL)

        assert (await queue.overview()).jobs == ()


async def test_a_wrong_configuration_is_reported_with_its_field(tmp_path: Path) -> None:
    """A mapping is checked as the file is."""
    with pytest.raises(batchkiln.InputError, match=r"unknown field `profiles\.local\.time_scal`"):
        async with batchkiln.open_queue(tmp_path / "q.db", config={"profiles": {"local": {"time_scal": 1}}}):
            pass


def taken(item: ItemSummary) -> int:
    return sum(output.size_bytes for output in item.outputs)


async def test_waiting_for_an_item_gives_its_files(tmp_path: Path) -> None:
    """The summary that comes back has whole files."""
    async with opened(tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        await queue.start()
        item = await queue.wait_item("foxes", "item-1")

    assert Path(item.outputs[0].path).stat().st_size == taken(item) > 0


@pytest.mark.parametrize("is_forever", [True, False])
async def test_a_change_is_apart_from_a_run_that_waits_for_more(tmp_path: Path, *, is_forever: bool) -> None:
    """A large manifest never delays a poll, also where it comes before the first account has work."""
    async with (
        batchkiln.open_queue(tmp_path / "queue.db", working_dir=tmp_path) as queue,
        queue._driving(RunOptions(is_forever=is_forever), command="test"),
        queue._to_change() as store,
    ):
        assert (store is not queue.writer) == is_forever


@pytest.mark.parametrize("items", ["A fox", b"A fox", {"prompt": "A fox"}])
async def test_one_text_is_no_row_of_letters(tmp_path: Path, items: str) -> None:
    """Each letter would be a prompt to pay for."""
    async with opened(tmp_path) as queue:
        with pytest.raises(InputError, match="must be a list of prompts; nothing was done"):
            await queue.enqueue_items(items, job="foxes", defaults=SMALL)

        assert (await queue.overview()).jobs == ()
