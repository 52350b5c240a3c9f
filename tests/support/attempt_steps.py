"""An attempt taken through its life by hand, and what the queue then says of the item and the credits."""

from datetime import datetime
from typing import NamedTuple

from batchkiln.core.budget import JobCredits
from batchkiln.core.job import Attempt, Order, SavedOutput
from batchkiln.core.outcome_errors import EXPIRED, error_of_record
from batchkiln.core.outcomes import (
    CREATES,
    DOWNLOADS,
    FACTS,
    Answer,
    Download,
    Fact,
    Outcome,
    outcome_of_create,
    outcome_of_read,
)
from batchkiln.core.queue_changes import Committed, Facts, Preparation, Priced
from batchkiln.core.queue_types import Candidate, DownloadTask, NewAttempt, Scope, Viewpoint
from batchkiln.core.rate_limits import RequestKind, RequestNote
from batchkiln.core.responses import Accepted, ErrorInfo, GenerationRecord, RecordRead
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store import attempts, commit as committing, preparations
from batchkiln.store.row_types import attempt_of

from .builders import NOON, day_of
from .worker_world import PROFILE, World

NOW_MS = to_milliseconds(NOON)
DAY_MS = to_milliseconds(day_of(NOON))
NEXT_DAY_MS = DAY_MS + 86_400_000


class Standing(NamedTuple):
    """What the queue says. `days` and `job_days` are the credits per day that are not zero."""

    item: str
    attempt: str
    money: tuple[int, int, int]
    days: dict[int, int]
    job_days: dict[int, int]


def begin(world: World, *, cost: int = 10, account: str = "main", at: datetime = NOON) -> Attempt | None:
    """Plan and record an attempt for the first queued item, quoted at `cost`."""
    item_id = world.one("SELECT min(id) FROM item WHERE state = 'queued'")
    quote(world, item_id, cost)
    return record(world, item_id, cost=cost, account=account, at=at)


def quote(world: World, item_id: int, cost: int) -> None:
    """Keep the price of an item's recipe."""
    recipe_id = world.one("SELECT recipe_id FROM item WHERE id = ?", item_id)
    prepared(world, candidate(item_id, recipe_id=recipe_id), Priced(cost))


def record(world: World, item_id: int, *, cost: int, account: str = "main", at: datetime = NOON) -> Attempt | None:
    """Record an attempt, planned with `cost`."""
    viewpoint = viewpoint_of(world, account)
    note = RequestNote(viewpoint.account_id, RequestKind.CREATE, at, (day_of(at),))
    return world.write(attempts.begin_attempt, NewAttempt(item_id, viewpoint, "key-1", cost, note), keep_seconds=300.0)


def commit(world: World, attempt_id: int, outcome: Outcome, facts: Facts | None = None, now: int = NOW_MS) -> ItemState:
    """Apply an outcome; return the item's state."""
    at = from_milliseconds(now)
    day = lambda instant: day_of(instant or at)  # noqa: E731  one line of the store
    return world.write(committing.commit, attempt_id, outcome, facts or Facts(), now, day).state


def answered(
    world: World, attempt_id: int, answer: Answer, error: ErrorInfo, now: int = NOW_MS, *, is_contact: bool = True
) -> ItemState:
    """Commit what a reply to the last send means that names no generation."""
    attempt = attempt_of(committing.attempt_row(world.connection, attempt_id))
    facts = Facts(error=error, reason=error.summary, is_contact=is_contact)
    return commit(world, attempt_id, CREATES[answer, attempt.was_in_doubt], facts, now)


def known(world: World, attempt_id: int, fact: Fact, error: ErrorInfo | None = None, now: int = NOW_MS) -> ItemState:
    """Commit what became known without a reply."""
    return commit(world, attempt_id, FACTS[fact], Facts(error=error), now)


def accepted(world: World, attempt_id: int, reply: GenerationRecord, now: int = NOW_MS) -> ItemState:
    """Commit an accepted create."""
    attempt = attempt_of(committing.attempt_row(world.connection, attempt_id))
    return commit(world, attempt_id, outcome_of_create(attempt, Accepted(reply)), Facts(record=reply), now)


def read(world: World, attempt_id: int, reply: GenerationRecord, now: int = NOW_MS) -> ItemState:
    """Commit a read of the generation."""
    facts = Facts(error=error_of_record(reply), record=reply)
    return commit(world, attempt_id, outcome_of_read(RecordRead(reply)), facts, now)


def downloaded(world: World, task: DownloadTask, step: Download, saved: SavedOutput | None = None) -> Committed:
    """Commit how far the files are."""
    facts = Facts(error=EXPIRED if step is Download.GONE else None, saved=saved)
    return world.write(committing.commit, task.attempt.id, DOWNLOADS[step], facts, NOW_MS, day_of)


def candidate(item_id: int, *, recipe_id: int = 1, job_id: int = 1) -> Candidate:
    """Return a candidate for the next item of a recipe."""
    return Candidate(
        item_id=item_id,
        job_id=job_id,
        recipe_id=recipe_id,
        priority=0,
        index=item_id,
        order=Order.MANIFEST,
        cost=10,
        cap=None,
        money=JobCredits(),
        job_is_working=False,
    )


def prepared(world: World, of: Candidate, result: Preparation) -> None:
    """Record what a preparation came to."""
    world.write(preparations.record_preparation, PROFILE, of, result, NOW_MS)


def viewpoint_of(world: World, account: str = "main") -> Viewpoint:
    """Look as an account that takes all jobs which name none."""
    return Viewpoint(account_of(world, account), PROFILE, account, is_first=True, scope=Scope())


def account_of(world: World, name: str = "main") -> int:
    world.connection.execute("INSERT INTO account (profile, name) VALUES ('test', ?) ON CONFLICT DO NOTHING", (name,))
    account_id: int = world.one("SELECT id FROM account WHERE name = ?", name)
    return account_id


def standing(world: World, item: str = "item-1") -> Standing:
    """Return where an item, its latest attempt and all credits are."""
    attempt = world.rows(
        "SELECT attempt.state FROM attempt JOIN item ON item.id = attempt.item_id WHERE item.name = ? "
        "ORDER BY number DESC LIMIT 1",
        item,
    )
    days = world.rows("SELECT day_start_at, sum(credits) FROM account_day GROUP BY 1 HAVING sum(credits) <> 0")
    job_days = world.rows("SELECT day_start_at, credits FROM job_day WHERE credits <> 0")
    return Standing(
        item=str(world.state(item)),
        attempt=attempt[0][0] if attempt else "",
        money=world.money(),
        days={row[0]: row[1] for row in days},
        job_days={row[0]: row[1] for row in job_days},
    )
