"""What happened in a world, in order: its fates, what the service saw, and what the queue recorded."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from .plan import Plan
from .queue_sessions import is_there, reading

_REQUESTS: Final = (
    "SELECT arrived_at_ms, account, kind, path, status, code, fault, generation_id FROM requests ORDER BY id"
)
_EVENTS: Final = (
    "SELECT event.at, job.name AS job, item.name AS item, event.kind, event.state, event.detail FROM event"
    " JOIN job ON job.id = event.job_id LEFT JOIN item ON item.id = event.item_id ORDER BY event.id"
)
_FATES: Final = (
    "kills",
    "copies",
    "restores",
    "interventions",
    "decisions",
    "outages",
    "clock_steps",
    "troubles",
    "storage",
    "rests",
    "hook",
    "few",
    "revoked_at",
    "stranger_until",
    "cuts_power",
)


class Happening(NamedTuple):
    """Something that happened; `moment` is in virtual seconds since the world began."""

    moment: float
    who: str
    what: str


def tell(folder: Path, plan: Plan, happenings: Iterable[Happening]) -> list[str]:
    """Return the story, a line for each thing, in the order of its moments."""
    epoch = plan.starts_at.timestamp()
    told = [*happenings, *_requests(folder, epoch), *_events(folder, epoch)]
    lines = (_line(happening, plan.starts_at) for happening in sorted(told, key=lambda happening: happening.moment))
    return [line.replace(f"{folder}/", "") for line in lines]


def summary(plan: Plan) -> list[str]:
    """Describe what a world is made of, without what it lacks."""
    items = sum(text.count("{id:") for text in plan.manifests.values())
    made_of = [f"{len(plan.manifests)} jobs with {items} items, accounts {', '.join(plan.accounts)}"]
    made_of += [f"{name}: {value}" for name in _FATES if (value := getattr(plan, name))]
    made_of += [f"service {name}: {value}" for name, value in plan.service.items()]
    return made_of + [line for text in plan.manifests.values() for line in text.splitlines()]


def _requests(folder: Path, epoch: float) -> Iterator[Happening]:
    for row in _rows(folder / "service" / "service.db", _REQUESTS):
        told = " ".join(str(row[name]) for name in ("path", "status", "code", "generation_id") if row[name] is not None)
        fault = f" [{row['fault']}]" if row["fault"] else ""
        yield Happening(
            row["arrived_at_ms"] / 1000 - epoch, f"service/{row['account']}", f"{row['kind']} {told}{fault}"
        )


def _events(folder: Path, epoch: float) -> Iterator[Happening]:
    """Give the queue's events, by the machine's clock or the service's: whichever the program went by."""
    queue = folder / "program" / "queue.db"
    if not is_there(queue):
        return
    with reading(queue) as session:
        rows = session.execute(_EVENTS).fetchall()
    for row in rows:
        detail = json.loads(row["detail"] or "{}")
        told = " ".join(f"{name}={value}" for name, value in detail.items())
        state = f" -> {row['state']}" if row["state"] else ""
        yield Happening(row["at"] / 1000 - epoch, "queue", f"{row['job']}/{row['item']} {row['kind']}{state} {told}")


def _line(happening: Happening, starts_at: datetime) -> str:
    at = (starts_at + timedelta(seconds=happening.moment)).astimezone(UTC)
    return f"{at:%m-%d %H:%M:%S}.{at.microsecond // 1000:03} {happening.who:<14} {happening.what}".rstrip()


def _rows(path: Path, sql: str) -> list[sqlite3.Row]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(sql).fetchall()
