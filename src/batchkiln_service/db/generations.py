"""The rows of generations: looked up, settled at their end, rendered, polled and purged.

Every function takes the connection and the instant; none reads a clock or waits.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from batchkiln_service.db.sql import load_queries
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.lifecycle import Generation, Outcome, end_of
from batchkiln_service.rules.render_spec import Output, RenderSpec

_SQL: Final = load_queries("generations")

PURGE_BATCH = 200  # rows per transaction, so that no request waits long


class Record(Struct, frozen=True):
    """A generation with its output, if there is one; `render_spec` is set if it has yet to be rendered."""

    generation: Generation
    output: Output | None
    render_spec: RenderSpec | None = None


def settle(connection: sqlite3.Connection, account: str, now_ms: int) -> None:
    """Record the end of the account's due generations; the schema charges or refunds each once."""
    rows = connection.execute(_SQL["due_generations"], (account, now_ms)).fetchall()
    for row in rows:
        generation = _generation(row)
        end_ms = end_of(generation)
        if end_ms is None or end_ms > now_ms:
            continue
        connection.execute(_SQL["end_generation"], (end_ms, generation.id))


def find_generation(connection: sqlite3.Connection, generation_id: str) -> Record | None:
    """Return a generation of any account."""
    row = connection.execute(_SQL["find_generation"], (generation_id,)).fetchone()
    if row is None:
        return None
    output = connection.execute(_SQL["find_output"], (generation_id,)).fetchone()
    return Record(_generation(row), _output(output) if output else None)


def find_render_spec(connection: sqlite3.Connection, generation_id: str) -> RenderSpec:
    """Return the render specification of a generation."""
    row = connection.execute(_SQL["find_render_spec"], (generation_id,)).fetchone()
    return RenderSpec.from_json(row["drawing_json"])


def find_unrendered(connection: sqlite3.Connection, limit: int = -1) -> list[tuple[str, RenderSpec]]:
    """Return active generations whose output is not rendered yet, oldest first; `limit` -1 returns all."""
    rows = connection.execute(_SQL["unrendered_generations"], (limit,)).fetchall()
    return [(row["id"], RenderSpec.from_json(row["drawing_json"])) for row in rows]


def settle_unseen(connection: sqlite3.Connection, finished_before_ms: int, now_ms: int) -> None:
    """Settle the due generations of all accounts that finished before an instant."""
    rows = connection.execute(_SQL["accounts_with_due_generations"], (finished_before_ms,)).fetchall()
    for row in rows:
        settle(connection, row["account"], now_ms)


def find_expired_files(
    connection: sqlite3.Connection, ended_before_ms: int, *, skipped: int = 0
) -> list[tuple[str, str | None]]:
    """Return a batch of expired generations with their file name, if any; the first `skipped` are left out."""
    rows = connection.execute(_SQL["expired_files"], (ended_before_ms, PURGE_BATCH, skipped)).fetchall()
    return [(row["id"], row["file_name"]) for row in rows]


def mark_purged(connection: sqlite3.Connection, generation_ids: Iterable[str]) -> None:
    """Record that the files of these generations are deleted."""
    connection.executemany(_SQL["mark_purged"], [(each,) for each in generation_ids])


def kept_files(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the files of all retained generations."""
    rows = connection.execute(_SQL["kept_files"])
    return {row["file_name"] for row in rows}


def count_expiring(connection: sqlite3.Connection, *, after_ms: int, until_ms: int) -> int:
    """Return how many successes that ended in (`after_ms`, `until_ms`] still have their file."""
    row = connection.execute(_SQL["count_expiring"], (after_ms, until_ms)).fetchone()
    return int(row["n"])


def count_active(connection: sqlite3.Connection) -> int:
    """Return the number of active generations of all accounts."""
    return int(connection.execute(_SQL["count_active"]).fetchone()[0])


def first_end_kept(connection: sqlite3.Connection) -> int | None:
    """Return the earliest end of a retained generation, recorded or due; None without one."""
    row = connection.execute(_SQL["first_end"]).fetchone()
    unseen = connection.execute(_SQL["first_unsettled_end"]).fetchone()
    return min((end for end in (row["first"], unseen["first"]) if end is not None), default=None)


def mark_polled(connection: sqlite3.Connection, generation_id: str, now_ms: int) -> None:
    """Record a poll."""
    connection.execute(_SQL["mark_polled"], (now_ms, generation_id))


def mark_shown(connection: sqlite3.Connection, generation_id: str, now_ms: int) -> None:
    """Record that a reply shows the generation. The client learns of the end from the first reply after it."""
    connection.execute(_SQL["mark_shown"], (now_ms, generation_id))


def mark_rendered(connection: sqlite3.Connection, generation_id: str, output: Output, now_ms: int) -> None:
    """Record the rendered output of a generation; it replaces an earlier one."""
    connection.execute(
        _SQL["replace_output"],
        (generation_id, output.type, output.file_name, output.content_type, output.size_bytes, output.sha256),
    )
    connection.execute(
        # A file that was rendered again has to be deleted again, also if the retention has ended meanwhile.
        _SQL["mark_rendered"],
        (now_ms, generation_id),
    )


def set_outcome(connection: sqlite3.Connection, generation_id: str, outcome: Outcome, now_ms: int) -> None:
    """Set the outcome of an active generation and let it end now."""
    connection.execute(_SQL["set_outcome"], (now_ms, now_ms, outcome, generation_id))


def has_failed_before(connection: sqlite3.Connection, account: str, prompt_sha256: str) -> bool:
    """Return whether a prompt with `[fail-once]` has failed before in an account."""
    found = connection.execute(_SQL["rehearsed_prompt"], (account, prompt_sha256)).fetchone()
    return found is not None


def _generation(row: sqlite3.Row) -> Generation:
    names = Generation.__struct_fields__
    return Generation(**{name: row[name] for name in names})


def _output(row: sqlite3.Row) -> Output:
    names = Output.__struct_fields__
    return Output(**{name: row[name] for name in names})


def settle_all(connection: sqlite3.Connection, now_ms: int) -> None:
    """Settle the due generations of all accounts, as their own next request would."""
    for row in connection.execute(_SQL["accounts_with_active_generations"]).fetchall():
        settle(connection, row["name"], now_ms)


def end_pending(connection: sqlite3.Connection, generation_id: str, outcome: Outcome, now_ms: int) -> bool:
    """End an active generation now; return False if a success still has to be rendered.

    A failure is refunded. Raise ApiError 404 or 409.
    """
    record = find_generation(connection, generation_id)
    if record is None:
        raise ApiError(404, "not_found", "there is no such generation")
    account = record.generation.account
    settle(connection, account, now_ms)
    if _has_ended(connection, generation_id):
        raise ApiError(409, "already_ended", "this generation has ended and cannot change")
    set_outcome(connection, generation_id, outcome, now_ms)
    settle(connection, account, now_ms)
    return _has_ended(connection, generation_id)


def _has_ended(connection: sqlite3.Connection, generation_id: str) -> bool:
    record = find_generation(connection, generation_id)
    return record is not None and record.generation.ended_at_ms is not None
