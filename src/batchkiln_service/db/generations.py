"""Generations in SQLite: found, settled when they end, drawn, polled, purged.

Every function here takes the connection and the instant; none reads a clock or waits.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from batchkiln_service.rules.lifecycle import Generation, Outcome, end_of
from batchkiln_service.rules.render_spec import Output, RenderSpec

PURGE_BATCH = 200  # entered at once, so that no request waits long for it


@dataclass(frozen=True, slots=True)
class Record:
    """A generation with its output, if there is one; `drawing` is set when it has yet to be drawn."""

    generation: Generation
    output: Output | None
    drawing: RenderSpec | None = None


def settle(connection: sqlite3.Connection, account: str, now_ms: int) -> None:
    """Write down which generations have ended by now; the schema charges or refunds each with its end, once."""
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


def find_generation(connection: sqlite3.Connection, generation_id: str) -> Record | None:
    """Return a generation of any account."""
    row = connection.execute("SELECT * FROM generations WHERE id = ?", (generation_id,)).fetchone()
    if row is None:
        return None
    output = connection.execute("SELECT * FROM outputs WHERE generation_id = ?", (generation_id,)).fetchone()
    return Record(_generation(row), _output(output) if output else None)


def find_drawing(connection: sqlite3.Connection, generation_id: str) -> RenderSpec:
    """Return what a generation has to look like."""
    row = connection.execute("SELECT drawing_json FROM generations WHERE id = ?", (generation_id,)).fetchone()
    return RenderSpec.from_json(row["drawing_json"])


def find_unrendered(connection: sqlite3.Connection, limit: int = -1) -> list[tuple[str, RenderSpec]]:
    """Return the generations whose file is still owed, the oldest first; -1 is all of them."""
    rows = connection.execute(
        "SELECT id, drawing_json FROM generations WHERE rendered_at_ms IS NULL AND outcome = 'success'"
        " AND ended_at_ms IS NULL ORDER BY created_at_ms LIMIT ?",
        (limit,),
    ).fetchall()
    return [(row["id"], RenderSpec.from_json(row["drawing_json"])) for row in rows]


def settle_unseen(connection: sqlite3.Connection, finished_before_ms: int, now_ms: int) -> None:
    """Settle what nobody has asked about since it ended, in every account."""
    rows = connection.execute(
        "SELECT DISTINCT account FROM generations WHERE ended_at_ms IS NULL AND finish_at_ms <= ?",
        (finished_before_ms,),
    ).fetchall()
    for row in rows:
        settle(connection, row["account"], now_ms)


def find_expired_files(
    connection: sqlite3.Connection, ended_before_ms: int, *, skipped: int = 0
) -> list[tuple[str, str | None]]:
    """Return a few generations whose retention is over, with their file if they have one; not the first `skipped`."""
    rows = connection.execute(
        "SELECT g.id, o.file_name FROM generations g LEFT JOIN outputs o ON o.generation_id = g.id"
        " WHERE g.is_purged = 0 AND g.ended_at_ms <= ? ORDER BY g.ended_at_ms, g.rowid LIMIT ? OFFSET ?",
        (ended_before_ms, PURGE_BATCH, skipped),
    ).fetchall()
    return [(row["id"], row["file_name"]) for row in rows]


def mark_purged(connection: sqlite3.Connection, generation_ids: Iterable[str]) -> None:
    """Remember that nothing of these generations is kept on disk any more."""
    connection.executemany("UPDATE generations SET is_purged = 1 WHERE id = ?", [(each,) for each in generation_ids])


def kept_files(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the files of all generations that are retained."""
    rows = connection.execute(
        "SELECT o.file_name FROM outputs o JOIN generations g ON g.id = o.generation_id WHERE g.is_purged = 0"
    )
    return {row["file_name"] for row in rows}


def count_expiring(connection: sqlite3.Connection, *, after_ms: int, until_ms: int) -> int:
    """Return how many files are still kept of generations that ended after the one instant, and not after the other."""
    row = connection.execute(
        "SELECT count(*) AS n FROM generations WHERE is_purged = 0 AND outcome = 'success'"
        " AND ended_at_ms > ? AND ended_at_ms <= ?",
        (after_ms, until_ms),
    ).fetchone()
    return int(row["n"])


def first_end_kept(connection: sqlite3.Connection) -> int | None:
    """Return the earliest end of a generation that is retained; one that nobody has asked about counts as finished."""
    row = connection.execute(
        "SELECT min(ended_at_ms) AS first FROM generations WHERE is_purged = 0 AND ended_at_ms IS NOT NULL"
    ).fetchone()
    unseen = connection.execute(
        "SELECT min(max(finish_at_ms, coalesce(rendered_at_ms, 0))) AS first FROM generations"
        " WHERE ended_at_ms IS NULL AND (rendered_at_ms IS NOT NULL OR outcome != 'success')"
    ).fetchone()
    return min((end for end in (row["first"], unseen["first"]) if end is not None), default=None)


def mark_polled(connection: sqlite3.Connection, generation_id: str, now_ms: int, *, is_heard: bool = True) -> None:
    """Remember when a generation was last polled, and when its client first heard that it has ended."""
    connection.execute(
        "UPDATE generations SET last_polled_at_ms = ?1, end_seen_at_ms = CASE WHEN ended_at_ms IS NOT NULL AND ?3"
        " THEN coalesce(end_seen_at_ms, ?1) ELSE end_seen_at_ms END WHERE id = ?2",
        (now_ms, generation_id, is_heard),
    )


def mark_rendered(connection: sqlite3.Connection, generation_id: str, output: Output, now_ms: int) -> None:
    """Enter a generation's file; a file drawn a second time replaces the first."""
    connection.execute(
        "INSERT OR REPLACE INTO outputs (generation_id, type, file_name, content_type, size_bytes, sha256)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (generation_id, output.type, output.file_name, output.content_type, output.size_bytes, output.sha256),
    )
    connection.execute(
        # A file that was lost and drawn again is one more to delete, also when its retention ended meanwhile.
        "UPDATE generations SET rendered_at_ms = coalesce(rendered_at_ms, ?), is_purged = 0 WHERE id = ?",
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


def _generation(row: sqlite3.Row) -> Generation:
    names = Generation.__dataclass_fields__
    return Generation(**{name: row[name] for name in names})


def _output(row: sqlite3.Row) -> Output:
    names = Output.__dataclass_fields__
    return Output(**{name: row[name] for name in names})
