"""What a driver has to know before it builds its workers: which jobs and which accounts have work."""

import json
import sqlite3
from dataclasses import dataclass

from batchkiln.core.queue_types import Scope
from batchkiln.store.sql import query


@dataclass(frozen=True, slots=True)
class JobAtWork:
    """A job that is not ended. `accounts` is empty where the profile's first account is meant."""

    id: int
    name: str
    profile: str
    accounts: tuple[str, ...]
    output_dir: str


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs that may begin new attempts, and (profile, account) pairs that have something under way."""

    jobs: tuple[JobAtWork, ...]
    under_way: frozenset[tuple[str, str]]


def find_work(connection: sqlite3.Connection, scope: Scope) -> Work:
    """Return the work of a scope; what is under way counts whatever job it belongs to."""
    jobs = tuple(
        JobAtWork(row["id"], row["name"], row["profile"], tuple(json.loads(row["accounts"])), row["output_dir"])
        for row in connection.execute(query("jobs_at_work"))
        if scope.holds(row["id"])
    )
    under_way = frozenset((row["profile"], row["name"]) for row in connection.execute(query("accounts_under_way")))
    return Work(jobs, under_way)
