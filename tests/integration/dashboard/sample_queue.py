"""A queue with something of everything, and its dashboard, as a browser would ask it."""

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import av
import numpy as np
from PIL import Image

from batchkiln.core.states import Event
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.dashboard.server import ServedDashboard
from support.queue_file import NOW, QueueFile, spec

AT = from_milliseconds(NOW)
STRANGE = 'odd/../<b>"name"&?é'
SCRIPT = "<script>alert(1)</script>{{ 7 * 7 }}"


def draw(path: Path) -> None:
    Image.new("RGB", (640, 360), (20, 120, 90)).save(path)


def film(path: Path) -> None:
    path.write_bytes(_filmed())


@cache
def _filmed() -> bytes:
    with av.open(file := BytesIO(), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        for number in range(20):
            picture = np.full((180, 320, 3), number * 10, dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return file.getvalue()


def fill(folder: Path) -> QueueFile:
    """Make a queue of a picture, a clip, a failure, a rejection, a hold, something active and something queued."""
    queue = QueueFile(folder / "queue.db")
    names = ("picture", "clip", "gone", "failed", "refused", "held", "active", "queued", STRANGE)
    queue.apply(
        [spec(name, prompt=f"{name} {SCRIPT}", metadata='{"kind":"a <i>kind</i>"}') for name in names],
        profile="local",
    )
    queue.quote(5)
    for name, make, media_type, end in (
        ("picture", draw, "image/png", "png"),
        ("clip", film, "video/mp4", "mp4"),
        ("gone", None, "image/png", "png"),
    ):
        path = folder / f"{name}.{end}"
        queue.finish(name, str(path))
        if make is not None:
            make(path)
        content = path.read_bytes() if make is not None else b"gone"
        queue.connection.execute(
            "UPDATE output SET sha256 = ?, size_bytes = ?, media_type = ? WHERE path = ?",
            (hashlib.sha256(content).hexdigest(), len(content), media_type, str(path)),
        )
    queue.fail("failed")
    queue.refuse("refused")
    queue.move("held", Event.INPUT_LOST, code="input_gone")
    queue.send("active", generation_id="gen_active")
    return queue


def scene(template: Path, folder: Path) -> QueueFile:
    """Copy what `fill` has made, and its closed queue; it takes a tenth of the time."""
    shutil.copytree(template, folder, dirs_exist_ok=True)
    queue = QueueFile(folder / "queue.db")
    queue.connection.execute("UPDATE output SET path = replace(path, ?, ?)", (f"{template}/", f"{folder}/"))
    return queue


@dataclass(slots=True)
class Page:
    """An answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def form(self) -> dict[str, str]:
        """The hidden fields of its form."""
        found = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.text))
        assert found, self.text
        return found

    @property
    def form_target(self) -> str:
        """Where its form is sent."""
        return unescape(re.findall(r'<form[^>]* action="([^"]*)"', self.text)[0])


class Browser:
    """Asks a dashboard, and keeps its cookie."""

    def __init__(self, served: ServedDashboard, session: aiohttp.ClientSession) -> None:
        self.served = served
        self.session = session

    async def get(self, path: str, **options: Any) -> Page:  # noqa: ANN401  aiohttp's own
        return await self.send("GET", path, **options)

    async def send(self, method: str, path: str, **options: Any) -> Page:  # noqa: ANN401  aiohttp's own
        options = {"allow_redirects": False} | options
        async with self.session.request(method, self.served.url + path, **options) as response:
            return Page(response.status, response.headers, await response.read())

    async def submit(self, path: str, **fields: str) -> Page:
        """Send a form as our own page does."""
        return await self.send("POST", path, data=fields, headers={"Origin": self.served.url})
