"""Clips and pictures as a player sees them, and who draws them."""

import asyncio
import errno
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image, ImageChops, ImageFilter, ImageOps, ImageStat

import batchkiln
from batchkiln_service import Limits
from batchkiln_service.media import worker_pool
from batchkiln_service.media.renderer import MAX_BACKLOG
from batchkiln_service.media.worker_pool import WorkerPool
from batchkiln_service.rules.render_spec import RenderSpec

from .service_world import CLIP, IMAGE, World, WorldMaker, image_with

FRAMES_PER_SECOND = 8


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what the system tells nobody of."""
    while not is_so():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


def seconds_of(stream: av.VideoStream | av.AudioStream) -> float:
    """Give a stream's length as its container tells it."""
    assert stream.duration is not None
    assert stream.time_base is not None
    return float(stream.duration * stream.time_base)


async def output(world: World, body: object, *, idempotency_key: str = "") -> bytes:
    ended = await world.finish(await world.create(body, idempotency_key=idempotency_key))
    return (await world.send("GET", ended.output["url"], key=None)).content


def saved(color: str, size: tuple[int, int] = (320, 180)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


def frames(content: bytes) -> list[Image.Image]:
    with av.open(io.BytesIO(content), "r") as container:
        return [frame.to_image() for frame in container.decode(video=0)]  # type: ignore[no-untyped-call]  # PyAV's


def distance(one: Image.Image, color: str) -> float:
    """Give the mean difference of a picture from one of a single colour, 0 to 255."""
    return sum(ImageStat.Stat(ImageChops.difference(one, Image.new("RGB", one.size, color))).mean) / 3


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ({"resolution": "480p", "duration_seconds": 2, "aspect_ratio": "16:9"}, (854, 480)),
        ({"resolution": "480p", "duration_seconds": 3, "aspect_ratio": "9:16", "generate_audio": False}, (480, 854)),
        ({"resolution": "480p", "duration_seconds": 2, "aspect_ratio": "1:1", "generate_audio": True}, (480, 480)),
        ({"resolution": "720p", "duration_seconds": 2, "aspect_ratio": "4:3", "generate_audio": True}, (960, 720)),
    ],
)
async def test_clip_is_what_was_asked_for(world: World, parameters: dict[str, Any], size: tuple[int, int]) -> None:
    """H.264 of that size and length, with sound as long if asked for, else none. Service section 2.2."""
    content = await output(world, {**CLIP, "parameters": parameters})

    seconds = parameters["duration_seconds"]
    with av.open(io.BytesIO(content), "r") as container:
        video = container.streams.video[0]
        assert (container.format.name.split(",")[0], video.codec_context.name, video.pix_fmt) == (
            "mov",
            "h264",
            "yuv420p",
        )
        assert (video.width, video.height, video.frames) == (*size, seconds * FRAMES_PER_SECOND)
        assert seconds_of(video) == seconds
        assert len(container.streams.audio) == (1 if parameters.get("generate_audio") else 0)
        for audio in container.streams.audio:
            assert abs(seconds_of(audio) - seconds) < 1 / FRAMES_PER_SECOND
    assert len(frames(content)) == seconds * FRAMES_PER_SECOND


@pytest.mark.parametrize(
    ("body", "kind", "size"),
    [
        (image_with(), "PNG", (512, 512)),
        (image_with(parameters={"resolution": "1280x720", "output_format": "jpg"}), "JPEG", (1280, 720)),
        (image_with(model="epsilon-pro", parameters={"resolution": "2K", "aspect_ratio": "21:9"}), "PNG", (2048, 878)),
    ],
)
async def test_picture_is_what_was_asked_for(world: World, body: object, kind: str, size: tuple[int, int]) -> None:
    """PNG or JPEG of that size, whether a thread or a process has drawn it. Service section 2.2."""
    with Image.open(io.BytesIO(await output(world, body))) as image:
        image.load()
        assert (image.format, image.mode, image.size) == (kind, "RGB", size)


@pytest.mark.parametrize(
    ("image_mode", "colors", "first", "last"),
    [
        ("first-frame", ["teal"], "teal", None),
        ("first-last-frame", ["teal", "orange"], "teal", "orange"),
        ("reference-image", ["teal", "orange", "purple"], None, None),
    ],
)
async def test_inputs_show_in_a_clip(
    world: World, image_mode: str, colors: list[str], first: str | None, last: str | None
) -> None:
    """A clip begins and ends with the frames given, and shows every reference all the time. Service section 2.2."""
    inputs = [{"type": "image", "url": await world.upload(saved(color))} for color in colors]
    parameters = {"resolution": "480p", "duration_seconds": 2, "image_mode": image_mode}

    decoded = frames(
        await output(world, {**CLIP, "mode": "image-to-video", "inputs": inputs, "parameters": parameters})
    )

    for frame, color in ((decoded[0], first), (decoded[-1], last)):
        assert color is None or distance(frame, color) < 4
    if image_mode == "reference-image":
        for frame in (decoded[0], decoded[-1]):
            for color in colors:
                near = ImageChops.difference(frame, Image.new("RGB", frame.size, color)).convert("L")
                assert sum(near.histogram()[:8]) > 854 * 480 / 40
    assert distance(ImageChops.difference(decoded[0], decoded[len(decoded) // 2]), "black") > 1


@pytest.mark.long
async def test_same_key_gives_the_same_clip_on_every_service(make_world: WorldMaker, tmp_path: Path) -> None:
    """A clip depends on its request, account and key alone, also its bytes."""
    body = {**CLIP, "parameters": {"resolution": "480p", "duration_seconds": 2, "generate_audio": True}}
    worlds = [await make_world(state_dir=tmp_path / name) for name in ("one", "other")]

    one, other = [await output(world, body, idempotency_key="a-key-of-a-clip-01") for world in worlds]

    assert one == other


@pytest.mark.parametrize("body", [IMAGE, CLIP], ids=["picture", "clip"])
async def test_equal_requests_differ_and_a_replay_does_not(make_world: WorldMaker, body: object) -> None:
    """Variants can be told apart, so that a choice among them can be rehearsed."""
    world = await make_world(limits=Limits.lifted())
    keys = ["a-key-of-variant-1", "a-key-of-variant-2", "a-key-of-variant-1"]

    first, second, replayed = [await output(world, body, idempotency_key=key) for key in keys]

    assert first == replayed
    one, other = ((frames(each) if body is CLIP else [Image.open(io.BytesIO(each))])[0] for each in (first, second))
    assert sum(ImageStat.Stat(ImageChops.difference(one, other)).mean) / 3 > 8


async def test_chain_of_picture_and_clip_shows_in_the_clip(make_world: WorldMaker) -> None:
    """The first frame of a clip is the picture that it was made from, of that variant and no other."""
    world = await make_world(limits=Limits.lifted())
    variants = [await output(world, IMAGE, idempotency_key=f"a-key-of-a-still-{number}") for number in range(2)]
    url = await world.upload(variants[1])
    inputs = [{"type": "image", "url": url}]

    clip = await output(world, {**CLIP, "mode": "image-to-video", "inputs": inputs})

    first = frames(clip)[0]
    dropped, chosen = (ImageOps.contain(Image.open(io.BytesIO(each)).convert("RGB"), first.size) for each in variants)
    left = (first.width - chosen.width) // 2
    shown = first.crop((left, 0, left + chosen.width, chosen.height))
    assert sum(ImageStat.Stat(ImageChops.difference(shown, chosen)).mean) / 3 < 6
    assert sum(ImageStat.Stat(ImageChops.difference(shown, dropped)).mean) / 3 > 8


async def test_blurred_picture_is_made_on_request(make_world: WorldMaker) -> None:
    """The marker in the prompt reaches the file."""
    world = await make_world(limits=Limits.lifted())

    sharp, soft = [await output(world, image_with(prompt=prompt)) for prompt in ("A fox", "A fox [blurred]")]

    strengths = [
        ImageStat.Stat(Image.open(io.BytesIO(each)).convert("L").filter(ImageFilter.FIND_EDGES)).stddev[0]
        for each in (sharp, soft)
    ]
    assert strengths[1] < strengths[0] / 2


async def test_small_picture_starts_no_process(make_world: WorldMaker) -> None:
    """Neither small pictures nor the files of a rehearsal are worth a process."""
    before = children()
    for number, settings in enumerate(({}, {"instant": True}, {"tiny_media": True})):
        world = await make_world(limits=Limits.lifted(), **settings)
        await world.create(IMAGE if number == 0 else CLIP)
        await world.service.idle()
        await world.stop()

    assert children() == before


async def test_process_that_dies_is_replaced(world: World) -> None:
    """A drawing whose process was killed is done in another one."""
    begun = asyncio.create_task(world.create({**CLIP, "parameters": {"resolution": "480p", "duration_seconds": 5}}))
    before = children()
    await until(lambda: children() - before)

    os.kill((children() - before).pop(), signal.SIGKILL)

    ended = await world.finish(await begun)
    assert ended.body["status"] == "success"


async def test_picture_that_ends_its_decoder_is_refused(world: World) -> None:
    """A file that crashes the decoder twice is refused, without a server error. Service section 4, upload flow 3."""
    picture = saved("teal", (2000, 1500))
    prepared = await world.prepare(len(picture))
    await world.put(prepared, picture)
    before, killed = children(), set[int]()

    completing = asyncio.create_task(world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]}))
    while not completing.done():
        for worker in children() - before - killed:
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
        await asyncio.sleep(0.01)

    refused = completing.result()
    assert (refused.status, refused.code) == (422, "asset_invalid")
    assert "too much memory or time to decode" in str(refused.body)
    assert len(killed) == 2


class FullDisk:
    """A workshop whose disk has no room, until it is given some."""

    def __init__(self, workshop: WorkerPool) -> None:
        self._pool = workshop
        self.has_room = False
        self.tries = 0

    @property
    def is_closed(self) -> bool:
        return self._pool.is_closed

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        return self._pool.submit(work)

    def do(self, task: str, *arguments: object, pixels: int) -> object:
        if self.has_room:
            return self._pool.do(task, *arguments, pixels=pixels)
        self.tries += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self._pool.close()


async def test_drawing_waits_for_room_on_the_disk(world: World) -> None:
    """A full disk costs nobody a generation: it stays in preparation, and is drawn once there is room."""
    renderer = world.service._renderer
    disk = FullDisk(renderer._pool)
    renderer._pool, renderer._retry_seconds = disk, 0.01  # type: ignore[assignment]  # it behaves like one

    created = await world.create()
    await until(lambda: disk.tries > 2)
    world.clock.advance(600)
    waiting = await world.poll(created.body["id"])
    disk.has_room = True
    await until(lambda: list((world.config.state_dir / "media").glob("*.png")))
    world.clock.advance(20)
    ended = await world.poll(created.body["id"])

    assert (waiting.status, waiting.body["status"], waiting.body["outputs"]) == (200, "processing", [])
    assert ended.body["status"] == "success"
    assert (await world.send("GET", ended.output["url"], key=None)).status == 200


async def test_lost_file_without_room_on_the_disk_is_not_given_up(world: World) -> None:
    """Who asks for it meanwhile is told to come again: 503, and not that it is gone."""
    ended = await world.finish(await world.create())
    next((world.config.state_dir / "media").iterdir()).unlink()
    renderer = world.service._renderer
    disk = FullDisk(renderer._pool)
    renderer._pool = disk  # type: ignore[assignment]  # it behaves like one

    refused = await world.send("GET", ended.output["url"], key=None)
    disk.has_room = True
    sent = await world.send("GET", ended.output["url"], key=None)

    assert (refused.status, refused.code, refused.retry_after) == (503, "unavailable", 60)
    assert sent.status == 200


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize(("kind", "output_format"), [("image", "png"), ("image", "jpg"), ("video", "mp4")])
def test_full_disk_is_known_from_the_process(kind: str, output_format: str) -> None:
    """The failure reports the full disk, for every kind of file."""
    render_spec = RenderSpec(
        kind=kind,
        mode="",
        model="",
        prompt="owl",
        width=128,
        height=64,
        output_format=output_format,
        duration_seconds=2,
        with_audio=False,
        image_mode=None,
        asset_ids=(),
    )
    helper = worker_pool.WorkerProcess()
    try:
        with pytest.raises(worker_pool.TaskFailedError) as failed:
            helper.do("draw", render_spec.as_json().decode(), [], "/dev/full")
    finally:
        helper.close()

    assert failed.value.errno == errno.ENOSPC


async def test_stop_does_not_wait_for_a_drawing(make_world: WorldMaker) -> None:
    """A long clip is broken off by a stop, and drawn after the next start; its generation does not fail."""
    world = await make_world()
    before = children()
    body = {**CLIP, "parameters": {"resolution": "480p", "duration_seconds": 10}}
    created = await world.create(body)
    await until(lambda: children() - before)

    await world.stop()
    left = children() - before
    await world.start()

    assert left == set()
    assert (await world.finish(created)).body["status"] == "success"


def test_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """No worker process keeps rendering after its service was killed."""
    with killed_while_drawing(tmp_path) as worker:
        deadline = time.monotonic() + 10
        while is_alive(worker):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_task_that_raises_says_so_and_the_next_one_is_done(tmp_path: Path) -> None:
    """A failure in the process comes back as an exception with its traceback; the process stays."""
    helper = worker_pool.WorkerProcess()
    try:
        with pytest.raises(worker_pool.TaskFailedError, match=r"msgspec\.DecodeError"):
            helper.do("draw", "no drawing", [], str(tmp_path / "out"))
        assert "not a PNG picture" in str(helper.do("decode", __file__, "PNG"))
    finally:
        helper.close()


def test_closed_worker_process_does_nothing_more() -> None:
    """After `close` no process is started again."""
    helper = worker_pool.WorkerProcess()
    helper.close()

    with pytest.raises(worker_pool.WorkerLostError):
        helper.do("decode", __file__, "PNG")


def test_task_that_hangs_is_ended(tmp_path: Path) -> None:
    """Nobody waits for ever for a decoder; after it the next task is done as ever."""
    helper = worker_pool.WorkerProcess(max_task_seconds=0.05)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # a decoder waits for ever for what nobody writes
    try:
        with pytest.raises(worker_pool.WorkerLostError):
            helper.do("decode", str(fifo), "PNG")
        helper._max_task_seconds = worker_pool.MAX_TASK_SECONDS
        assert "not a PNG picture" in str(helper.do("decode", __file__, "PNG"))
    finally:
        helper.close()


def test_workshop_gives_up_after_a_second_try(tmp_path: Path) -> None:
    """What kills its process every time is an error in the end, and no endless loop."""
    shop = WorkerPool("test", workers=1, max_thread_pixels=0)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # a decoder waits for ever for what nobody writes
    before = children()
    future = shop.submit(lambda: shop.do("decode", str(fifo), "PNG", pixels=1))
    killed: set[int] = set()

    while not future.done():
        for worker in children() - before - killed:
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)
        time.sleep(0.01)

    assert isinstance(future.exception(), worker_pool.WorkerLostError)
    assert len(killed) == 2
    shop.close()


async def test_backlog_is_bounded_and_everything_is_drawn(make_world: WorldMaker) -> None:
    """More drawings than may wait in memory are taken from the books, one by one, until none is owed."""
    world = await make_world(limits=Limits.lifted(), accounts=[{"name": "main", "keys": ["key-one-of-main"]}])
    count = MAX_BACKLOG + 40
    await asyncio.gather(*(world.create() for _ in range(3)))
    await world.service.idle()
    await world.service.query(
        "INSERT INTO generations (id, account, key_sha256, model, cost_credits, created_at_ms, processing_at_ms,"
        " finish_at_ms, outcome, drawing_json) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {count}) SELECT 'gen_' || i, account, key_sha256, model, cost_credits, created_at_ms + i,"
        " processing_at_ms, finish_at_ms, outcome, CAST(replace(CAST(drawing_json AS TEXT), '512', '64') AS BLOB)"
        " FROM n, (SELECT * FROM generations LIMIT 1)"
    )
    await world.stop()

    await world.start()
    waiting = len(world.service._renderer._pending_tasks)
    await world.service.idle()

    assert waiting <= MAX_BACKLOG
    rows = await world.service.query("SELECT count(*) AS n FROM generations WHERE rendered_at_ms IS NULL")
    assert rows[0]["n"] == 0


def children() -> set[int]:
    """Give the processes that draw for this one."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if int(status[1]) == os.getpid() and status[0] != "Z" and b"batchkiln_service.media" in command:
                found.add(int(folder.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


DRAWING = """
import sys
from batchkiln_service.media.worker_pool import WorkerProcess
worker = WorkerProcess()
process = worker._running()
print(process.pid, flush=True)
worker.do("decode", sys.argv[1], "PNG")
"""


@contextmanager
def killed_while_drawing(folder: Path) -> Iterator[int]:
    """Start a process that waits for its worker process, kill it, and give that process's number."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    environment = os.environ | {"PYTHONPATH": str(Path(batchkiln.__file__).parents[1])}
    command = [sys.executable, "-c", DRAWING, str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        with fifo.open("wb"):  # opens once the worker process reads from it: then it is at work
            process.kill()
            yield worker
