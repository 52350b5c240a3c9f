"""No statement that runs while a queue is driven or looked at reads all items, attempts, events or files."""

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

import pytest

from batchkiln.store.sql import QUERIES
from batchkiln.store.sqlite.file_session import migrations

COLD: Final = frozenset(
    {
        *("apply", "staging", "variants", "diff", "identity", "planned_items", "plans", "integrity", "misunderstood"),
        *("references", "applied_contents"),
    }
)
"""Files whose statements run while a manifest is applied, or read tables that are always small."""

SCANNED: Final = {
    "kept_of_groups": {"reviewed"},  # the groups of the reviewed items
    "stale": {"stale", "choice", "(subquery-11)", "(subquery-12)"},  # the kept items of each group that others use
    "prune_requests": {"request"},  # the requests of the last minutes
    "logged_requests": {"request"},
    "unresolved_attempts": {"attempt USING INDEX attempt_unresolved"},  # one an account
    "unresolved_keys": {"a USING INDEX attempt_unresolved"},
    "job_credits": {"attempt USING INDEX attempt_unresolved"},
    "queued_classes": {"tally USING INDEX tally_open"},  # what is open, by job and recipe
    "outstanding": {"tally", "rest_tally USING INDEX tally_open"},
    "count_left": {"open_steps"},  # at most as many as are counted
    "forecast_classes": {"t"},  # counters of one job
    "job_models": {"t"},
    "job_tally": {"tally"},
    "count_in_state": {"tally"},
    "ids_in_state": {"page"},  # ten thousand ids of an index
    "ready_inputs_of_heads": {"head", "lost_attempt USING INDEX sqlite_autoindex_lost_attempt_1"},  # the next five
    "open_jobs": {"t", "rest_tally USING INDEX tally_open"},
    "is_shared": {"worker"},  # up to the first one
    "name_queue": {"job USING COVERING INDEX sqlite_autoindex_job_1"},  # up to the first one
    "paid": {"attempt USING INDEX attempt_generation"},  # once, at the end of a rehearsal, which has made them all
    "states_by_generation": {"c USING COVERING INDEX sqlite_autoindex_account_1"},  # accounts
    # Lost attempts: none, but for those of a restored copy.
    "outlived_attempts": {"lost_attempt"},
    "select_attempt": {"lost_attempt USING COVERING INDEX sqlite_autoindex_lost_attempt_1"},  # up to the first one
    "ended_lost": {"lost_attempt USING INDEX sqlite_autoindex_lost_attempt_1"},
    "queued_heads": {"lost_attempt USING INDEX sqlite_autoindex_lost_attempt_1"},
    "accounts_under_way": {"lost_attempt USING INDEX sqlite_autoindex_lost_attempt_1"},
    "recorded_attempts": {"old"},  # once a start, from the newest on, up to the service's retention
    "get_lease": {"lease"},  # one row
    "drop_lease": {"lease"},
    "open_job_ids": {"open_tally", "rest_tally USING INDEX tally_open"},  # what is open
    "move_selected": {"temp.selected"},  # once for each change by another process
    "select_sources": {"t", "needed"},  # likewise
    "count_needed": {"temp.selected"},  # once a run
    "has_selection": {"temp.selected"},  # its first row
    "unselected_tally": {"rest_tally", "s", "t"},  # once a run, and once for each change by another process
    "pass_over_ended_selected": {"s"},  # the next fifty
    "selected_heads": {"lost_attempt USING INDEX sqlite_autoindex_lost_attempt_1"},
    "selected_ready_inputs": {"head", "lost_attempt USING INDEX sqlite_autoindex_lost_attempt_1"},  # the next five
    "selected_queued": {"s"},  # up to a bound
    "jobs_at_work": {"open_tally", "rest_tally USING INDEX tally_open"},  # what is open
    "forecast_jobs": {"t", "rest_tally USING INDEX tally_open"},
    "job_names": {"job"},
    "recent_durations": {"attempt", "a"},  # from the newest on, so many and no more
    "account_usage": {"c USING INDEX sqlite_autoindex_account_1"},  # accounts
    "events_before": {"examined", "shown"},  # from the newest on, so many and no more
    "events_floor": {"examined"},
    "problem_items": {"i"},  # the newest thousand of a state
    "items_by_file": {"o"},  # so many files as one page reads
    "items_by_file_before": {"o"},
    "newest_outputs": {"output", "o"},  # from the newest on, so many and no more
    "ended_by_hour": {"attempt", "newest"},  # likewise
    "forget_silent_workers": {"worker"},  # workers are few
    "forget_rests": {"meta"},  # meta is small
    "all_rests": {"meta"},
    "fenced_writes": {"account USING COVERING INDEX sqlite_autoindex_account_1"},
    "fleet": {"account_lease", "egress", "worker"},
    "senders": {"worker"},
    "account_leases": {"account_lease"},  # accounts
    "workers": {"account_lease", "worker"},
    "drain_workers": {"worker"},
    "driving_worker": {"account_lease"},
    "revoke_leases": {"account_lease"},
    "lease_epochs": {"account USING COVERING INDEX sqlite_autoindex_account_1"},
    "dependents": {"wanted"},  # what is made from the given items
    "sent_with_current": {"made"},  # likewise
    "fill_from_groups": {"choice", *(f"(subquery-{number})" for number in range(6, 10))},  # the kept items of one group
    "job_stuck": {"above", "stuck"},  # what waits in a job in which nothing else can begin
    "item_sources": {"choice", "(subquery-6)", "(subquery-7)"},  # the kept items of one group
    "rebuild_inputs": {"filled"},  # the inputs of one item
    "drivers": {"account USING COVERING INDEX sqlite_autoindex_account_1"},
    "count_to_choose": {"open_groups"},  # one row per group
}
"""What may be read from end to end: small by its nature, or bounded by a LIMIT."""


def hot_queries() -> list[str]:
    """Return the names of all statements that run while a queue is driven or looked at."""
    folder = files("batchkiln.store")
    entries = list(folder.iterdir())
    found = [entry for entry in entries if entry.name.endswith(".sql") and entry.name.removesuffix(".sql") not in COLD]
    texts = [entry.read_text("utf-8") for entry in found]
    return [name for text in texts for name in re.findall(r"^-- name: (\w+)", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """An empty queue: without statistics, a plan depends on the schema alone."""
    made = sqlite3.connect(":memory:")
    for _, script in migrations():
        made.executescript(script)
    made.execute(QUERIES["stage_selection"])
    made.execute(QUERIES["index_selection"])
    yield made
    made.close()


def test_only_small_tables_are_scanned(connection: sqlite3.Connection) -> None:
    """With a million items, nothing on a hot path may take longer than with ten."""
    found = {name: scanned(connection, QUERIES[name]) for name in hot_queries()}

    assert {name: tables for name, tables in found.items() if tables} == SCANNED


def scanned(connection: sqlite3.Connection, sql: str) -> set[str]:
    """Return the tables that a statement reads from end to end."""
    parameters = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    scans = {step.removeprefix("SCAN ") for step in plan if step.startswith("SCAN")}
    return {scan for scan in scans if "VIRTUAL TABLE" not in scan and scan != "CONSTANT ROW"}


@pytest.mark.parametrize("name", ["count_to_review", "count_left", "next_to_review", "previous_reviewable"])
def test_a_review_reads_nothing_that_needs_none(connection: sqlite3.Connection, name: str) -> None:
    """A job with a million done items of which none is to be reviewed has nothing to read."""
    sql = QUERIES[name]
    parameters = dict.fromkeys(re.findall(r":(\w+)", sql))

    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]

    assert [step for step in plan if re.match(r"SEARCH i USING (COVERING )?INDEX item_to_review", step)], plan
