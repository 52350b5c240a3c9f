"""Jobs: names, progress, problem items, and the work left.

Triggers maintain the counters: a job of a million items is read as fast as a job of ten.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.budget import JobCredits
from batchkiln.core.errors import Diagnostic, InputError, command_arguments
from batchkiln.core.polling import retention_ends_at
from batchkiln.core.shown import Shown
from batchkiln.core.states import FINAL_STATES, UNDER_WAY, ItemState
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.accounts import Accounts
from batchkiln.store.item_sources import blocked_groups, stale_counts
from batchkiln.store.row_types import instant, recipe_of
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_path_of
from batchkiln.store.sql import query
from batchkiln.store.usage import job_credits, money_of

if TYPE_CHECKING:
    from batchkiln.core.job import AttemptState, Recipe
    from batchkiln.core.queue_types import Outstanding, Scope

WAITING: Final = "waiting"
"""The word of the counters for queued items that wait for what other items make. It is no state."""

UNDER_WAY_SHOWN: Final = 100
_VARIANTS_NAMED: Final = 10
BLOCKERS_SHOWN: Final = 20
_MOVING: Final = (ItemState.QUEUED, *UNDER_WAY)


class Credits(Struct, frozen=True):
    """A job's credits: reserved without a definite reply, charged for generations, refunded for failed ones."""

    reserved: int
    charged: int
    refunded: int

    @property
    def spent(self) -> int:
        """The credits that are charged and not refunded."""
        return self.charged - self.refunded


class UnderWay(Struct, frozen=True):
    """An item that was sent and has not ended. `status` is the service's word for its generation.

    `retention_ends_at` is when the service may delete the paid result; None while no id is known.
    """

    item: str
    state: ItemState
    account: str
    since: datetime
    sends: int
    generation_id: str | None
    status: str | None
    retention_ends_at: datetime | None


class ProblemGroup(Struct, frozen=True):
    """A group of failed, rejected, expired or held items with the same cause.

    `example` is the latest error message, and `attempt` how the attempt of that item ended. Both are None if the latest
    item has left the group, and `attempt` if it was never sent.
    """

    state: ItemState
    code: str
    count: int
    example: str | None
    attempt: "AttemptState | None" = None


class Blocker(Struct, frozen=True):
    """An item that ended without a result, and the number of queued items that wait for its file.

    If they wait for a chosen one of `group`, it is the first of the group's items without a result, and too few others
    can still be kept.
    """

    job: str
    item: str
    state: ItemState
    count: int
    group: str | None = None


class JobSummary(Shown, Struct, frozen=True):
    """A job's progress.

    `items` contains every state, even those without items. `queued_cost` is the cost of the queued items by the known
    quotes, without those over their caps; `queued_unquoted` of them have no quote. If `is_finished`, only a person can
    change an item.

    `waiting` of the queued items wait for outputs of other items. If nothing else of the job can begin, `stuck` of
    these wait for a person. `blockers` are the items without a result that they wait for, those with the most waiting
    items first. `to_review` done items wait for a review, `to_choose` groups of variants for a choice. `filename` is
    the pattern of the files' names below `output_dir`.
    """

    name: str
    description: str
    profile: str
    manifest_path: str
    output_dir: str
    is_paused: bool
    created_at: datetime
    items: Mapping[ItemState, int]
    credits: Credits
    budget_credits: int | None
    budget_credits_per_day: int | None
    queued_cost: int
    queued_unquoted: int
    under_way: tuple[UnderWay, ...]
    problems: tuple[ProblemGroup, ...]
    waiting: int = 0
    stuck: int = 0
    blockers: tuple[Blocker, ...] = ()
    to_review: int = 0
    to_choose: int = 0
    filename: str = ""

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "job", self.name
        yield "profile", self.profile
        yield "items", [f"{count:,} {state}" for state, count in self.items.items() if count] or 0
        yield "credits", self.credits.spent
        yield "reserved", self.credits.reserved or None
        yield "paused", self.is_paused or None

    @property
    def files_dir(self) -> str:
        """The folder that contains all files of the job: `output_dir`, or one below it."""
        *folders, _ = self.filename.replace("{job}", self.name).split("/")
        return "/".join([self.output_dir, *takewhile(lambda folder: "{" not in folder, folders)])

    @property
    def total(self) -> int:
        """The job's number of items."""
        return sum(self.items.values())

    @property
    def is_finished(self) -> bool:
        """Whether only a person can change anything: nothing is under way, and no queued item may start."""
        return not self.left

    @property
    def waits_in_pause(self) -> int:
        """The number of queued items, if the job is paused; else 0."""
        return self.items[ItemState.QUEUED] if self.is_paused else 0

    @property
    def has_ended(self) -> bool:
        """Whether the job has items, and each has ended."""
        return self.total > 0 and self.total == sum(self.items[state] for state in FINAL_STATES)

    @property
    def budget_left(self) -> int | None:
        """The credits that the job's budget leaves beside those charged and reserved; None without a budget."""
        if self.budget_credits is None:
            return None
        return max(0, self.budget_credits - self.credits.spent - self.credits.reserved)

    def budget_for(self, cost: int) -> int:
        """Return the budget in credits that pays for what is spent, reserved and queued, and for `cost` more."""
        return self.credits.spent + self.credits.reserved + self.queued_cost + cost

    def without(self, unselected: Mapping[tuple[int, ItemState], int]) -> "JobSummary":
        """Return the progress of a run that does not begin so many items of each recipe and state."""
        items = dict(self.items)
        for (_, state), number in unselected.items():
            items[state] = max(0, items[state] - number)
        return replace(self, items=items, stuck=min(self.stuck, items[ItemState.QUEUED]))

    @property
    def left(self) -> int:
        """The number of items that can still change without a person."""
        queued = 0 if self.is_paused else self.items[ItemState.QUEUED] - self.stuck
        return sum(self.items[state] for state in UNDER_WAY) + queued


class JobAtWork(Struct, frozen=True):
    """An unfinished job. `accounts` is empty if it uses the profile's first account."""

    id: int
    name: str
    profile: str
    accounts: tuple[str, ...]
    output_dir: str


class Work(Struct, frozen=True):
    """Jobs that may begin new attempts, and (profile, account) pairs that have something under way.

    `unfinished` contains the pairs whose items are not all held for a person.
    """

    jobs: tuple[JobAtWork, ...]
    under_way: frozenset[tuple[str, str]]
    unfinished: frozenset[tuple[str, str]] = frozenset()


_NAMES_COMPARED: Final = 2_000  # comparing is slow, and a job may have a million names


_PREFIX_LENGTH: Final = 3


class Jobs:
    """Reads jobs by name."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def names(self) -> tuple[str, ...]:
        """Return the names of all jobs, the oldest first."""
        return tuple(row["name"] for row in self._connection.execute(query("job_names")))

    def stale_counts(self) -> Counter[str]:
        """Return the number of done items that are stale, by the name of their job; it looks at each source."""
        return stale_counts(self._connection)

    def names_of(self, ids: Collection[int]) -> tuple[str, ...]:
        """Return the names of jobs by their ids, the oldest first."""
        rows = self._connection.execute(query("job_names_of"), {"ids": json.dumps(sorted(ids))})
        return tuple(row["name"] for row in rows)

    def summary(self, job_name: str) -> JobSummary:
        """Return a job's progress. Raise `InputError` for an unknown job."""
        self.id_of(job_name)
        job = self._connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
        params = {"job_id": job["id"], "profile": job["profile"], "limit": UNDER_WAY_SHOWN}
        counts = {row["state"]: row["n"] for row in self._connection.execute(query("job_tally"), params)}
        waiting = counts.pop(WAITING, 0)
        cost = self._connection.execute(query("queued_cost"), params).fetchone()
        to_review, to_choose = self.to_decide(job["id"])
        return JobSummary(
            name=job["name"],
            description=job["description"],
            profile=job["profile"],
            manifest_path=job["manifest_path"],
            output_dir=local_path_of(self._connection, job["output_dir"]),
            is_paused=bool(job["is_paused"]),
            created_at=from_milliseconds(job["created_at"]),
            items={state: counts.get(state, 0) + (waiting if state is ItemState.QUEUED else 0) for state in ItemState},
            waiting=waiting,
            stuck=self._stuck(job["id"]) if waiting and not any(counts.get(state) for state in _MOVING) else 0,
            blockers=self._blockers(job["id"]) if waiting else (),
            credits=Credits(reserved=job["reserved"], charged=job["charged"], refunded=job["refunded"]),
            budget_credits=job["budget_credits"],
            budget_credits_per_day=job["budget_credits_per_day"],
            queued_cost=cost["cost_credits"],
            queued_unquoted=cost["unquoted"],
            under_way=tuple(_under_way(row) for row in self._connection.execute(query("job_under_way"), params)),
            problems=tuple(_problem_group(row) for row in self._connection.execute(query("job_problems"), params)),
            to_review=to_review,
            to_choose=to_choose,
            filename=job["filename"],
        )

    def unquoted(self, job_name: str, *, limit: int) -> "list[tuple[Recipe, int]]":
        """Return the first recipes of queued items without a quote, each with the number of these items."""
        job = self._connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
        params = {"job_id": job["id"], "profile": job["profile"], "limit": limit}
        return [(recipe_of(row), row["n"]) for row in self._connection.execute(query("queued_unquoted"), params)]

    def to_decide(self, job_id: int) -> tuple[int, int]:
        """Return how many items of a job wait for a review, and how many of its groups for a choice."""
        params = {"job_id": job_id}
        items = self._connection.execute(query("count_to_review"), params).fetchone()[0]
        return int(items), int(self._connection.execute(query("count_to_choose"), params).fetchone()[0])

    def _stuck(self, job_id: int) -> int:
        return int(self._connection.execute(query("job_stuck"), {"job_id": job_id}).fetchone()[0])

    def _blockers(self, job_id: int) -> tuple[Blocker, ...]:
        rows = self._connection.execute(query("job_blockers"), {"job_id": job_id, "limit": BLOCKERS_SHOWN})
        items = [Blocker(row["job"], row["item"], ItemState(row["state"]), row["n"]) for row in rows]
        awaited = self._connection.execute(query("groups_waited_for"), {"job_id": job_id}).fetchall()
        lacking = blocked_groups(self._connection, [row["id"] for row in awaited])
        groups = [
            Blocker(row["job"], *lacking[row["id"]], count=row["n"], group=row["name"])
            for row in awaited
            if row["id"] in lacking
        ]
        return tuple(sorted(items + groups, key=lambda each: -each.count)[:BLOCKERS_SHOWN])

    def work(self, scope: "Scope") -> Work:
        """Return the work in a scope. Items under way count even if their job is not in the scope."""
        jobs = tuple(
            JobAtWork(
                row["id"],
                row["name"],
                row["profile"],
                tuple(json.loads(row["accounts"])),
                local_path_of(self._connection, row["output_dir"]),
            )
            for row in self._connection.execute(query("jobs_at_work"))
            if scope.holds(row["id"])
        )
        accounts = self._connection.execute(query("accounts_under_way")).fetchall()
        under_way = frozenset((row["profile"], row["name"]) for row in accounts)
        unfinished = frozenset((row["profile"], row["name"]) for row in accounts if row["is_unfinished"])
        return Work(jobs, under_way, unfinished)

    def outstanding(self, scope: "Scope") -> "Outstanding":
        """Count the items in a scope that can still change without a person."""
        from batchkiln.store.planner_snapshot import outstanding  # noqa: PLC0415  only a run needs the planner

        return outstanding(self._connection, scope)

    def id_of(self, name: str) -> int:
        """Return a job's id. Raise `InputError` for an unknown job, and for what is not a name."""
        if not isinstance(name, str):  # a Python program may give anything
            raise InputError(f"a job is given by its name, a text, not by {type(name).__name__}; nothing was changed")
        found = self._connection.execute(query("find_job"), {"name": name}).fetchone()
        if found is not None:
            return int(found[0])
        names = [row[0] for row in self._connection.execute(query("job_names"))]
        if name.endswith((".yaml", ".yml")):
            remedy = "this is the name of a file: enqueue it, and then give the name after `job:` in it"
        else:
            remedy = "run `batchkiln status` for a list of jobs"
        raise InputError([_unknown(f"the queue has no job {name!r}", name, names, remedy)])

    def items_named(self, job_id: int, *, job: str, names: Sequence[str]) -> dict[str, tuple[int, ItemState]]:
        """Return id and state of each named item. Raise one `InputError` for all unknown names."""
        found: dict[str, tuple[int, ItemState]] = {}
        mistakes: list[Diagnostic] = []
        for name in dict.fromkeys(names):
            if not isinstance(name, str):  # as above
                raise InputError(
                    f"an item is given by its id, a text, not by {type(name).__name__}; nothing was changed"
                )
            row = self._connection.execute(query("named_item"), {"job_id": job_id, "name": name}).fetchone()
            if row is not None:
                found[name] = (row[0], ItemState(row[1]))
                continue
            mistakes.append(self._no_item(job_id, job, name))
        if mistakes:
            raise InputError(mistakes)
        return found

    def _no_item(self, job_id: int, job: str, name: str) -> Diagnostic:
        params = {"job_id": job_id, "name": name, "limit": _VARIANTS_NAMED + 1}
        variants = [row[0] for row in self._connection.execute(query("variants_named"), params)]
        if variants:
            more = " and more" if len(variants) > _VARIANTS_NAMED else ""
            remedy = f"name its items: {command_arguments(*variants[:_VARIANTS_NAMED])}{more}"
            return Diagnostic(f"{name!r} is a group of variants of the job {job!r}, and no item", remedy=remedy)
        near = _names_near(self._connection, job_id, name)
        remedy = f"run `batchkiln items {command_arguments(job)}` for a list of its items"
        return _unknown(f"the job {job!r} has no item {name!r}", name, near, remedy)

    def unfinished(self) -> frozenset[str]:
        """Return the jobs with items queued or under way, including paused ones."""
        return frozenset(row["name"] for row in self._connection.execute(query("open_jobs")))

    def known(self, names: Collection[str]) -> frozenset[str]:
        """Return which of these names are jobs of the queue."""
        found = (self._connection.execute(query("find_job"), {"name": name}).fetchone() for name in names)
        return frozenset(name for name, row in zip(names, found, strict=True) if row is not None)

    def problem_items(self, job_name: str) -> dict[tuple[ItemState, str], str]:
        """Return the name of the latest item of each group of problem items, by state and error code."""
        rows = self._connection.execute(query("problem_items"), {"job": job_name})
        return {(ItemState(row["state"]), row["error_code"]): row["name"] for row in rows}

    def service_time(self, job_name: str, machine_now: datetime) -> datetime:
        """Return the best estimate of a job's service time; the machine's time for an unknown job."""
        row = self._connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
        return machine_now if row is None else Accounts(self._connection).service_time(row["profile"], machine_now)

    def account_names(self, job_name: str) -> str:
        """Return the accounts that a job names, as a JSON array; empty for the profile's first account."""
        return str(self._connection.execute(query("job_by_name"), {"name": job_name}).fetchone()["accounts"])

    def credits(self, job_name: str, day: datetime, *, for_item: int | None = None) -> JobCredits:
        """Return a job's credits as the planner sees them on a service day, or as it does for one of its items."""
        row = self._connection.execute(query("job_by_name"), {"name": job_name}).fetchone()
        return money_of(row, job_credits(self._connection, row["id"], [day], apart_from=for_item))

    def item_count(self, job_name: str) -> int:
        """Return how many items a job has. Raise `InputError` for an unknown job."""
        self.id_of(job_name)
        return int(self._connection.execute(query("job_by_name"), {"name": job_name}).fetchone()["items"])

    def models(self, job_name: str) -> list[str]:
        """Return the models of a job's items."""
        params = {"job_id": self.id_of(job_name)}
        return [row[0] for row in self._connection.execute(query("job_models"), params)]


def _under_way(row: Row) -> UnderWay:
    created_at = instant(row["generation_created_at"])
    return UnderWay(
        item=row["item"],
        state=ItemState(row["state"]),
        account=row["account"],
        since=from_milliseconds(row["recorded_at"]),
        sends=row["sends"],
        generation_id=row["generation_id"],
        status=row["generation_status"],
        retention_ends_at=retention_ends_at(created_at) if created_at else None,
    )


def _problem_group(row: Row) -> ProblemGroup:
    from batchkiln.core.job import AttemptState  # noqa: PLC0415  most jobs have no problem

    attempt = row["attempt_state"]
    return ProblemGroup(
        state=ItemState(row["state"]),
        code=row["error_code"],
        count=row["n"],
        example=row["error_message"],
        attempt=None if attempt is None else AttemptState(attempt),
    )


def _names_near(connection: Session, job_id: int, name: str) -> list[str]:
    for begin in (name[:_PREFIX_LENGTH], ""):
        params = {"job_id": job_id, "begin": begin, "limit": _NAMES_COMPARED}
        if names := [row[0] for row in connection.execute(query("names_near"), params)]:
            return names
    return []


def _unknown(reason: str, name: str, names: Sequence[str], remedy: str) -> Diagnostic:
    meant = did_you_mean(closest(name, names, most=3), "'")
    return Diagnostic(reason, remedy=f"{meant} {remedy}".lstrip())
