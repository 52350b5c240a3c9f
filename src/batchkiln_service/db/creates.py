"""Creates: replays, the checks that need the database, and the insertion of a generation with its reserve.

Every function takes the connection and the instant; none reads a clock or waits. Refusals are raised as `ApiError`,
and the writes before them are rolled back.
"""

import math
import sqlite3
from typing import Final

from msgspec import Struct

from batchkiln_service.config import Limits
from batchkiln_service.db.admission import Caller
from batchkiln_service.db.credits import add_usage, balance_credits, may_use, transfer, usage_of
from batchkiln_service.db.generations import mark_rendered
from batchkiln_service.db.sql import load_queries
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.lifecycle import Generation, Outcome
from batchkiln_service.rules.render_spec import Output, RenderSpec
from batchkiln_service.rules.windows import Calendar, poll_wait_seconds

_SQL: Final = load_queries("creates")


class Sent(Struct, frozen=True):
    """The identity of a create: requests with equal fields are replays of each other."""

    idempotency_key: str
    path: str
    body_sha256: str


class NewGeneration(Struct, frozen=True):
    """A create that passed every check that does not need the database."""

    id: str
    account: str
    key_sha256: str
    idempotency_key: str
    path: str
    body_sha256: str
    model: str
    cost_credits: int
    max_cost_credits: float | None
    created_at_ms: int
    processing_at_ms: int | None
    finish_at_ms: int | None
    outcome: Outcome
    rehearsed_prompt: str | None  # set if the prompt asks to fail the first time
    render_spec: RenderSpec
    output: Output | None = None  # set if nothing has to be rendered


class CreateStore:
    """The checks and writes that need the account's limits and calendar."""

    def __init__(self, limits: Limits, calendar: Calendar, *, time_scale: float = 1.0) -> None:
        self._limits = limits
        self._calendar = calendar
        self._time_scale = time_scale

    def replay(self, connection: sqlite3.Connection, caller: Caller, sent: Sent) -> str | None:
        """Return the generation of an earlier request with this key; None if the key is new.

        Raise ApiError 409 for another body, and 403 for another API key. Service rules 4.2 and 4.3.
        """
        row = connection.execute(_SQL["find_idempotency_key"], (caller.account, sent.idempotency_key)).fetchone()
        if row is None:
            return None
        if (row["path"], row["body_sha256"]) != (sent.path, sent.body_sha256):
            raise ApiError(409, "idempotency_conflict", "this Idempotency-Key was used with another request body")
        if row["key_sha256"] != caller.key_sha256:
            raise ApiError(403, "wrong_api_key", "replay with the API key of the first request")
        return str(row["generation_id"])

    def check(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        """Raise ApiError for the first reason to refuse: price, access, credits, day's budget or active generations."""
        if new.max_cost_credits is not None and new.cost_credits > new.max_cost_credits:
            raise ApiError(
                422,
                "cost_exceeds_max",
                f"the quote is {new.cost_credits} credits, max_cost_credits is {new.max_cost_credits:g}",
            )
        if not may_use(connection, new.account):
            raise ApiError(403, "credits_required", "generation needs a subscription or remaining purchased credits")
        self._check_balance(connection, new)
        self._check_day_budget(connection, new)
        self._check_active(connection, new)

    def enter(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        """Reserve the credits and insert the generation. Service rule 3.1."""
        _insert_generation(connection, new)
        transfer(connection, new.account, "reserve", new.cost_credits, generation_id=new.id, at_ms=new.created_at_ms)
        add_usage(connection, new.account, self._calendar.day_of(new.created_at_ms), credits=new.cost_credits)

    def _check_balance(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        balance = balance_credits(connection, new.account)
        if balance < new.cost_credits:
            raise ApiError(402, "insufficient_credits", f"the quote is {new.cost_credits} credits, {balance} remain")

    def _check_day_budget(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        used = usage_of(connection, new.account, self._calendar.day_of(new.created_at_ms))["credits"]
        limit = self._limits.credits_per_day
        if used + new.cost_credits > limit:
            raise ApiError(
                429,
                "credit_budget_exhausted",
                f"the quote is {new.cost_credits} credits, {max(0, limit - used)} of {limit} remain this day",
                retry_after_seconds=self._calendar.wait_seconds(new.created_at_ms),
            )

    def _check_active(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        row = connection.execute(_SQL["active_generations"], (new.account,)).fetchone()
        if row["active"] >= self._limits.active_generations:
            raise ApiError(
                429,
                "generation_active",
                f"{row['active']} of {self._limits.active_generations} active generations",
                retry_after_seconds=max(1, math.ceil(self._limits.poll_interval_seconds)),
            )

    def check_poll(self, generation: Generation, now_ms: int) -> None:
        """Raise ApiError 429 if an active generation is polled too soon. Service rule 4.4."""
        if generation.ended_at_ms is not None:
            return
        wait = poll_wait_seconds(
            generation.last_polled_at_ms,
            now_ms,
            interval_seconds=self._limits.poll_interval_seconds,
            time_scale=self._time_scale,
        )
        if wait is not None:
            raise ApiError(429, "rate_limited", "this generation was polled just now", retry_after_seconds=wait)


def _insert_generation(connection: sqlite3.Connection, new: NewGeneration) -> None:
    connection.execute(
        _SQL["insert_generation"],
        (
            new.id,
            new.account,
            new.key_sha256,
            new.model,
            new.cost_credits,
            new.created_at_ms,
            new.processing_at_ms,
            new.finish_at_ms,
            new.outcome,
            new.rehearsed_prompt,
            new.render_spec.as_json(),
        ),
    )
    connection.execute(
        _SQL["insert_idempotency_key"], (new.account, new.idempotency_key, new.path, new.body_sha256, new.id)
    )
    if new.output is not None:
        mark_rendered(connection, new.id, new.output, new.created_at_ms)


def count_equal_bodies(connection: sqlite3.Connection, account: str, body_sha256: str) -> int:
    """Return the number of an account's generations that were created with equal bodies."""
    return int(connection.execute(_SQL["count_equal_bodies"], (account, body_sha256)).fetchone()[0])


def find_by_idempotency_key(connection: sqlite3.Connection, key: str) -> sqlite3.Row | None:
    """Return the row of the generation created with an idempotency key, in any account."""
    row: sqlite3.Row | None = connection.execute(_SQL["find_by_idempotency_key"], (key,)).fetchone()
    return row
