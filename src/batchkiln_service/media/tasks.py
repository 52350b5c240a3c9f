"""The tasks of the worker pool: functions of plain values, which run in a thread or in another process."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from batchkiln_service.media.clips import save_clip
from batchkiln_service.media.input_images import UnreadablePictureError, examine
from batchkiln_service.media.pictures import draw_picture, save_picture
from batchkiln_service.rules.render_spec import RenderSpec

Json = object


def draw(spec_json: str, inputs: Sequence[str], path: str) -> Json:
    """Render to a file and flush it to disk; return [size in bytes, SHA-256]. Raises whatever goes wrong."""
    spec, target = RenderSpec.from_json(spec_json.encode()), Path(path)
    pictures = [Path(name) for name in inputs]
    if spec.kind == "image":
        save_picture(draw_picture(spec, pictures), target, spec.output_format)
    else:
        save_clip(spec, pictures, target)
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
