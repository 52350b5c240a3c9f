"""Outputs of a service that is a stranger: in any order, of any kind, or not to be had at all."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import (
    DownloadBroken,
    DownloadReply,
    DownloadStarted,
    GenerationStatus,
    LinkBarred,
    NotContinued,
    NotFound,
    RecordRead,
)
from batchkiln.core.states import ItemState
from batchkiln.store import operations
from batchkiln.store.resolution import Decision, resolve
from batchkiln.worker.transfer import GRACE_SECONDS
from support import fake_service
from support.builders import NO
from support.fake_service import content_of
from support.memory_files import NO_OUTPUT
from support.worker_world import World

PAGE = NO_OUTPUT + b"the link is not valid"
FILES = {f"/out/job/fox-{number}.png": content_of(path) for number, path in ((1, "gen-1"), (2, "gen-1/2"))}


def saved_numbers(world: World) -> list[int]:
    return [row[0] for row in world.rows("SELECT number FROM output ORDER BY number")]


# --- another order ---


@pytest.mark.parametrize("paths_change", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_reordered_outputs_are_each_saved_once(world: World, *, paths_change: bool, is_restarted: bool) -> None:
    """Two reads of one generation may list its outputs in another order: both are here in the end, and none twice."""
    world.service.outputs_count, world.service.reorders, world.service.paths_change = 2, True, paths_change
    world.enqueue("fox", filename="{job}/{item}-{output}.{ext}")
    is_away = [True]

    def second_is_away(path: str, content: bytes) -> bytes | None:
        return None if path == "gen-1/2" and is_away else content

    world.service.spoils = second_is_away
    await world.run_until_true(lambda: world.service.generations != {} and saved_numbers(world) != [])
    is_away.clear()
    if is_restarted:
        world.restart()
    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert world.outputs.files == FILES


async def test_equal_outputs_are_as_many_files_as_are_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two outputs of the same bytes are no reordering: the item ends, with both of them."""
    monkeypatch.setattr(fake_service, "content_of", lambda _: b"the same picture" * 8)
    world.service.outputs_count, world.service.paths_change = 2, True
    world.service.links_refused = 1
    world.enqueue("fox", filename="{job}/{item}-{output}.{ext}")

    await world.run_until_true(lambda: world.service.generations != {} and saved_numbers(world) != [])
    world.restart()
    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert saved_numbers(world) == [1, 2]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_outputs_that_are_listed_no_more_are_reported(world: World, *, is_restarted: bool) -> None:
    """If a later read lists fewer outputs than before, a paid one is missing, and a person decides."""
    world.service.outputs_count = 2
    world.service.spoils = lambda path, content: None if path == "gen-1/2" else content
    world.enqueue("fox", filename="{job}/{item}-{output}.{ext}")
    await world.run_until_true(lambda: world.service.generations != {} and saved_numbers(world) == [1])
    world.service.outputs_count = 1
    if is_restarted:
        world.restart()

    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert "lists 1 outputs, and listed 2 before" in world.one("SELECT error_message FROM item")


# --- not to be had ---


async def test_error_page_is_no_output_and_a_person_is_asked(world: World) -> None:
    """It is tried a bounded number of times and then reported; the run ends, and the other files are saved."""
    world.service.outputs_count = 2
    world.service.spoils = lambda path, content: PAGE if path == "gen-1" else content
    world.enqueue("fox", filename="{job}/{item}-{output}.{ext}")

    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert world.outputs.files == {"/out/job/fox-2.png": content_of("gen-1/2")}
    assert len(world.service.downloads) == 1 + 6
    assert world.clock.monotonic < 7 * 3600
    assert "1 of its outputs are on disk; output 1: a text" in world.one("SELECT error_message FROM item")
    assert world.attempts("fox") == ["succeeded"]


async def test_person_has_it_fetched_again_for_nothing(world: World) -> None:
    """A held output is paid: with its id it is fetched again, and nothing else is sent."""
    is_broken = [True]
    world.service.spoils = lambda _, content: PAGE if is_broken else content
    world.enqueue("fox")
    await world.run()
    is_broken.clear()

    resolved = world.write(resolve, "job", "fox", Decision.GENERATION, generation_id="gen-1", now=0)
    await world.run()

    assert (resolved.state, resolved.may_pay_again) == (ItemState.DOWNLOADING, False)
    assert world.state("fox") is ItemState.DONE
    assert len(world.service.creates) == 1
    assert world.money() == (0, 10, 0)


async def test_person_takes_what_is_on_disk_for_all_of_it(world: World) -> None:
    """A person may end an item with the outputs that were saved; nothing is paid again."""
    world.service.outputs_count = 2
    world.service.spoils = lambda path, content: PAGE if path == "gen-1/2" else content
    world.enqueue("fox")
    await world.run()

    resolved = world.write(resolve, "job", "fox", Decision.SAVED, now=0)

    assert (resolved.state, world.state("fox")) == (ItemState.DONE, ItemState.DONE)


async def test_storage_that_always_refuses_is_reported_after_a_day(world: World) -> None:
    """A file that no fresh link gives is asked for less and less often, and not until its retention ends."""
    world.service.broken_files = {"gen-1"}
    world.enqueue("fox")

    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert 24 * 3600 <= world.clock.monotonic < 27 * 3600
    assert len(world.service.downloads) < 50
    assert "the storage answered 404" in world.one("SELECT error_message FROM item")


async def test_link_that_is_barred_is_reported_soon(world: World) -> None:
    """A link that the configuration forbids is reported without hours of retries."""
    world.service.rule = lambda kind, _: LinkBarred("it leads to plain http") if kind == "download" else None
    world.enqueue("fox")

    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert world.clock.monotonic < 10 * 60


@pytest.mark.parametrize("is_announced", [True, False])
async def test_file_above_the_limit_is_not_fetched(tmp_path: Path, *, is_announced: bool) -> None:
    """A file has a bound, whether it is announced or not; the message names the field that raises it."""
    world = World(tmp_path, limits=Limits(output_bytes=1000))
    endless = count()

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            next(endless)
            yield bytes(100)

    def large(kind: str, _account: str) -> DownloadReply | None:
        started = DownloadStarted(0, 10**9 if is_announced else None, "image/png", None, chunks())
        return started if kind == "download" else None

    world.service.rule = large
    world.enqueue("fox")

    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert "limits.output_bytes" in world.one("SELECT error_message FROM item")
    assert next(endless) <= (0 if is_announced else 25)
    world.close()


async def test_success_without_outputs_is_reported_after_a_day(world: World) -> None:
    """A success without outputs is read ever more rarely, and reported after a day."""
    world.enqueue("fox")

    def empty(kind: str, _account: str) -> object:
        if kind != "read":
            return None
        generation = world.service.generations["gen-1"]
        world.service.reads["gen-1"].append(world.clock.instant)
        return RecordRead(replace(world.service.record(generation), outputs=()))

    world.service.rule = empty
    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert len(world.service.reads["gen-1"]) < 50


async def test_generation_that_is_denied_is_reported_after_a_day(world: World) -> None:
    """A result that the service had ready, and then denies, is asked for less and less often, and a person hears."""
    world.service.links_refused = 1
    world.enqueue("fox")
    await world.run_until("fox", ItemState.ACTIVE)

    def deny(kind: str, _account: str) -> object:
        is_ready = kind == "read" and world.state("fox") is ItemState.DOWNLOADING
        return NotFound(NO) if is_ready else None

    world.service.rule = deny
    await world.run()

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "output_unusable")
    assert world.clock.monotonic < 27 * 3600


async def test_waiting_for_what_cannot_be_had_does_not_spin(world: World) -> None:
    """A run that only waits for a bad output sleeps between its tries."""
    world.service.broken_files = {"gen-1"}
    turns: list[None] = []
    world.enqueue("fox")

    await world.run_watched(lambda: turns.append(None))

    assert len(turns) < 3000


async def test_retention_that_ends_over_saved_files_is_no_expiry(world: World) -> None:
    """Files of it are on disk: `retry`, which pays again, does not take it, and a person is asked."""
    world.service.outputs_count = 2
    world.service.spoils = lambda path, content: None if path == "gen-1/2" else content
    world.enqueue("fox", filename="{job}/{item}-{output}.{ext}")
    await world.run_until_true(lambda: world.service.generations != {} and saved_numbers(world) == [1])
    world.service.generations["gen-1"].ends_as = GenerationStatus.EXPIRED
    world.restart(after_seconds=15 * 86_400)

    await world.run()
    report = operations.preview_retry(world.connection, "job", [])

    assert (world.state("fox"), world.error("fox")) == (ItemState.HELD, "outputs_gone")
    assert "1 of 2 outputs are on disk" in world.one("SELECT error_message FROM item")
    assert report.requeued == {}
    assert world.attempts("fox") == ["expired"]


# --- continued, or not ---


def parts_of(world: World, *replies: tuple[int, int | None, str | None, list[bytes], bool]) -> None:
    """Answer downloads: offset, total, etag, chunks, and whether they break off behind them."""

    async def chunks(pieces: list[bytes], *, breaks: bool) -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if breaks:
            raise DownloadBroken("the connection broke")

    for offset, total, etag, pieces, breaks in replies:
        world.service.say("download", DownloadStarted(offset, total, "image/png", etag, chunks(pieces, breaks=breaks)))


async def test_rest_of_another_file_is_not_joined(world: World) -> None:
    """Law 7: the rest of a file of another length is of another file, whatever its etag says."""
    parts_of(
        world,
        (0, 9, '"a"', [b"one"], True),
        (3, 8, '"a"', [b"-four"], False),
        (0, 8, '"b"', [b"two-four"], False),
    )
    (item,) = world.enqueue()

    await world.run()

    assert world.outputs.files == {f"/out/job/{item}.png": b"two-four"}
    assert world.service.downloads == [0, 3, 0]


async def test_what_cannot_be_continued_is_begun_again(world: World) -> None:
    """A storage that ignores ranges is asked for the whole file from then on."""
    parts_of(world, (0, 9, '"a"', [b"one"], True))
    world.service.say("download", NotContinued("the rest of another file"))
    parts_of(world, (0, 8, '"b"', [b"two-"], True), (0, 8, '"b"', [b"two-four"], False))
    (item,) = world.enqueue()

    await world.run()

    assert world.outputs.files == {f"/out/job/{item}.png": b"two-four"}
    assert world.service.downloads == [0, 3, 0, 0]


async def test_more_than_was_announced_is_not_kept(world: World) -> None:
    """Law 7: a file has the length that was announced."""
    parts_of(world, (0, 4, None, [b"four", b"more"], False), (0, 4, None, [b"four"], False))
    (item,) = world.enqueue()

    await world.run()

    assert world.outputs.files == {f"/out/job/{item}.png": b"four"}


# --- a stop ---


async def test_stop_does_not_wait_for_a_trickling_download(world: World) -> None:
    """A part can be begun again: seconds after a stop, whatever still streams is left."""

    async def trickle() -> AsyncIterator[bytes]:
        while True:
            await world.clock.sleep(5.0)
            yield b"x"

    world.service.say("download", DownloadStarted(0, None, "image/png", None, trickle()))
    stopped_at: list[float] = []

    def look() -> None:
        if world.outputs.parts and world.outputs.parts[0].size_bytes == 3 and not stopped_at:
            stopped_at.append(world.clock.monotonic)
            world.control.stop()

    (item,) = world.enqueue()
    await world.run_watched(look)
    state, elapsed = world.state(item), world.clock.monotonic - stopped_at[0]
    await world.run()

    assert state is ItemState.DOWNLOADING
    assert elapsed <= GRACE_SECONDS
    assert all(part.is_discarded for part in world.outputs.parts)
    assert world.state(item) is ItemState.DONE


async def test_stop_lets_a_download_that_is_nearly_over_finish(world: World) -> None:
    """What comes within the grace is saved: it need not be fetched again."""

    async def soon() -> AsyncIterator[bytes]:
        world.control.stop()
        await world.clock.sleep(GRACE_SECONDS / 2)
        yield b"whole"

    world.service.say("download", DownloadStarted(0, 5, "image/png", None, soon()))
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.DONE
