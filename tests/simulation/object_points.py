"""Object storage of a simulated world: a folder that outlives the program, with points before and after each change.

An object is complete or absent, as at a real one; the program may die before it, while it is sent, and after it. A call
may fail, also after it was carried out: a reply that is lost, or later than the caller waits.
"""

import hashlib
import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchkiln.api.app_context import outgoing_folder
from batchkiln.core.errors import StorageError
from batchkiln.object_storage import ObjectFolder

from .crash_point_counter import Points
from .queue_sessions import is_there, location_of, reading

if TYPE_CHECKING:
    from .plan import Plan

PLACE_OF_OBJECTS: Final = "local://@PROGRAM@/out"
SCHEME: Final = "local://"


_STAGED: Final = """
    SELECT job.output_dir, event.detail FROM event
    JOIN item ON item.id = event.item_id JOIN job ON job.id = item.job_id
    WHERE event.kind = 'file_staged' AND item.state = 'downloading' AND event.attempt_id = item.attempt_id
      AND NOT EXISTS (SELECT 1 FROM event AS later
                      WHERE later.item_id = event.item_id AND later.attempt_id = event.attempt_id
                        AND later.id > event.id AND later.kind IN ('file_staged', 'file_saved', 'file_gone')
                        AND json_extract(later.detail, '$.number') = json_extract(event.detail, '$.number'))
"""


def with_objects(manifests: dict[str, str]) -> dict[str, str]:
    """Return manifests by their names whose outputs are objects."""
    return {name: _with_objects(text) if name.endswith(".yaml") else text for name, text in manifests.items()}


def _with_objects(text: str) -> str:
    place = f"output: {{dir: '{PLACE_OF_OBJECTS}'"
    return text.replace("output: {", f"{place}, ") if "output: {" in text else f"{text}{place}}}\n"


class StorageFaults:
    """Lets calls of object storage fail as a plan says."""

    def __init__(self, plan: "Plan", now: Callable[[], float]) -> None:
        self.has_failed = False  # in this life of the program
        self._plan = plan
        self._now = now
        self._chance = random.Random(f"{plan.seed} storage")

    def meet(self) -> None:
        """Fail, or do nothing."""
        trouble, now = self._plan.storage, self._now()
        if trouble is None or now >= self._plan.calm_at:
            return
        is_out = any(outage.moment <= now < outage.moment + outage.seconds for outage in trouble.outages)
        if is_out or self._chance.random() < trouble.probability:
            self.has_failed = True
            raise StorageError("the simulated storage does not reply", is_lasting=is_out)


def unprotected(queue: Path) -> Iterator[str]:
    """Tell of files that are recorded as complete on the disk, and are whole neither there nor as objects at a death.

    Of what a restored queue calls staged, the lost records may have said that it is an object.
    """
    if not is_there(queue):
        return
    try:
        with reading(queue) as session:
            rows = session.execute(_STAGED).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return  # it died while it made them
    for row in rows:
        staged, url = json.loads(row["detail"]), row["output_dir"]
        place = outgoing_folder(location_of(queue)) / hashlib.sha256(url.encode()).hexdigest()[:16]
        paths = place / staged["name"], Path(url.removeprefix(SCHEME)) / staged["name"]
        if not any(_is_whole(path, staged["sha256"]) for path in paths):
            yield f"{staged['name']} is paid and recorded as staged, and is whole nowhere at a death"


def _is_whole(path: Path, sha256: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


class PointedObjects(ObjectFolder):
    """Objects as files of a folder, each created whole and never over another one."""

    def __init__(self, url: str, points: Points, faults: StorageFaults) -> None:
        super().__init__(url)
        self._points = points
        self._faults = faults

    def holds(self, name: str, *, size_bytes: int, sha256: str) -> bool | None:
        self._faults.meet()
        return super().holds(name, size_bytes=size_bytes, sha256=sha256)

    def create(self, source: Path, name: str, *, sha256: str, media_type: str) -> None:
        del sha256, media_type
        self._create(name, source.read_bytes())

    def write(self, name: str, content: bytes) -> None:
        self._create(name, content)

    def remove(self, name: str) -> None:
        self._faults.meet()
        self._points.pass_by("before remove_object")
        self._path(name).unlink(missing_ok=True)
        self._points.pass_by("after remove_object")

    def _path(self, name: str) -> Path:
        return Path(self.url_of(name).removeprefix(SCHEME))

    def _create(self, name: str, content: bytes) -> None:
        self._faults.meet()
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
        self._faults.meet()
