"""Damage queue files, and record whether the program refuses them or charges nothing twice."""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

from batchkiln.core.errors import BatchkilnError, QueueUnusable
from batchkiln.store.sqlite.file_session import SCHEMA_VERSION, translated
from batchkiln.store.sqlite.preflight import corruption_error
from batchkiln.worker.loop import first_error
from golden.files import instant_of, load, new_world, surround
from support.fake_service import Create, FakeService
from support.worker_world import World

PAGE: Final = 4096

Harm = Callable[[bytearray, int, Random], None]
"""(file, first byte of the page, chance): changes the page."""


def zero(content: bytearray, start: int, _: Random) -> None:
    """Overwrite the page with zeros, as if it had never been written."""
    content[start : start + PAGE] = bytes(PAGE)


def garble(content: bytearray, start: int, chance: Random) -> None:
    """Overwrite the page with random bytes, as if a block of another file had been written there."""
    content[start : start + PAGE] = chance.randbytes(PAGE)


def flip(content: bytearray, start: int, chance: Random) -> None:
    """Flip one bit of a byte that is not zero; zeros are mostly free space."""
    used = [place for place in range(start, start + PAGE) if content[place]]
    content[chance.choice(used)] ^= 1 << chance.randrange(8)


HARMS: Final[dict[str, Harm]] = {"zero": zero, "garble": garble, "flip": flip}


def sound_queue(folder: Path) -> Path:
    """Make the golden queue's file, as a run that was killed leaves it, its log folded in."""
    path = folder / "queue.db"
    load(SCHEMA_VERSION, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    Path(f"{path}.lock").touch()
    return path


def queue_with_log(folder: Path) -> Path:
    """Make the golden queue's file as a kill leaves it while the last commits are in the log alone."""
    made = folder / "made"
    made.mkdir(parents=True)
    path = sound_queue(made)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = value || ''")
        connection.execute("INSERT INTO meta VALUES ('late', 'in the log')")
        for left in made.iterdir():
            shutil.copy(left, folder)
    shutil.rmtree(made)
    return folder / "queue.db"


def pages(path: Path) -> range:
    """Number the pages of a file from 0."""
    return range(path.stat().st_size // PAGE)


@dataclass(frozen=True)
class Fate:
    """What became of a queue: `refusal` is how a command would have told it, `service` what it knows at the end."""

    refusal: BaseException | None
    service: FakeService | None = None
    creates: tuple[Create, ...] = ()
    requests: int = 0
    items: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # state and error by name

    def troubles(self) -> list[str]:
        """Name what no damage may lead to."""
        if self.service is None:
            return []
        paid = Counter(json.loads(generation.create.body)["prompt"] for generation in self.service.generations.values())
        twice = [f"{prompt!r} was paid {count} times" for prompt, count in paid.items() if count > _MADE.get(prompt, 1)]
        return [*self.service.violations, *twice]


_MADE: Final = {"a second-try": 2}  # its first generation failed


async def fate_of(folder: Path, world_before: World | None = None) -> Fate:
    """Drive the queue that stands in a folder.

    Service, disk and clock are those of the golden queue, or of a world that drove another copy of it meanwhile.
    """
    instant = instant_of(SCHEMA_VERSION) if world_before is None else world_before.clock.instant + timedelta(hours=1)
    try:
        world = new_world(folder, instant)
    except BatchkilnError as error:
        return Fate(error)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return Fate(_as_told(error, folder))
    if world_before is None:
        surround(world, SCHEMA_VERSION)
    else:
        world.service, world.outputs, world.inputs = world_before.service, world_before.outputs, world_before.inputs
        world.service.clock, world.service.is_dead = world.clock, False
    return await _fate_in(world, folder)


async def _fate_in(world: World, folder: Path) -> Fate:
    refusal: BaseException | None = None
    creates, requests = len(world.service.creates), len(world.service.requests)
    try:
        await world.run()
    except Exception as error:  # noqa: BLE001  which one it was is what is asked
        refusal = first_error(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(refusal, sqlite3.DatabaseError | UnicodeDecodeError):
            refusal = _as_told(refusal, folder)
    items = _items(world) if refusal is None else {}
    world.close()
    made = tuple(world.service.creates[creates:])
    return Fate(refusal, world.service, made, len(world.service.requests) - requests, items)


def _items(world: World) -> dict[str, tuple[str, str | None]]:
    return {name: (state, code) for name, state, code in world.rows("SELECT name, state, error_code FROM item")}


def _as_told(error: sqlite3.DatabaseError | UnicodeDecodeError, folder: Path) -> BaseException:
    """Convert an error as the store's connection does, which this world does not use."""
    if isinstance(error, UnicodeDecodeError):
        return corruption_error(folder / "queue.db", "a text in it is not UTF-8")
    return translated(error, folder / "queue.db")


def is_told(error: BaseException | None) -> bool:
    """Return whether the error names the damage and the next step, or a version that cannot read the file."""
    return isinstance(error, QueueUnusable) and ("the queue is damaged" in str(error) or "a newer" in str(error))


def is_said(error: BaseException | None) -> bool:
    """Return whether the program reported damage or ended with a database error.

    A changed word of the schema breaks a statement.
    """
    return is_told(error) or isinstance(error, sqlite3.OperationalError)
