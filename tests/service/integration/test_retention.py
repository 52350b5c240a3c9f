"""Retention deletes expired media and assets, uncompleted uploads, and the leftovers of a crash."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batchkiln_service import Limits
from batchkiln_service.media.renderer import WORKERS

from .service_world import IMAGE, World, WorldMaker

DAY_SECONDS = 86_400
RETENTION_SECONDS = 14 * DAY_SECONDS


def files(world: World, folder: str) -> list[Path]:
    return sorted((world.config.state_dir / folder).iterdir())


async def purged(world: World, table: str) -> list[object]:
    return [row["is_purged"] for row in await world.service.query(f"SELECT is_purged FROM {table} ORDER BY rowid")]


async def pass_time(world: World, seconds: float) -> None:
    world.clock.advance(seconds)
    await world.service.retention_done()


@contextmanager
def nothing_is_drawn(world: World) -> Iterator[None]:
    """Keep those who draw busy; what was to be drawn meanwhile is drawn at the end."""
    released = threading.Event()
    workshop = world.service._renderer._pool
    busy = [workshop.submit(released.wait) for _ in range(WORKERS)]
    try:
        yield
    finally:
        released.set()
        for each in busy:
            each.result()


async def test_media_go_at_the_instant_of_their_end(world: World) -> None:
    """Fourteen days after the end the file is gone and the books say so; a millisecond earlier it is there."""
    created = await world.create()
    await world.service.idle()
    end_ms = (await world.service.query("SELECT finish_at_ms FROM generations"))[0]["finish_at_ms"]
    assert isinstance(end_ms, int)

    await pass_time(world, RETENTION_SECONDS + (end_ms - world.clock.now_ms()) / 1000 - 0.001)
    before = len(files(world, "media")), await purged(world, "generations")
    await pass_time(world, 0.001)

    assert before == (1, [0])
    assert (len(files(world, "media")), await purged(world, "generations")) == (0, [1])
    assert (await world.poll(created.body["id"])).body["status"] == "expired"


async def test_generation_that_nobody_asked_about_is_deleted_and_charged(world: World) -> None:
    """Retention does not wait for a poll; what it ends is settled first. Service rule 3.1."""
    await world.create()
    await world.service.idle()

    await pass_time(world, RETENTION_SECONDS + 600)

    assert files(world, "media") == []
    kinds = [row["kind"] for row in await world.service.query("SELECT kind FROM transfers ORDER BY id")]
    assert kinds[-1] == "charge"


async def test_expired_asset_is_deleted(world: World, png: bytes) -> None:
    """The bytes of an asset go with its expiry; the row stays and says why it cannot be used."""
    url = await world.upload(png)
    body = {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": url}]}

    await pass_time(world, world.config.asset_retention_seconds)

    assert (files(world, "assets"), await purged(world, "assets")) == ([], [1])
    assert (await world.create(body)).code == "asset_expired"


async def test_abandoned_upload_is_deleted_after_a_day(world: World, png: bytes) -> None:
    """A client has a day to come back and complete; then an upload is given up, with or without bytes."""
    sent, _ = await world.prepare(len(png)), await world.prepare(len(png))
    await world.put(sent, png)

    await pass_time(world, 300 + DAY_SECONDS - 1)
    kept = len(files(world, "assets")), await purged(world, "assets")
    await pass_time(world, 1)

    assert kept == (1, [0, 0])
    assert (files(world, "assets"), await purged(world, "assets")) == ([], [1, 1])
    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": [sent.asset_id]})
    assert (completed.status, completed.code) == (422, "asset_expired")


async def test_upload_can_be_completed_after_its_link_has_died(world: World, png: bytes) -> None:
    """The five minutes are for the PUT alone. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)
    await pass_time(world, DAY_SECONDS)

    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})

    assert completed.status == 200


async def test_everything_due_is_deleted_after_a_long_downtime(make_world: WorldMaker, png: bytes) -> None:
    """Months later, many files at once go when the service is back."""
    world = await make_world(limits=Limits.lifted(), tiny_media=False)
    await asyncio.gather(*(world.create() for _ in range(12)))
    await world.upload(png)
    await world.service.idle()
    await world.stop()
    world.clock.advance(90 * DAY_SECONDS)

    await world.start()
    await world.service.retention_done()

    assert (files(world, "media"), files(world, "assets")) == ([], [])
    assert await purged(world, "generations") == [1] * 12


async def test_more_than_a_batch_is_deleted(make_world: WorldMaker) -> None:
    """Batches follow one another until nothing is due; the shared file stays for those to come."""
    world = await make_world(limits=Limits.lifted(), instant=True)
    for _ in range(5):
        await asyncio.gather(*(world.create() for _ in range(50)))

    await pass_time(world, RETENTION_SECONDS)

    assert await purged(world, "generations") == [1] * 250
    assert [path.name for path in files(world, "media")] == ["instant.png"]


async def test_what_a_crash_left_half_written_is_deleted(world: World) -> None:
    """Temporary files do not outlive the process that wrote them by more than a start."""
    folders = [world.config.state_dir / name for name in ("media", "assets")]
    await world.stop()
    for folder in folders:
        (folder / f"gen_{'1' * 24}.png.0a1b.part").write_bytes(b"half")

    await world.start()

    assert [list(folder.iterdir()) for folder in folders] == [[], []]


async def test_asset_stays_until_it_is_drawn(world: World, png: bytes) -> None:
    """An asset that expires before the last generation that shows it was drawn is kept for it, and no longer."""
    url = await world.upload(png)
    await world.create({**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": url}]})
    await world.service.idle()
    await world.service.query("UPDATE generations SET rendered_at_ms = NULL")  # as if it were still to be drawn

    await pass_time(world, world.config.asset_retention_seconds)
    kept = files(world, "assets")
    await world.service.query("UPDATE generations SET rendered_at_ms = 1")
    await pass_time(world, 60)

    assert [path.name for path in kept] == [url.rpartition("/")[2]]
    assert files(world, "assets") == []


async def test_nothing_to_delete_means_a_long_sleep(world: World) -> None:
    """An idle service does not wake up for nothing: it sleeps for a day of its time at least."""
    await world.service.retention_done()

    assert len(world.clock._sleepers) == 1
    assert world.clock._sleepers[0][0] - world.clock.now_ms() >= DAY_SECONDS * 1000


async def test_file_that_cannot_be_deleted_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An accident is logged and does not end the housekeeping."""
    await world.create()
    await world.service.idle()
    path = files(world, "media")[0]
    path.unlink()
    path.mkdir()  # what stands in the way cannot be unlinked
    await pass_time(world, RETENTION_SECONDS + 600)
    assert "retention_failed" in caplog.text
    path.rmdir()

    await pass_time(world, 60)

    assert await purged(world, "generations") == [1]


async def test_file_drawn_again_after_its_end_never_appears(world: World) -> None:
    """Retention may end while a lost file is being drawn again: then nothing is published. Service section 2.1."""
    ended = await world.finish(await world.create())
    files(world, "media")[0].unlink()
    with nothing_is_drawn(world):
        download = asyncio.create_task(world.send("GET", ended.output["url"], key=None))
        while not world.service._renderer._pending_tasks:  # noqa: ASYNC110 - nobody tells when the download waits
            await asyncio.sleep(0)
        await pass_time(world, RETENTION_SECONDS)

    got = await download
    await world.service.idle()

    assert (got.status, got.code) == (404, "not_found")
    assert files(world, "media") == []
    assert await purged(world, "generations") == [1]


async def test_file_of_a_generation_that_failed_meanwhile_never_appears(world: World) -> None:
    """What support ends as a failure while it is being drawn leaves no file."""
    with nothing_is_drawn(world):
        created = await world.create()
        await world.service.end_pending_generation(str(created.body["id"]), "failed")
    await world.service.idle()

    assert files(world, "media") == []
    assert await world.service.query("SELECT * FROM outputs") == []


async def test_late_drawing_is_retained_from_its_own_end(world: World) -> None:
    """A generation that is drawn weeks late has not expired before it could be had. Service section 2.1."""
    with nothing_is_drawn(world):
        created = await world.create()
        await pass_time(world, 2 * RETENTION_SECONDS)
    await world.service.idle()

    await pass_time(world, RETENTION_SECONDS - 1)
    kept = (await world.poll(created.body["id"])).body["status"], len(files(world, "media"))
    await pass_time(world, 1)

    assert kept == ("success", 1)
    assert files(world, "media") == []


async def test_file_that_cannot_be_deleted_keeps_no_other(make_world: WorldMaker) -> None:
    """One accident does not stand in the way of what comes behind it, in this run or after a restart."""
    world = await make_world(limits=Limits.lifted())
    await asyncio.gather(*(world.create() for _ in range(3)))
    await world.service.idle()
    rows = await world.service.query("SELECT id, finish_at_ms FROM generations ORDER BY finish_at_ms")
    first = world.config.state_dir / "media" / f"{rows[0]['id']}.png"
    first.unlink()
    first.mkdir()

    await pass_time(world, RETENTION_SECONDS + 600)
    in_this_run = files(world, "media")
    await world.stop()
    await world.start()
    first.rmdir()
    await pass_time(world, 60)

    assert in_this_run == [first]
    assert files(world, "media") == []
    assert await purged(world, "generations") == [1, 1, 1]


async def test_file_that_the_books_do_not_know_is_deleted_at_the_start(world: World, png: bytes) -> None:
    """A crash between a file and its entry, or books that were replaced, leave nothing for ever."""
    asset = (await world.upload(png)).rpartition("/")[2]
    ended = await world.finish(await world.create())
    await world.stop()
    for name in ("media", "assets"):
        for stray in (f"gen_{'0' * 24}.png", f"ast_{'0' * 24}", f"ast_{'0' * 24}.ab.part"):
            (world.config.state_dir / name / stray).write_bytes(b"a stray")

    await world.start()

    assert [path.name for path in files(world, "media")] == [f"{ended.body['id']}.png"]
    assert [path.name for path in files(world, "assets")] == [asset]


async def test_files_of_others_are_left_alone(world: World) -> None:
    """A state folder that somebody shares, by mistake or not, loses nothing."""
    await world.stop()
    for name in ("media", "assets"):
        (world.config.state_dir / name / "logo.svg").write_bytes(b"somebody's")

    await world.start()

    for name in ("media", "assets"):
        assert (world.config.state_dir / name / "logo.svg").read_bytes() == b"somebody's"


async def test_expired_file_that_came_back_is_deleted_at_the_start(world: World) -> None:
    """Say, from a backup of the folder: what was purged once is not kept."""
    await world.finish(await world.create())
    path = files(world, "media")[0]
    await pass_time(world, RETENTION_SECONDS)
    await world.stop()
    path.write_bytes(b"back again")

    await world.start()

    assert files(world, "media") == []


async def test_upload_that_arrives_while_it_is_given_up_leaves_nothing(world: World, png: bytes) -> None:
    """Bytes whose PUT ends after the upload was given up are refused, and not kept by anybody."""
    prepared = await world.prepare(len(png))
    arrived = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield png[:10]
        await arrived.wait()
        yield png[10:]

    async def put() -> int:
        async with world.session.put(prepared.upload_url, data=slowly(), headers=prepared.upload_headers) as response:
            return response.status

    putting = asyncio.create_task(put())
    while not files(world, "assets"):  # noqa: ASYNC110 - nobody tells when the first bytes are there
        await asyncio.sleep(0.001)
    await pass_time(world, 300 + DAY_SECONDS)
    arrived.set()

    assert await putting == 403
    assert files(world, "assets") == []


async def test_completion_under_way_keeps_its_upload(world: World, png: bytes) -> None:
    """RetentionSweeper waits for a completion, and does not delete what it has made ready."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)
    locks = world.service._retention._asset_locks
    async with locks.held([prepared.asset_id]):  # as a completion does
        world.clock.advance(300 + DAY_SECONDS)
        for _ in range(20):
            await world.service.query("SELECT 1")  # housekeeping gets its turns
        await world.service.query("UPDATE assets SET state = 'ready', width = 40, height = 30")
    await world.service.retention_done()

    assert [path.name for path in files(world, "assets")] == [prepared.asset_id]
    assert await purged(world, "assets") == [0]
