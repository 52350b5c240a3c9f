"""Paid results are fetched whole, continued after an interruption, or recorded as lost."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import structlog
from msgspec.structs import replace

from batchkiln.core.responses import GenerationStatus, LinkRefused, NotFound, RecordRead, Unavailable
from batchkiln.core.states import ItemState
from batchkiln.worker.run_state import RunState
from support import fake_service
from support.builders import NO
from support.fake_service import Lost, content_of
from support.memory_files import CUT
from support.worker_world import World


async def test_broken_download_is_continued_by_range(world: World) -> None:
    """Law 7: bytes that came are kept, the rest is asked for, and the file appears whole."""
    world.service.download_breaks_after.append(7)
    (item,) = world.enqueue()

    await world.run()

    assert world.service.downloads == [0, 7]
    assert world.outputs.files == {f"/out/job/{item}.png": content_of("gen-1")}
    assert all(part.is_discarded for part in world.outputs.parts)
    assert world.one("SELECT size_bytes FROM output") == len(content_of("gen-1"))


@pytest.mark.long
async def test_results_that_cannot_be_fetched_hold_up_no_other(world: World) -> None:
    """Law 3: while a part of the storage is unavailable, the other paid results are fetched."""
    world.service.duration_seconds = 1.0
    world.service.broken_files = {f"gen-{number}" for number in range(1, 51)}
    world.enqueue(*(f"item-{number:02}" for number in range(1, 52)))

    await world.run_until_true(lambda: world.clock.monotonic > 4 * 3600 or world.state("item-51") is ItemState.DONE)

    assert world.state("item-51") is ItemState.DONE


async def test_file_without_its_end_is_fetched_again(world: World) -> None:
    """Law 7: that all announced bytes came does not make them a whole picture."""
    world.service.downloads_cut = 2
    (item,) = world.enqueue()

    await world.run()

    assert world.outputs.files == {f"/out/job/{item}.png": content_of("gen-1")}


async def test_file_without_its_end_is_waited_for(world: World) -> None:
    """A server that cuts a file for a while may give the whole one later: minutes are tried, then hours."""
    world.service.downloads_cut = 4
    (item,) = world.enqueue()

    await world.run()

    gaps = [(b - a).total_seconds() for a, b in pairwise(world.service.downloads_at)]
    assert [round(gap / 60) for gap in gaps] == [1, 10, 60, 360]
    assert sum(at > world.service.downloads_at[0] for at in world.service.reads["gen-1"]) == 4, "fresh links"
    assert world.outputs.files == {f"/out/job/{item}.png": content_of("gen-1")}


async def test_file_that_always_lacks_its_end_is_believed_at_last(world: World) -> None:
    """What was paid for is not thrown away for an opinion on formats: the same bytes for hours are the file."""
    world.service.downloads_cut = 100
    (item,) = world.enqueue()

    with structlog.testing.capture_logs() as told:
        await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.downloads_at[-1] - world.service.downloads_at[0] >= timedelta(hours=6)
    assert world.service.downloads_cut == 95
    assert world.outputs.files == {f"/out/job/{item}.png": content_of("gen-1")[:9] + CUT}
    assert [one["sha256"] for one in told if one["event"] == "truncated_file_accepted"] == [
        world.one("SELECT sha256 FROM output")
    ]


async def test_two_different_cuts_are_not_believed_for_each_other(world: World) -> None:
    """Downloads with different bytes are not accepted: a later one may be whole."""
    world.service.downloads_cut = 12
    world.service.cuts_differ = True
    (item,) = world.enqueue()

    await world.run()

    assert world.outputs.files == {f"/out/job/{item}.png": content_of("gen-1")}


async def test_last_day_takes_what_comes(world: World) -> None:
    """Rather a file that looks cut than none: shortly before the service deletes it, whatever came is kept."""
    world.service.downloads_cut = 1000
    world.service.cuts_differ = True
    (item,) = world.enqueue()

    await world.run()

    age = world.clock.instant - world.service.generations["gen-1"].created_at
    assert world.state(item) is ItemState.DONE
    assert timedelta(days=13) < age < timedelta(days=13, hours=7)


async def test_waiting_for_a_whole_file_does_not_spin(world: World) -> None:
    """A run that has nothing else left sleeps between its tries."""
    world.service.downloads_cut = 4
    turns: list[None] = []
    world.enqueue()

    await world.run_watched(lambda: turns.append(None))

    assert len(turns) < 1000


async def test_cut_file_does_not_hold_up_others(world: World) -> None:
    """The slot and all other downloads go on, hours before the next try."""
    names = world.enqueue(*[f"item-{n}" for n in range(6)])
    world.service.downloads_cut = 5
    done_at: list[float] = []

    def look() -> None:
        if world.state(names[-1]) is ItemState.DONE and not done_at:
            done_at.append(world.clock.monotonic)

    await world.run_watched(look)

    assert world.states() == {"done": 6}
    assert done_at[0] < 600.0


async def test_cut_output_does_not_hold_up_its_siblings(world: World) -> None:
    """Of several outputs the others are saved at once; the item is done when the last one is."""
    world.service.outputs_count = 3
    world.service.downloads_cut = 1
    (item,) = world.enqueue(filename="{job}/{item}-{output}.{ext}")
    saved_at: dict[str, float] = {}

    def look() -> None:
        for path in world.outputs.files:
            saved_at.setdefault(path, world.clock.monotonic)

    await world.run_watched(look)

    first, *others = (saved_at[f"/out/job/{item}-{number}.png"] for number in (1, 2, 3))
    assert first - max(others) > 59.0
    assert world.state(item) is ItemState.DONE
    assert len(world.service.downloads) == 4


async def test_cut_output_waits_while_its_siblings_are_retried(world: World) -> None:
    """Another output's refused link is no reason to ask for the cut one earlier."""
    world.service.outputs_count = 2
    world.service.downloads_cut = 1
    asked_at: list[float] = []
    (item,) = world.enqueue(filename="{job}/{item}-{output}.{ext}")

    def refuse(kind: str, account: str) -> object:
        assert account == "main"
        if kind == "download":
            asked_at.append(world.clock.monotonic)
        return LinkRefused(403) if kind == "download" and len(asked_at) == 2 else None

    world.service.rule = refuse
    await world.run()

    assert world.state(item) is ItemState.DONE
    assert len(asked_at) == 4
    assert asked_at[3] - asked_at[0] > 59.0


async def test_stopping_does_not_wait_for_a_cut_file(world: World) -> None:
    """A signal ends the run at once, whatever is waited for."""
    world.service.downloads_cut = 100
    (item,) = world.enqueue()

    await world.run_until_true(lambda: world.service.downloads_cut == 97)

    assert world.state(item) is ItemState.DOWNLOADING
    assert world.clock.instant - world.service.downloads_at[-1] < timedelta(minutes=1)


@pytest.mark.parametrize("is_budget", [False, True])
async def test_until_does_not_wait_for_a_cut_file(world: World, *, is_budget: bool) -> None:
    """A run that is to end begins no wait of hours; the next one goes on with it."""
    world.service.downloads_cut = 100
    (item,) = world.enqueue()
    until = None if is_budget else world.clock.instant + timedelta(minutes=30)

    await world.run(RunState(starts_until=until, stops_at_reset=is_budget))
    state, elapsed = world.state(item), world.clock.monotonic
    world.service.downloads_cut = 0
    await world.run()

    assert state is ItemState.DOWNLOADING
    assert elapsed <= 30 * 60
    assert world.state(item) is ItemState.DONE


async def test_expired_link_is_read_afresh(world: World) -> None:
    """One more read gives a fresh link, ten seconds after the last. Service section 2.1, rule 4.4."""
    world.service.links_refused = 1
    (item,) = world.enqueue()

    await world.run()

    assert world.state(item) is ItemState.DONE
    assert "url_expired" in world.kinds(item)
    assert min(b - a for a, b in pairwise(world.service.reads["gen-1"])) >= timedelta(seconds=10)


async def test_read_for_a_link_keeps_the_gap_across_a_restart(world: World) -> None:
    """The process that begins after a kill waits out the interval of the last read. Service rule 4.4."""
    world.service.say("download", *[Lost.REQUEST] * 40)
    (item,) = world.enqueue()
    await world.run_until(item, ItemState.DOWNLOADING)
    world.service.scripts.clear()
    world.restart()

    await world.run()

    assert min(b - a for a, b in pairwise(world.service.reads["gen-1"])) >= timedelta(seconds=10)
    assert world.state(item) is ItemState.DONE


@pytest.mark.parametrize("trouble", [LinkRefused(404), Lost.REQUEST])
async def test_stuck_downloads_do_not_hold_up_others(world: World, trouble: object) -> None:
    """No paid result is lost because others cannot be fetched: each waits for itself."""
    names = [f"item-{n}" for n in range(6)]
    world.enqueue(*names)
    stuck = {f"gen-{n}" for n in range(1, 6)}
    fine_at: list[float] = []

    def refuse(kind: str, account: str) -> object:
        assert account == "main"
        if kind == "download" and world.state("item-5") is not ItemState.DOWNLOADING:
            return trouble if stuck else None
        return None

    def look() -> None:
        if world.state("item-5") is ItemState.DONE and not fine_at:
            fine_at.append(world.clock.monotonic)
            stuck.clear()

    world.service.rule = refuse
    await world.run_watched(look)

    assert world.states() == {"done": 6}
    assert fine_at[0] < 3600.0


async def test_retention_ended_expires_the_item(world: World) -> None:
    """Once the service says that the outputs are no longer held, the item ends, and nothing is sent again."""
    (item,) = world.enqueue()
    world.service.say("download", *[Lost.REQUEST] * 40)
    await world.run_until(item, ItemState.DOWNLOADING)
    world.service.generations["gen-1"].ends_as = GenerationStatus.EXPIRED
    world.restart(after_seconds=15 * 86_400)

    await world.run()

    assert world.state(item) is ItemState.EXPIRED
    assert world.attempts(item) == ["expired"]
    assert len(world.service.creates) == 1


async def test_denied_after_retention_expires_the_item(world: World) -> None:
    """A 404 for a finished generation is waited out while it may be retained, and final after that."""
    (item,) = world.enqueue()
    world.service.say("download", *[Lost.REQUEST] * 40)
    await world.run_until(item, ItemState.DOWNLOADING)
    world.service.generations["gen-1"].is_forgotten = True
    world.restart(after_seconds=13.9 * 86_400)

    await world.run()

    assert world.state(item) is ItemState.EXPIRED
    assert world.service.reads["gen-1"][-1] - world.service.generations["gen-1"].created_at >= timedelta(days=14)


async def test_finished_without_outputs_ends_with_its_retention(world: World) -> None:
    """Law 9: a success that never shows an output ends when it can no longer come, and not never."""
    (item,) = world.enqueue()
    await world.run_until(item, ItemState.ACTIVE)
    world.restart(after_seconds=13.9 * 86_400)

    def empty(kind: str, account: str) -> object:
        assert account == "main"
        if kind != "read" or world.service.generations["gen-1"].is_active(world.clock.instant):
            return None
        record = world.service.record(world.service.generations["gen-1"])
        return RecordRead(replace(record, outputs=()))

    world.service.rule = empty
    await world.run()

    assert world.state(item) is ItemState.EXPIRED


async def test_missing_key_holds_a_download_and_resumes(world: World) -> None:
    """A link can only be read with the creator's key: without it the item is held, with it again fetched."""
    (item,) = world.enqueue()
    world.service.say("download", *[Lost.REQUEST] * 40)
    await world.run_until(item, ItemState.DOWNLOADING)
    world.service.scripts.clear()
    world.restart()
    world.keys["main"] = ("key-2",)

    await world.run()
    held = world.state(item)
    world.restart()
    world.keys["main"] = ("key-1",)
    await world.run()

    assert held is ItemState.HELD
    assert world.state(item) is ItemState.DONE


@pytest.mark.parametrize("trouble", [Lost.REPLY, Unavailable(None, NO), NotFound(NO)])
async def test_trouble_of_a_read_for_a_link_is_waited_out(world: World, trouble: object) -> None:
    """What is paid for is asked for again until it comes."""
    (item,) = world.enqueue()
    world.service.links_refused = 1
    await world.run_until(item, ItemState.ACTIVE)
    done_reads: list[int] = []

    def once(kind: str, account: str) -> object:
        assert account == "main"
        if kind == "read" and world.state(item) is ItemState.DOWNLOADING and not done_reads:
            done_reads.append(1)
            return trouble
        return None

    world.service.rule = once
    await world.run()

    assert done_reads == [1]
    assert world.state(item) is ItemState.DONE


async def test_equal_files_of_equal_names_are_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 7: two jobs with one folder and the same items save the same picture at the same time, each its own."""
    monkeypatch.setattr(fake_service, "content_of", lambda _: b"the same picture" * 8)
    world = World(tmp_path, accounts=("main", "second"))
    for job, account in (("one", "main"), ("two", "second")):
        world.enqueue("fox", job=job, accounts=(account,), filename="{item}.{ext}")

    await world.run()

    assert world.states() == {"done": 2}
    first, second = world.rows("SELECT path, item_id FROM output ORDER BY id")
    assert first["path"] == "/out/fox.png"
    assert second["path"] == f"/out/fox~{second['item_id']}.png"
    assert set(world.outputs.files) == {first["path"], second["path"]}
    world.close()


async def test_crash_between_file_and_record_makes_no_second_file(world: World) -> None:
    """Law 7: a file that is whole but not recorded is fetched again under the same name."""
    (item,) = world.enqueue()
    world.outputs.files[f"/out/job/{item}.png"] = content_of("gen-1")

    await world.run()

    assert list(world.outputs.files) == [f"/out/job/{item}.png"]


@pytest.mark.sqlite
async def test_signed_links_are_not_in_the_queue(world: World) -> None:
    """Law 8: a download link is a secret, and never stored."""
    world.service.links_refused = 1
    world.enqueue()

    await world.run()
    world.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    assert b"https://files/" not in world.path.read_bytes()
