"""Accounts, credits and generations in SQLite: the work that request handlers do inside database jobs.

Every function here takes the connection and the instant; none reads a clock or waits. Refusals are
raised as `ApiError` and undo what the function had written.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from batchkiln.service.config import Limits
from batchkiln.service.errors import ApiError
from batchkiln.service.ledger import Calendar, Generation, Outcome, end_of, poll_wait_seconds

PURGE_BATCH = 20  # files deleted along with one request, so that none of them becomes slow


@dataclass(frozen=True, slots=True)
class Drawing:
    """All that decides how an output looks: the same drawing gives the same bytes."""

    kind: str
    mode: str
    model: str
    prompt: str
    width: int
    height: int
    output_format: str
    duration_seconds: int | None
    with_audio: bool
    image_mode: str | None
    asset_ids: tuple[str, ...]

    def as_json(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, stored: bytes) -> "Drawing":
        """Read the stored form."""
        fields = orjson.loads(stored)
        fields["asset_ids"] = tuple(fields["asset_ids"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Output:
    """A rendered file and what a client is told of it."""

    type: str
    file_name: str
    content_type: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """A create that passed every check that needs no books."""

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
    rehearsed_prompt: str | None  # set when the prompt asks to fail the first time
    drawing: Drawing
    output: Output | None = None  # given when nothing has to be rendered


@dataclass(frozen=True, slots=True)
class Record:
    """A generation with its output, if there is one; `drawing` is set when it has yet to be drawn."""

    generation: Generation
    output: Output | None
    drawing: Drawing | None = None


class Store:
    """The books' rules that need the account's limits and days."""

    def __init__(self, limits: Limits, calendar: Calendar) -> None:
        self._limits = limits
        self._calendar = calendar

    def replay(
        self, connection: sqlite3.Connection, *, account: str, idempotency_key: str
    ) -> Callable[[str, str, str], str] | None:
        """Look an idempotency key up; None when it is new.

        The result takes (api key hash, path, body hash) and returns the generation's id, or refuses.
        """
        row = connection.execute(
            "SELECT i.path, i.body_sha256, i.generation_id, g.key_sha256 FROM idempotency i"
            " JOIN generations g ON g.id = i.generation_id WHERE i.account = ? AND i.key = ?",
            (account, idempotency_key),
        ).fetchone()
        if row is None:
            return None

        def resolve(key_sha256: str, path: str, body_sha256: str) -> str:
            if (row["path"], row["body_sha256"]) != (path, body_sha256):
                raise ApiError(409, "idempotency_conflict", "this Idempotency-Key was used with another request body")
            if row["key_sha256"] != key_sha256:
                raise ApiError(403, "wrong_api_key", "replay with the API key of the first request")
            return str(row["generation_id"])

        return resolve

    def check(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        """Refuse a generation that cannot be paid for or has no place, with the first reason."""
        if new.max_cost_credits is not None and new.cost_credits > new.max_cost_credits:
            raise ApiError(
                422,
                "cost_exceeds_max",
                f"the quote is {new.cost_credits} credits, max_cost_credits is {new.max_cost_credits:g}",
            )
        self._check_balance(connection, new)
        self._check_day_budget(connection, new)
        self._check_active(connection, new)

    def enter(self, connection: sqlite3.Connection, new: NewGeneration) -> None:
        """Reserve the credits and enter the generation. Service rule 3.1."""
        _insert_generation(connection, new)
        _enter_credits(connection, new.account, "reserve", new.cost_credits, new.id, at_ms=new.created_at_ms)
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
        row = connection.execute(
            "SELECT count(*) AS active FROM generations WHERE account = ? AND ended_at_ms IS NULL",
            (new.account,),
        ).fetchone()
        if row["active"] >= self._limits.active_generations:
            raise ApiError(
                429,
                "generation_active",
                f"{row['active']} of {self._limits.active_generations} active generations",
                retry_after_seconds=max(1, round(self._limits.poll_interval_seconds)),
            )

    def check_poll(self, generation: Generation, now_ms: int) -> int | None:
        """Return the gap since the last poll in ms. Raises ApiError 429 when it is too short (rule 4.4)."""
        if generation.last_polled_at_ms is None:
            return None
        wait = poll_wait_seconds(
            generation.last_polled_at_ms,
            now_ms,
            interval_ms=round(self._limits.poll_interval_seconds * 1000),
        )
        if generation.ended_at_ms is None and wait is not None:
            raise ApiError(429, "rate_limited", "this generation was polled just now", retry_after_seconds=wait)
        return now_ms - generation.last_polled_at_ms


def settle(connection: sqlite3.Connection, account: str, now_ms: int) -> None:
    """Write down which generations have ended by now, and refund the failed ones, once. Service rule 3.1.

    A canceled generation is charged: the service says nothing of a refund.
    """
    rows = connection.execute(
        "SELECT * FROM generations WHERE account = ? AND ended_at_ms IS NULL AND finish_at_ms <= ?",
        (account, now_ms),
    ).fetchall()
    for row in rows:
        generation = _generation(row)
        end_ms = end_of(generation)
        if end_ms is None or end_ms > now_ms:
            continue
        connection.execute(
            "UPDATE generations SET ended_at_ms = ? WHERE id = ? AND ended_at_ms IS NULL",
            (end_ms, generation.id),
        )
        kind = "refund" if generation.outcome == "failed" else "charge"
        _enter_credits(connection, account, kind, generation.cost_credits, generation.id, at_ms=end_ms)


def find_generation(connection: sqlite3.Connection, generation_id: str) -> Record | None:
    """Return a generation of any account."""
    row = connection.execute("SELECT * FROM generations WHERE id = ?", (generation_id,)).fetchone()
    if row is None:
        return None
    output = connection.execute("SELECT * FROM outputs WHERE generation_id = ?", (generation_id,)).fetchone()
    return Record(_generation(row), _output(output) if output else None)


def find_drawing(connection: sqlite3.Connection, generation_id: str) -> Drawing:
    """Return what a generation has to look like."""
    row = connection.execute("SELECT drawing_json FROM generations WHERE id = ?", (generation_id,)).fetchone()
    return Drawing.from_json(row["drawing_json"])


def find_unrendered(connection: sqlite3.Connection) -> list[tuple[str, Drawing]]:
    """Return the generations whose file is still owed: what a crash has interrupted."""
    rows = connection.execute(
        "SELECT id, drawing_json FROM generations WHERE rendered_at_ms IS NULL AND outcome = 'success'"
        " AND ended_at_ms IS NULL ORDER BY created_at_ms"
    ).fetchall()
    return [(row["id"], Drawing.from_json(row["drawing_json"])) for row in rows]


def find_expired_files(connection: sqlite3.Connection, ended_before_ms: int) -> list[str]:
    """Return a few file names whose retention is over, and forget them."""
    rows = connection.execute(
        "SELECT g.id, o.file_name FROM generations g JOIN outputs o ON o.generation_id = g.id"
        " WHERE g.is_purged = 0 AND g.ended_at_ms <= ? LIMIT ?",
        (ended_before_ms, PURGE_BATCH),
    ).fetchall()
    connection.executemany("UPDATE generations SET is_purged = 1 WHERE id = ?", [(row["id"],) for row in rows])
    return [row["file_name"] for row in rows]


def mark_polled(connection: sqlite3.Connection, generation_id: str, now_ms: int) -> None:
    """Remember when a generation was last polled."""
    connection.execute("UPDATE generations SET last_polled_at_ms = ? WHERE id = ?", (now_ms, generation_id))


def mark_rendered(connection: sqlite3.Connection, generation_id: str, output: Output, now_ms: int) -> None:
    """Enter a generation's file; a file drawn a second time replaces the first."""
    connection.execute(
        "INSERT OR REPLACE INTO outputs (generation_id, type, file_name, content_type, size_bytes, sha256)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (generation_id, output.type, output.file_name, output.content_type, output.size_bytes, output.sha256),
    )
    connection.execute(
        "UPDATE generations SET rendered_at_ms = coalesce(rendered_at_ms, ?) WHERE id = ?",
        (now_ms, generation_id),
    )


def mark_helped(connection: sqlite3.Connection, generation_id: str, outcome: Outcome, now_ms: int) -> None:
    """End the waiting of a generation that stays pending, as the service's support would."""
    connection.execute(
        "UPDATE generations SET processing_at_ms = ?, finish_at_ms = ?, outcome = ?"
        " WHERE id = ? AND ended_at_ms IS NULL",
        (now_ms, now_ms, outcome, generation_id),
    )


def was_rehearsed(connection: sqlite3.Connection, account: str, prompt_sha256: str) -> bool:
    """Say whether a prompt that fails only once has had its failure."""
    found = connection.execute(
        "SELECT 1 FROM generations WHERE account = ? AND rehearsed_prompt = ? LIMIT 1",
        (account, prompt_sha256),
    ).fetchone()
    return found is not None


def balance_credits(connection: sqlite3.Connection, account: str) -> int:
    """Return what an account has left."""
    row = connection.execute("SELECT balance_credits FROM accounts WHERE name = ?", (account,)).fetchone()
    return int(row["balance_credits"])


def open_account(
    connection: sqlite3.Connection, name: str, *, credits_bought: int, subscription: bool, now_ms: int
) -> None:
    """Enter an account at its first start; later only its subscription follows the configuration."""
    known = connection.execute("SELECT 1 FROM accounts WHERE name = ?", (name,)).fetchone()
    if known is None:
        connection.execute("INSERT INTO accounts VALUES (?, 0, ?)", (name, subscription))
        _enter_credits(connection, name, "purchase", credits_bought, None, at_ms=now_ms)
    else:
        connection.execute("UPDATE accounts SET subscription = ? WHERE name = ?", (subscription, name))


def may_use(connection: sqlite3.Connection, account: str) -> bool:
    """Service rule 5.8: an active subscription, or credits left."""
    row = connection.execute(
        "SELECT balance_credits > 0 OR subscription AS allowed FROM accounts WHERE name = ?", (account,)
    ).fetchone()
    return bool(row["allowed"])


def usage_of(connection: sqlite3.Connection, account: str, day: int) -> dict[str, int]:
    """Return what an account has used on a day: credits, upload_files, upload_bytes."""
    row = connection.execute(
        "SELECT credits, upload_files, upload_bytes FROM day_usage WHERE account = ? AND day = ?",
        (account, day),
    ).fetchone()
    return dict(row) if row else {"credits": 0, "upload_files": 0, "upload_bytes": 0}


def add_usage(
    connection: sqlite3.Connection,
    account: str,
    day: int,
    *,
    credits: int = 0,  # noqa: A002 - the field's word
    upload_files: int = 0,
    upload_bytes: int = 0,
) -> None:
    """Count towards a day's budgets; nothing is ever taken back (Service section 8)."""
    connection.execute(
        "INSERT INTO day_usage VALUES (?, ?, ?, ?, ?) ON CONFLICT (account, day) DO UPDATE SET"
        " credits = credits + excluded.credits, upload_files = upload_files + excluded.upload_files,"
        " upload_bytes = upload_bytes + excluded.upload_bytes",
        (account, day, credits, upload_files, upload_bytes),
    )


def _enter_credits(
    connection: sqlite3.Connection, account: str, kind: str, amount: int, generation_id: str | None, *, at_ms: int
) -> None:
    connection.execute(
        "INSERT INTO credit_entries (account, kind, credits, generation_id, at_ms) VALUES (?, ?, ?, ?, ?)",
        (account, kind, amount, generation_id, at_ms),
    )
    sign = {"purchase": 1, "refund": 1, "reserve": -1, "charge": 0}[kind]
    connection.execute(
        "UPDATE accounts SET balance_credits = balance_credits + ? WHERE name = ?", (sign * amount, account)
    )


def _insert_generation(connection: sqlite3.Connection, new: NewGeneration) -> None:
    connection.execute(
        "INSERT INTO generations (id, account, key_sha256, model, cost_credits, created_at_ms,"
        " processing_at_ms, finish_at_ms, outcome, rehearsed_prompt, drawing_json)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            new.drawing.as_json(),
        ),
    )
    connection.execute(
        "INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)",
        (new.account, new.idempotency_key, new.path, new.body_sha256, new.id),
    )
    if new.output is not None:
        mark_rendered(connection, new.id, new.output, new.created_at_ms)


def _generation(row: sqlite3.Row) -> Generation:
    names = Generation.__dataclass_fields__
    return Generation(**{name: row[name] for name in names})


def _output(row: sqlite3.Row) -> Output:
    names = Output.__dataclass_fields__
    return Output(**{name: row[name] for name in names})
