"""What is kept no longer is deleted: media, assets, uploads that nobody completed, and what a crash left behind."""

import asyncio
from pathlib import Path

import pytest

from batchkiln.service import Limits

from .world import IMAGE, World, WorldMaker

DAY_SECONDS = 86_400
RETENTION_SECONDS = 14 * DAY_SECONDS


def files(world: World, folder: str) -> list[Path]:
    return sorted((world.config.state_dir / folder).iterdir())


async def purged(world: World, table: str) -> list[object]:
    return [row["is_purged"] for row in await world.service.query(f"SELECT is_purged FROM {table} ORDER BY rowid")]


async def pass_time(world: World, seconds: float) -> None:
    world.clock.advance(seconds)
    await world.service.housekeeping_done()


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
    await world.service.housekeeping_done()

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
        (folder / "gen_1.png.part").write_bytes(b"half")

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
    await world.service.housekeeping_done()

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
    assert "housekeeping_failed" in caplog.text
    path.rmdir()

    await pass_time(world, 60)

    assert await purged(world, "generations") == [1]
