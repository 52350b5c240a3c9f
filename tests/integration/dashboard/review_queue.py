"""A queue of which a person reviews pictures, clips and variants."""

import hashlib
from functools import cache
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw

from batchkiln.core.job import InputFile, ItemSpec, VariantGroup
from integration.dashboard.sample_queue import film
from support.queue_file import QueueFile, spec

COLORS = ((150, 90, 40), (40, 110, 150), (90, 140, 60), (140, 60, 120))
PROMPT = "A barn owl on a mossy branch in moonlight, soft rim light, shallow depth of field, 85 mm"


def paint(path: Path, number: int) -> bytes:
    """Write a picture that is told from the others."""
    path.write_bytes(content := _drawn(number))
    return content


@cache
def _drawn(number: int) -> bytes:
    picture = Image.new("RGB", (1024, 768), COLORS[number % len(COLORS)])
    ImageDraw.Draw(picture).ellipse((300, 150 + 20 * number, 700, 550 + 20 * number), fill=(235, 225, 205))
    picture.save(file := BytesIO(), "PNG")
    return file.getvalue()


def variants(name: str, count: int, choose: int | None, inputs: tuple[InputFile, ...] = ()) -> list[ItemSpec]:
    """Give the items of a group, as a manifest makes them."""
    group = VariantGroup(name, choose)
    return [spec(f"{name}-{n}", prompt=PROMPT, group=group, inputs=inputs) for n in range(1, count + 1)]


def finish(queue: QueueFile, name: str, path: Path, content: bytes, media_type: str) -> None:
    """Bring an item to its end with this file."""
    queue.finish(name, str(path))
    queue.connection.execute(
        "UPDATE output SET sha256 = ?, size_bytes = ?, media_type = ? WHERE path = ?",
        (hashlib.sha256(content).hexdigest(), len(content), media_type, str(path)),
    )


def fill_review(folder: Path) -> QueueFile:
    """Make a queue of a group to choose from, a picture and a clip to review, and an item that needs neither."""
    queue = QueueFile(folder / "queue.db")
    source = folder / "branch.png"
    content = paint(source, 2)
    image = InputFile(str(source), hashlib.sha256(content).hexdigest(), len(content), "image/png")
    queue.apply(
        [
            *variants("owl", 4, 1, (image,)),
            spec("fox", needs_review=True, prompt="A red fox in the snow"),
            spec("fox-clip", needs_review=True, prompt="The fox looks up", inputs=(image,)),
            spec("plain"),
        ]
    )
    queue.quote(5)
    for number, name in enumerate(("owl-1", "owl-2", "owl-3", "owl-4", "fox", "plain")):
        path = folder / f"{name}.png"
        finish(queue, name, path, paint(path, number), "image/png")
    film(folder / "fox-clip.mp4")
    finish(queue, "fox-clip", folder / "fox-clip.mp4", (folder / "fox-clip.mp4").read_bytes(), "video/mp4")
    return queue
