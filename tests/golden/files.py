"""Golden files: a queue as readable SQL, and the state of service and disk at the same moment as JSON."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from batchkiln.core.responses import GenerationRecord, GenerationStatus, OutputLink
from support.fake_clock import FakeClock
from support.fake_service import LINK_LIFE, Create, FakeService, Generation, Request
from support.worker_world import World

FOLDER: Final = Path(__file__).parent
COMMAND: Final = "python tests/golden/make.py"
ACCOUNTS: Final = ("main", "second", "third", "fourth")
RECENT: Final = timedelta(minutes=5)
"""Requests that may still count in a minute."""

_BLOB: Final = re.compile(r"X'([0-9A-F]*)'")


def queue_file(version: int) -> Path:
    """Name the golden queue of a schema version."""
    return FOLDER / f"queue-{version}.sql"


def surroundings_file(version: int) -> Path:
    """Return the path of the file with the service's ledger and the disk."""
    return FOLDER / f"surroundings-{version}.json"


# --- the queue ---


def dump(path: Path) -> str:
    """Write a queue file as SQL that makes it again, its marks first; request bodies as the text that they are."""
    with closing(sqlite3.connect(path)) as connection:
        marks = [
            f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        return "\n".join([*marks, *(_BLOB.sub(_as_text, line) for line in connection.iterdump())]) + "\n"


def _as_text(blob: re.Match[str]) -> str:
    text = bytes.fromhex(blob[1]).decode().replace("'", "''")
    return f"CAST('{text}' AS BLOB)"


def load(version: int, path: Path) -> None:
    """Make the queue file of a golden one."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(queue_file(version).read_text("utf-8"))


def schema(path: Path) -> dict[str, str]:
    """Return the SQL of everything in a file, by name."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


# --- what is around it ---


class PairingService(FakeService):
    """Gives two outputs for a prompt that asks for two."""

    def record(self, generation: Generation) -> GenerationRecord:
        record = super().record(generation)
        if record.status is GenerationStatus.SUCCESS and "two views" in json.loads(generation.create.body)["prompt"]:
            until = self.clock.instant + LINK_LIFE
            record = GenerationRecord(
                id=record.id,
                status=record.status,
                status_word=record.status_word,
                created_at=record.created_at,
                cost_credits=record.cost_credits,
                outputs=(*record.outputs, OutputLink("image", f"https://files/{record.id}/2?until={until}", until)),
                error=None,
            )
        return record


def new_world(folder: Path, instant: datetime | None = None) -> World:
    """Return a world with the accounts of the golden files; open its queue if there is one."""
    clock = FakeClock() if instant is None else FakeClock(instant)
    world = World(folder, accounts=ACCOUNTS, clock=clock)
    world.service = PairingService(world.clock, limits=world.limits, day=world.day)
    return world


def surroundings_of(world: World) -> dict[str, Any]:
    """Return the service's ledger and the disk as JSON can hold them."""
    service, now = world.service, world.clock.instant
    recent = [request for request in service.requests if now - request.at < RECENT]
    return {
        "instant": now.isoformat(),
        "generations": [_told(generation) for generation in service.generations.values()],
        "requests": [[request.account, request.kind, request.at.isoformat()] for request in recent],
        "last_reads": {name: instants[-1].isoformat() for name, instants in service.reads.items()},
        "days": [[account, what, day.isoformat(), used] for (account, what, day), used in service._days.items()],
        "uploads": {url: content.decode() for url, content in service.uploads.items()},
        "files": {path: content.decode() for path, content in world.outputs.files.items()},
        "images": {path: content.decode() for path, content in world.inputs.files.items()},
    }


def _told(generation: Generation) -> dict[str, Any]:
    create = generation.create
    return {
        "id": generation.id,
        "account": generation.account,
        "idempotency_key": create.idempotency_key,
        "key_fingerprint": create.key_fingerprint,
        "is_video": create.is_video,
        "body": create.body.decode(),
        "created_at": generation.created_at.isoformat(),
        "cost": generation.cost,
        "seconds": generation.duration.total_seconds(),
        "ends_as": generation.ends_as.value,
        "refunded": generation.refunded,
        "is_forgotten": generation.is_forgotten,
    }


def resumed_world(folder: Path, version: int) -> World:
    """Open the golden queue of a version with this code, beside the service and the disk of its time."""
    load(version, folder / "queue.db")
    world = new_world(folder, instant_of(version))
    surround(world, version)
    return world


def instant_of(version: int, *, after: timedelta = timedelta(hours=1)) -> datetime:
    """Return the moment of the golden queue's last kill, or one after it."""
    return datetime.fromisoformat(_known(version)["instant"]) + after


def surround(world: World, version: int) -> None:
    """Restore the service and the disk of a golden queue into a world."""
    known, service = _known(version), world.service
    service.generations = {told["id"]: _generation(told) for told in known["generations"]}
    service.requests = [Request(account, kind, datetime.fromisoformat(at)) for account, kind, at in known["requests"]]
    for name, at in known["last_reads"].items():
        service.reads[name] = [datetime.fromisoformat(at)]
    for account, what, day, used in known["days"]:
        service._days[account, what, datetime.fromisoformat(day)] = used
    service.uploads = {url: text.encode() for url, text in known["uploads"].items()}
    world.outputs.files = {path: text.encode() for path, text in known["files"].items()}
    world.inputs.files = {path: text.encode() for path, text in known["images"].items()}


def _known(version: int) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(surroundings_file(version).read_text("utf-8"))
    return known


def _generation(told: dict[str, Any]) -> Generation:
    create = Create(
        told["account"], told["is_video"], told["body"].encode(), told["idempotency_key"], told["key_fingerprint"]
    )
    return Generation(
        id=told["id"],
        account=told["account"],
        create=create,
        created_at=datetime.fromisoformat(told["created_at"]),
        cost=told["cost"],
        duration=timedelta(seconds=told["seconds"]),
        ends_as=GenerationStatus(told["ends_as"]),
        refunded=told["refunded"],
        is_forgotten=told["is_forgotten"],
    )
