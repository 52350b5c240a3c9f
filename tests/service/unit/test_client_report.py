"""The numbers of a report, against what can be counted by hand or by a slower way."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from itertools import combinations, count
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from batchkiln_service import Limits
from batchkiln_service.db.client_report import LONGEST_LIST, report_of
from batchkiln_service.db.database import connect
from batchkiln_service.db.report import Report, Spread
from batchkiln_service.db.request_log import record_applied
from batchkiln_service.rules.windows import Calendar
from support.examples import examples

DAY_MS = 86_400_000
BEGIN_MS = 20_000 * DAY_MS
MINUTE_MS = 60_000


class Books:
    """Books in memory, written row by row."""

    def __init__(self) -> None:
        schema = resources.files("batchkiln_service.db").joinpath("schema.sql").read_text(encoding="utf-8")
        self.connection = connect(Path(":memory:"), schema)
        self.connection.executemany("INSERT INTO accounts (name, subscription) VALUES (?, 0)", [("main",), ("other",)])
        # What is written here need not have happened: a report tells what stands there.
        for row in self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            self.connection.execute(f"DROP TRIGGER {row['name']}")
        self._ids = count(1)

    def request(self, at_ms: int, *, account: str = "main", kind: str = "read", **columns: object) -> None:
        number = next(self._ids)
        budget = {"create": "creates", "upload": "creates", "read": "reads", "quote": "reads"}.get(kind)
        row: dict[str, object] = {
            "id": number, "account": account, "ip": "127.0.0.1", "kind": kind, "path": "/", "budget": budget,
            "arrived_at_ms": BEGIN_MS + at_ms, "status": 200, "number": number if budget else None, **columns,
        }  # fmt: skip
        self._insert("requests", row)

    def generation(self, begin_ms: int, end_ms: int | None, *, account: str = "main", **columns: object) -> str:
        number = next(self._ids)
        end = None if end_ms is None else BEGIN_MS + end_ms
        prompt = columns.pop("prompt", "A red fox")
        row: dict[str, object] = {
            "id": f"gen_{number:06d}", "account": account, "key_sha256": "", "model": "epsilon-2", "cost_credits": 2,
            "created_at_ms": BEGIN_MS + begin_ms, "processing_at_ms": BEGIN_MS + begin_ms, "finish_at_ms": end,
            "outcome": "success", "rendered_at_ms": end, "ended_at_ms": end,
            "drawing_json": orjson.dumps({"prompt": prompt}), **columns,
        }  # fmt: skip
        self._insert("generations", row)
        return f"gen_{number:06d}"

    def report(self, *, limits: Limits | None = None, now_ms: int = DAY_MS) -> Report:
        return report_of(self.connection, limits or Limits(), Calendar(0, DAY_MS), now_ms=BEGIN_MS + now_ms)

    def _insert(self, table: str, row: dict[str, object]) -> None:
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


@pytest.fixture
def books() -> Iterator[Books]:
    """Open books with two accounts."""
    made = Books()
    with closing(made.connection):
        yield made


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.sampled_from(["main", "other"]), st.integers(0, 4 * MINUTE_MS)), max_size=40))
def test_busiest_minute_is_the_fullest_of_all_alignments(arrivals: list[tuple[str, int]]) -> None:
    """No sliding minute, wherever it begins, holds more requests than the report says. Service section 8."""
    books = Books()
    for account, at_ms in arrivals:
        books.request(at_ms, account=account)

    with closing(books.connection):
        report = books.report()

    found = {window.account: window.busiest_minute_requests for window in report.windows}
    for account in {name for name, _ in arrivals}:
        mine = [at_ms for name, at_ms in arrivals if name == account]
        assert found[account] == max(sum(0 <= at_ms - first < MINUTE_MS for at_ms in mine) for first in mine)
    everyone = [at_ms for _, at_ms in arrivals]
    fullest = max((sum(0 <= at_ms - first < MINUTE_MS for at_ms in everyone) for first in everyone), default=0)
    assert [address.busiest_minute_requests for address in report.addresses.entries] == ([fullest] if arrivals else [])


Span = tuple[str, int, int | None]
SPANS = st.lists(
    st.tuples(st.sampled_from(["main", "other"]), st.integers(0, 20), st.one_of(st.none(), st.integers(0, 15))),
    max_size=25,
)


@settings(max_examples=examples(40))
@given(SPANS)
def test_overlaps_are_the_pairs_that_share_time(spans: list[Span]) -> None:
    """Pairs of one account whose times intersect are all found, none twice; touching is no overlap."""
    books, made = Books(), dict[str, tuple[str, int, int]]()
    for account, begin, length in spans:
        end = None if length is None else begin + length
        made[books.generation(begin, end, account=account)] = (account, begin, 100 if end is None else end)

    with closing(books.connection):
        overlaps = books.report(now_ms=100).overlaps

    expected = {
        frozenset((a, b)): min(made[a][2], made[b][2]) - max(made[a][1], made[b][1])
        for a, b in combinations(made, 2)
        if made[a][0] == made[b][0] and max(made[a][1], made[b][1]) < min(made[a][2], made[b][2])
    }
    assert overlaps.pairs == len(expected)
    assert overlaps.first.more == max(0, len(expected) - LONGEST_LIST)
    found = {frozenset((o.first_id, o.second_id)): round(o.overlap_seconds * 1000) for o in overlaps.first.entries}
    assert found.items() <= expected.items()
    assert len(found) == len(overlaps.first.entries) == min(len(expected), LONGEST_LIST)
    instants = {begin for _, begin, _ in made.values()}
    assert overlaps.most_active_at_once == max(
        (
            sum(mine == account and begin <= at_ms < end for mine, begin, end in made.values())
            for account in ("main", "other")
            for at_ms in instants
        ),
        default=0,
    )


@settings(max_examples=examples(40))
@given(SPANS)
def test_idle_time_is_what_no_generation_covers(spans: list[Span]) -> None:
    """Busy and idle time of a slot add up to its span, however generations overlap."""
    books, covered = Books(), dict[str, set[int]]()
    for account, begin, length in spans:
        end = 100 if length is None else begin + length
        books.generation(begin, None if length is None else end, account=account)
        covered.setdefault(account, set()).update(range(begin, end))

    with closing(books.connection):
        slots = books.report(now_ms=100).slots

    assert {slot.account: round(slot.busy_seconds * 1000) for slot in slots} == {
        account: len(instants) for account, instants in covered.items()
    }


def test_percentiles_are_by_nearest_rank(books: Books) -> None:
    """Of twenty durations the median is the tenth and the 95th percentile the nineteenth."""
    for number in range(1, 21):
        books.generation(0, 1000, end_seen_at_ms=BEGIN_MS + 1000 + 100 * number)

    seen = books.report().ends_seen

    assert seen.success_to_first_read == Spread(20, 21.0, 0.1, 1.05, 1.0, 1.9, 2.0)
    assert seen.unseen_ends == 0


def test_nothing_is_reported_of_empty_books(books: Books) -> None:
    """A service that nobody has used has a report, without numbers."""
    report = books.report()

    assert report.ends_seen.success_to_first_read == Spread(0, 0.0, None, None, None, None, None)
    assert (report.windows, report.slots, report.prompts.entries, report.period.first_request_at) == ((), (), (), None)
    assert orjson.loads(report.as_json())["creates"] == {"accepted": 0, "new": 0, "replays": 0}


def test_polls_count_until_the_client_was_told_of_the_end(books: Books) -> None:
    """A read that is too early counts, the tolerance is not an offence, and later reads do not matter. Rule 4.4."""
    generation = books.generation(0, 30_000, end_seen_at_ms=BEGIN_MS + 40_000)
    for at_ms, gap_ms in [(1, None), (9_951, 9_950), (19_900, 9_949), (40_000, 20_100), (40_100, 100)]:
        books.request(at_ms, generation_id=generation, poll_gap_ms=gap_ms)

    polls = books.report().poll_gaps

    assert (polls.gaps.count, polls.gaps.minimum_seconds, polls.gaps.median_seconds) == (3, 9.949, 9.95)
    assert polls.too_short == 1


def test_end_that_nobody_wrote_down_yet_is_an_end(books: Books) -> None:
    """A generation whose time is over is not active, although no request has settled it."""
    books.generation(0, 10_000, ended_at_ms=None)
    books.generation(0, 10_000, ended_at_ms=None, rendered_at_ms=None)
    books.generation(0, None, outcome="failed")

    (main, _) = books.report(now_ms=20_000).accounts

    assert (main.succeeded_generations, main.active_generations) == (1, 2)


def test_prompts_paid_twice_come_first(books: Books) -> None:
    """A prompt that was paid for twice is not hidden by dearer ones; a refunded try does not count."""
    for prompt, outcome, cost in [("dear", "success", 50), ("again", "failed", 2), ("again", "success", 2),
                                  ("twice", "success", 2), ("twice", "canceled", 2)]:  # fmt: skip
        made = books.generation(0, 1000, prompt=prompt, outcome=outcome, cost_credits=cost)
        for kind, sides in [("reserve", ("available", "reserved")),
                            ("refund", ("reserved", "available")) if outcome == "failed"
                            else ("charge", ("reserved", "charged"))]:  # fmt: skip
            books.connection.execute(
                "INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms)"
                " VALUES ('main', ?, ?, ?, ?, ?, 0)",
                (kind, *sides, cost, made),
            )

    report = books.report()

    listed = [
        (one.prompt, one.generations, one.not_refunded_generations, one.reserved_credits, one.charged_credits,
         one.refunded_credits) for one in report.prompts.entries
    ]  # fmt: skip
    assert listed == [("twice", 2, 2, 4, 4, 0), ("dear", 1, 1, 50, 50, 0), ("again", 2, 1, 4, 2, 2)]
    assert report.prompts_paid_more_than_once == 1


def test_a_prompt_of_two_accounts_is_paid_for_once_by_each(books: Books) -> None:
    """Accounts share nothing: what one has made is no second time for another."""
    for account in ("main", "other"):
        books.generation(0, 1000, account=account, prompt="A red fox")

    report = books.report()

    assert report.prompts_paid_more_than_once == 0
    assert [one.account for one in report.prompts.entries] == ["main", "other"]


def test_long_lists_are_cut_and_say_so(books: Books) -> None:
    """A report stays readable whatever number of prompts there was."""
    for number in range(LONGEST_LIST + 3):
        books.generation(number, number, prompt=f"prompt {number}")

    prompts = books.report().prompts

    assert (len(prompts.entries), prompts.more) == (LONGEST_LIST, 3)


def test_dropped_rows_are_admitted(books: Books) -> None:
    """A log that was pruned says since when it is kept; a replay of a create that was dropped stays a replay."""
    generation = books.generation(0, 1000)
    books.request(0, kind="create", status=202, generation_id=generation)
    books.request(500, kind="create", status=202, generation_id=generation)
    books.connection.execute("DELETE FROM requests WHERE arrived_at_ms = ?", (BEGIN_MS,))

    report = books.report()

    assert (report.period.is_log_whole, report.period.log_kept_since) == (False, "2024-10-04T00:00:00.500Z")
    assert (report.creates.accepted, report.creates.new, report.creates.replays) == (1, 0, 1)


def test_days_begin_where_the_calendar_says(books: Books) -> None:
    """The busiest day is one of the service's days, also of those before the first. Service section 8."""
    for at_ms in (0, 600, 1000, 1700, 1900, 1999, 2000):
        books.request(at_ms, kind="upload")
    calendar = Calendar(day_start_ms=BEGIN_MS + 5500, day_ms=1000)

    (window,) = report_of(books.connection, Limits(), calendar).windows

    assert (window.budget, window.busiest_day_requests) == ("creates", 4)
    assert window.busiest_day_began_at == "2024-10-04T00:00:01.500Z"


def test_books_that_do_not_balance_are_named(books: Books) -> None:
    """What the ledger's own audit finds is in the report."""
    books.connection.execute("UPDATE credit_sides SET credits = 5 WHERE account = 'main' AND side = 'available'")

    audit = books.report().audit

    assert "main: the sides of its books do not add up to zero" in audit.entries


def test_faults_are_counted_where_they_struck(books: Books) -> None:
    """Injected faults are counted separately from the client's requests."""
    record_applied(books.connection, ["slow", "cut_body"], endpoint="download", at_ms=BEGIN_MS)
    record_applied(books.connection, ["slow"], endpoint="create", at_ms=BEGIN_MS)
    books.request(0, kind="create", status=429, code="throttle", fault="throttle", number=None)
    books.request(1, kind="create", status=429, code="rate_limited", number=None)

    report = books.report()

    assert [(one.kind, one.endpoint, one.struck) for one in report.faults] == [
        ("cut_body", "download", 1), ("slow", "create", 1), ("slow", "download", 1),
    ]  # fmt: skip
    assert [(one.code, one.requests, one.by_faults) for one in report.refused] == [
        ("rate_limited", 1, 0), ("throttle", 1, 1),
    ]  # fmt: skip
    assert [window.busiest_minute_sent for window in report.windows] == [2]


def test_reading_writes_nothing(books: Books) -> None:
    """The report's own tables are temporary: the books are as they were."""
    before = books.connection.execute("SELECT count(*) FROM main.sqlite_schema").fetchone()[0]

    books.report()

    assert books.connection.execute("SELECT count(*) FROM main.sqlite_schema").fetchone()[0] == before
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        books.connection.execute("SELECT * FROM main.spans")
