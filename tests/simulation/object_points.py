"""Object storage of a simulated world: a folder that outlives the program, with points before and after each change.

An object is complete or absent, as at a real one; the program may die before it, while it is sent, and after it.
"""

import os
from pathlib import Path
from typing import Final

from batchkiln.object_storage import ObjectFolder

from .crash_point_counter import Points

PLACE_OF_OBJECTS: Final = "local://@PROGRAM@/out"
SCHEME: Final = "local://"


class PointedObjects(ObjectFolder):
    """Objects as files of a folder, each created whole and never over another one."""

    def __init__(self, url: str, points: Points) -> None:
        super().__init__(url)
        self._points = points

    def create(self, source: Path, name: str, *, sha256: str, media_type: str) -> None:
        del sha256, media_type
        self._create(name, source.read_bytes())

    def write(self, name: str, content: bytes) -> None:
        self._create(name, content)

    def remove(self, name: str) -> None:
        self._points.pass_by("before remove_object")
        self._path(name).unlink(missing_ok=True)
        self._points.pass_by("after remove_object")

    def _path(self, name: str) -> Path:
        return Path(self.url_of(name).removeprefix(SCHEME))

    def _create(self, name: str, content: bytes) -> None:
        path = self._path(name)
        self._points.pass_by("before create_object")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.sent")
        part.write_bytes(content)
        try:
            self._points.pass_by("within create_object")
            os.link(part, path)
        finally:
            part.unlink()
        self._points.pass_by("after create_object")
