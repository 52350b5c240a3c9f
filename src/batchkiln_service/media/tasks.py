"""The work of the workshop: functions of plain values, so that they can be done in a thread or in another process."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from batchkiln_service.media.clips import save_clip
from batchkiln_service.media.input_images import UnreadablePictureError, examine
from batchkiln_service.media.motion import painter_of
from batchkiln_service.media.pictures import draw_picture, save_picture
from batchkiln_service.rules.render_spec import RenderSpec

Json = object


def draw(drawing_json: str, inputs: Sequence[str], path: str) -> Json:
    """Draw to a file, which is on disk then; return its [size in bytes, sha256]. Raises whatever goes wrong."""
    drawing, target = RenderSpec.from_json(drawing_json.encode()), Path(path)
    pictures = [Path(name) for name in inputs]
    if drawing.kind == "image":
        save_picture(draw_picture(drawing, pictures), target, drawing.output_format)
    else:
        save_clip(
            painter_of(drawing, pictures),
            target,
            size=(drawing.width, drawing.height),
            duration_seconds=drawing.duration_seconds or 1,
            tone=1 + len(drawing.prompt) % 20 if drawing.with_audio else None,
        )
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return [file.tell(), digest]


def look_at(path: str, kind: str) -> Json:
    """Decode an uploaded picture; return its [width, height], or the text of what is wrong with it."""
    try:
        return list(examine(Path(path), kind))
    except UnreadablePictureError as error:
        return str(error)


TASKS: Final[Mapping[str, Callable[..., Json]]] = {"draw": draw, "look_at": look_at}
