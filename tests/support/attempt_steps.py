"""An attempt taken through its life by hand, and what the queue then says of the item and the money."""

from datetime import datetime
from typing import NamedTuple

from batchkiln.core.job import Attempt
from batchkiln.core.queue_types import NewAttempt, Scope, Viewpoint
from batchkiln.core.rate_limits import RequestKind, RequestNote
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store import attempts, preparations

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
    world.write(preparations.record_quote, profile=PROFILE, item_id=item_id, recipe_id=recipe_id, cost=cost, now=NOW_MS)


def record(world: World, item_id: int, *, cost: int, account: str = "main", at: datetime = NOON) -> Attempt | None:
    """Record an attempt, planned with `cost`."""
    viewpoint = viewpoint_of(world, account)
    note = RequestNote(viewpoint.account_id, RequestKind.CREATE, at, (day_of(at),))
    return world.write(attempts.record_attempt, NewAttempt(item_id, viewpoint, "key-1", cost, note), keep_seconds=300.0)


def viewpoint_of(world: World, account: str = "main") -> Viewpoint:
    """Look as an account that takes all jobs which name none."""
    return Viewpoint(account_of(world, account), PROFILE, account, is_first=True, scope=Scope())


def account_of(world: World, name: str = "main") -> int:
    world.connection.execute("INSERT OR IGNORE INTO account (profile, name) VALUES ('test', ?)", (name,))
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
