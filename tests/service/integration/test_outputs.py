"""Outputs: pictures and clips, signed links, ranges, retention."""

import io
from datetime import UTC, datetime

import av
from PIL import Image

from .service_world import CLIP, IMAGE, World, image_with

RETENTION_SECONDS = 14 * 86_400


async def test_image_is_of_the_size_asked_for(world: World) -> None:
    """A finished image can be downloaded and opened. Service section 2.1."""
    ended = await world.finish(await world.create())

    got = await world.send("GET", ended.output["url"], key=None)

    assert (ended.output["type"], got.headers["Content-Type"]) == ("image", "image/png")
    with Image.open(io.BytesIO(got.content)) as image:
        assert (image.format, image.size) == ("PNG", (512, 512))


async def test_jpg_is_sent_when_asked_for(world: World) -> None:
    """parameters.output_format is honoured. Service section 2.2."""
    body = image_with(parameters={"resolution": "512x512", "output_format": "jpg"})
    ended = await world.finish(await world.create(body))

    got = await world.send("GET", ended.output["url"], key=None)

    assert (got.headers["Content-Type"], got.content[:2]) == ("image/jpeg", b"\xff\xd8")


async def test_clip_plays_for_its_length_with_sound(world: World) -> None:
    """A finished clip has the resolution, the length and the sound asked for. Service section 2.2."""
    parameters = {
        "resolution": "480p",
        "duration_seconds": 2,
        "aspect_ratio": "16:9",
        "generate_audio": True,
    }
    ended = await world.finish(await world.create({**CLIP, "parameters": parameters}))

    got = await world.send("GET", ended.output["url"], key=None)

    assert (ended.output["type"], got.headers["Content-Type"]) == ("video", "video/mp4")
    with av.open(io.BytesIO(got.content), "r") as container:
        video, audio = container.streams.video[0], container.streams.audio[0]
        assert (video.codec_context.name, video.width, video.height) == ("h264", 854, 480)
        assert len(list(container.decode(video))) == 2 * 8
        assert audio.codec_context.name == "aac"
        assert container.duration is not None
        assert abs(container.duration / 1_000_000 - 2) < 0.1


async def test_each_read_gives_a_fresh_link(world: World) -> None:
    """Reading again gives another URL, and the older one stays good. Service section 2.1."""
    ended = await world.finish(await world.create())
    again = await world.poll(ended.body["id"])

    assert again.output["url"] != ended.output["url"]
    assert (await world.send("GET", ended.output["url"], key=None)).status == 200


async def test_link_dies_after_fifteen_minutes(world: World) -> None:
    """A link is good up to the instant it names. Service section 2.1."""
    ended = await world.finish(await world.create())
    world.clock.advance(899)
    last = await world.send("GET", ended.output["url"], key=None)
    world.clock.advance(1)

    assert last.status == 200
    assert (await world.send("GET", ended.output["url"], key=None)).code == "link_expired"


async def test_changed_link_is_refused(world: World) -> None:
    """Neither a later expiry nor another file can be had by editing a link."""
    ended = await world.finish(await world.create())
    url = ended.output["url"]

    later = await world.send("GET", url.replace("expires=1", "expires=2"), key=None)
    other = await world.send("GET", url.replace("/0.png", "/1.png"), key=None)

    assert [later.code, other.code] == ["link_forged", "link_forged"]


async def test_link_survives_a_restart(world: World) -> None:
    """Links are signed with the state folder's secret, and the port is kept."""
    ended = await world.finish(await world.create())

    await world.stop()
    await world.start()

    assert (await world.send("GET", ended.output["url"], key=None)).status == 200


async def test_part_of_a_file_can_be_had(world: World) -> None:
    """A Range request resumes a download."""
    url = (await world.finish(await world.create())).output["url"]
    whole = await world.send("GET", url, key=None)

    part = await world.send("GET", url, key=None, headers={"Range": "bytes=100-"})
    beyond = await world.send("GET", url, key=None, headers={"Range": "bytes=99999999-"})
    head = await world.send("HEAD", url, key=None)

    assert (part.status, part.content) == (206, whole.content[100:])
    assert part.headers["Etag"] == whole.headers["Etag"]
    assert beyond.status == 416
    assert (head.headers["Content-Length"], head.headers["Accept-Ranges"]) == (
        str(len(whole.content)),
        "bytes",
    )


async def test_output_expires_with_its_retention(world: World) -> None:
    """After fourteen days the status is expired and the file is gone. Service sections 2.1 and 3."""
    ended = await world.finish(await world.create())
    end_ms = (await world.service.query("SELECT ended_at_ms FROM generations"))[0]["ended_at_ms"]
    assert isinstance(end_ms, int)
    over_ms = end_ms + RETENTION_SECONDS * 1000
    world.clock.advance((over_ms - world.clock.now_ms()) / 1000 - 300)
    late = await world.poll(ended.body["id"])
    world.clock.advance(300)

    expired = await world.poll(ended.body["id"])
    await world.service.retention_done()

    expires_at = datetime.fromisoformat(late.output["expires_at"])
    assert expires_at == datetime.fromtimestamp(over_ms / 1000, UTC)  # and not fifteen minutes later
    assert (await world.send("GET", late.output["url"], key=None)).status in {403, 404}
    assert (expired.body["status"], expired.body["outputs"]) == ("expired", [])
    assert list((world.config.state_dir / "media").iterdir()) == []


async def test_lost_file_is_drawn_again(world: World) -> None:
    """A file that a crash took is drawn when somebody asks for it."""
    ended = await world.finish(await world.create())
    before = await world.send("GET", ended.output["url"], key=None)
    for path in (world.config.state_dir / "media").iterdir():
        path.unlink()

    after = await world.send("GET", ended.output["url"], key=None)

    assert (after.status, after.content) == (200, before.content)


async def test_input_image_shows_in_the_output(world: World, png: bytes) -> None:
    """An image-to-image output visibly has its input. Service section 4, upload flow."""
    url = await world.upload(png)
    body = {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": url}]}

    ended = await world.finish(await world.create(body))

    got = await world.send("GET", ended.output["url"], key=None)
    with Image.open(io.BytesIO(got.content)) as image:
        assert image.convert("RGB").getpixel((256, 170)) == (20, 200, 20)


async def test_first_frame_shows_in_a_clip(world: World, png: bytes) -> None:
    """An image-to-video clip begins with its input, and image_mode is honoured. Service section 2.2."""
    parameters = {"resolution": "480p", "duration_seconds": 2, "image_mode": "first-frame"}
    url = await world.upload(png)
    body = {
        **CLIP,
        "mode": "image-to-video",
        "inputs": [{"type": "image", "url": url}],
        "parameters": parameters,
    }

    ended = await world.finish(await world.create(body))

    got = await world.send("GET", ended.output["url"], key=None)
    with av.open(io.BytesIO(got.content), "r") as container:
        frame = next(container.decode(video=0)).to_image()  # type: ignore[no-untyped-call]  # PyAV has no types here
    pixel = frame.getpixel((427, 160))
    assert isinstance(pixel, tuple)
    assert pixel[1] > 150 > pixel[0]


async def test_drawing_that_fails_is_a_refunded_failure(world: World, png: bytes) -> None:
    """The service's own accident does not keep the client's credits. Service rule 3.1."""
    url = await world.upload(png)
    (world.config.state_dir / "assets" / url.rpartition("/")[2]).write_bytes(b"the disk has lost it")

    ended = await world.finish(
        await world.create({**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": url}]})
    )

    assert ended.body["status"] == "failed"
    assert await world.balance() == 10_000


async def test_crash_between_file_and_entry_is_made_good(world: World) -> None:
    """A file that has its name while the books do not know of it yet is drawn once more, and is the same."""
    created = await world.create()
    await world.service.idle()
    folder = world.config.state_dir / "media"
    before = [(path.name, path.read_bytes()) for path in folder.iterdir()]
    await world.service.query("DELETE FROM outputs")
    await world.service.query("UPDATE generations SET rendered_at_ms = NULL")

    await world.stop()
    await world.start()
    ended = await world.finish(created)

    assert ended.body["status"] == "success"
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == before
