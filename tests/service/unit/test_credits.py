"""Credits in double entry: what moves, what cannot be written, and what an audit finds."""

import sqlite3
from collections.abc import Iterator

import pytest

from batchkiln_service.db.credits import (
    add_usage,
    audit,
    balance_credits,
    buy_first,
    may_use,
    open_account,
    transfer,
    usage_of,
)
from batchkiln_service.db.generations import settle

from .memory_books import NOW_MS, generate, opened

LATER_MS = NOW_MS + 60_000
TRANSFER = "INSERT INTO transfers (account, kind, taken_from, given_to, credits, generation_id, at_ms) VALUES"


@pytest.fixture
def books() -> Iterator[sqlite3.Connection]:
    with opened() as connection:
        yield connection


def sides(books: sqlite3.Connection, account: str = "main") -> dict[str, int]:
    rows = books.execute("SELECT side, credits FROM credit_sides WHERE account = ?", (account,))
    return {row["side"]: row["credits"] for row in rows}


def unguarded(books: sqlite3.Connection, *statements: str) -> None:
    """Damage the books past every constraint and trigger."""
    rows = books.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    books.executescript("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")
    for row in rows:
        books.execute(f"DROP TRIGGER {row['name']}")
    for statement in statements:
        books.execute(statement)


def test_a_purchase_is_what_an_account_begins_with(books: sqlite3.Connection) -> None:
    """What was sold is available, and the four sides add up to zero."""
    assert sides(books) == {"sold": -100, "available": 100, "reserved": 0, "charged": 0}


def test_an_account_is_opened_once(books: sqlite3.Connection) -> None:
    """A later start changes its subscription and buys nothing."""
    open_account(books, "main", subscription=True)
    first = buy_first(books, "main", 500, now_ms=NOW_MS)

    assert (first, balance_credits(books, "main")) == (100, 100)
    assert books.execute("SELECT subscription FROM accounts WHERE name = 'main'").fetchone()[0] == 1


def test_a_generation_reserves_its_cost(books: sqlite3.Connection) -> None:
    """Credits are reserved before submission. Service rule 3.1."""
    generate(books, cost_credits=30)

    assert sides(books) == {"sold": -100, "available": 70, "reserved": 30, "charged": 0}
    assert audit(books) == []


@pytest.mark.parametrize(
    ("outcome", "after"),
    [
        ("failed", {"sold": -100, "available": 100, "reserved": 0, "charged": 0}),
        ("canceled", {"sold": -100, "available": 70, "reserved": 0, "charged": 30}),
    ],
)
def test_an_end_settles_the_reserve(books: sqlite3.Connection, outcome: str, after: dict[str, int]) -> None:
    """A verified failure is refunded; of a cancellation nothing is said, so it is charged. Service rule 3.1."""
    generate(books, cost_credits=30, outcome="failed" if outcome == "failed" else "canceled")

    settle(books, "main", LATER_MS)

    assert sides(books) == after
    assert audit(books) == []


def test_an_end_is_settled_once(books: sqlite3.Connection) -> None:
    """However often somebody looks, there is one refund. Service rule 3.1."""
    generate(books)

    for look in range(3):
        settle(books, "main", LATER_MS + look)

    assert balance_credits(books, "main") == 100
    assert books.execute("SELECT count(*) FROM transfers WHERE kind = 'refund'").fetchone()[0] == 1


def test_nothing_is_settled_before_the_end(books: sqlite3.Connection) -> None:
    """A millisecond before, the credits are still reserved."""
    generate(books)

    settle(books, "main", LATER_MS - 1)

    assert sides(books)["reserved"] == 10


def test_a_failure_counts_toward_the_day(books: sqlite3.Connection) -> None:
    """The refund gives nothing of the daily budget back. Service section 8."""
    generate(books, cost_credits=30)

    settle(books, "main", LATER_MS)

    assert usage_of(books, "main", NOW_MS // 86_400_000)["credits"] == 30


@pytest.mark.parametrize(
    ("credits_bought", "subscription", "expected"), [(0, False, False), (1, False, True), (0, True, True)]
)
def test_access_needs_a_subscription_or_credits(
    books: sqlite3.Connection, *, credits_bought: int, subscription: bool, expected: bool
) -> None:
    """One of the two is enough. Service rule 5.8."""
    open_account(books, "new", subscription=subscription)
    buy_first(books, "new", credits_bought, now_ms=NOW_MS)

    assert may_use(books, "new") is expected


@pytest.mark.parametrize(
    "values",
    [
        "('main', 'gift', 'sold', 'available', 5, NULL, 1)",
        "('main', 'purchase', 'sold', 'available', 0, NULL, 1)",
        "('main', 'purchase', 'sold', 'available', -5, NULL, 1)",
        "('main', 'purchase', 'sold', 'charged', 5, NULL, 1)",
        "('main', 'purchase', 'charged', 'available', 5, NULL, 1)",
        "('main', 'purchase', 'sold', 'available', 5, 'gen_1', 1)",
        "('nobody', 'purchase', 'sold', 'available', 5, NULL, 1)",
        "('main', 'reserve', 'available', 'reserved', 10, NULL, 1)",
        "('main', 'reserve', 'available', 'reserved', 10, 'gen_1', 1)",
        "('main', 'reserve', 'available', 'reserved', 10, 'gen_0', 1)",
        "('main', 'charge', 'available', 'charged', 10, 'gen_1', 1)",
        "('main', 'charge', 'reserved', 'charged', 11, 'gen_1', 1)",
        "('main', 'charge', 'reserved', 'charged', 10, 'gen_2', 1)",
        "('other', 'charge', 'reserved', 'charged', 10, 'gen_1', 1)",
        "('main', 'refund', 'reserved', 'available', 9, 'gen_1', 1)",
        "('main', 'refund', 'reserved', 'available', 10, 'gen_0', 1)",
        "('main', 'refund', 'reserved', 'available', 10, NULL, 1)",
    ],
)
def test_a_transfer_that_cannot_be_is_not_written(books: sqlite3.Connection, values: str) -> None:
    """Neither from nor to a wrong side, nor without its reserve, nor of another amount."""
    generate(books, "gen_1")
    generate(books, "gen_2", account="other")

    with pytest.raises(sqlite3.IntegrityError):
        books.execute(f"{TRANSFER} {values}")
    assert audit(books) == []


@pytest.mark.parametrize("second", ["charge", "refund"])
@pytest.mark.parametrize("outcome", ["failed", "canceled"])
def test_what_is_settled_is_not_settled_again(books: sqlite3.Connection, outcome: str, second: str) -> None:
    """Neither the same way nor the other; another reserve would not even cover it. Service rule 3.1."""
    generate(books, "gen_1", outcome="failed" if outcome == "failed" else "canceled")
    generate(books, "gen_2", seconds=600)
    settle(books, "main", LATER_MS)

    with pytest.raises(sqlite3.IntegrityError, match=r"UNIQUE|a failure that has ended is refunded"):
        transfer(books, "main", "charge" if second == "charge" else "refund", 10, generation_id="gen_1", at_ms=1)


@pytest.mark.parametrize(
    ("outcome", "kind", "is_ended"),
    [
        ("failed", "refund", False),
        ("canceled", "charge", False),
        ("success", "refund", False),
        ("success", "refund", True),
        ("canceled", "refund", True),
        ("failed", "charge", True),
    ],
)
def test_credits_come_back_for_a_failure_that_has_ended_and_for_nothing_else(
    books: sqlite3.Connection, *, outcome: str, kind: str, is_ended: bool
) -> None:
    """Neither while a generation is active, nor for one that went well. Service rule 3.1."""
    generate(books, outcome="failed")
    if is_ended:
        # As if it had ended before its end could settle it.
        books.execute("DROP TRIGGER generation_ends")
    books.execute("UPDATE generations SET outcome = ?, rendered_at_ms = 1", (outcome,))
    books.execute("UPDATE generations SET ended_at_ms = ?", (LATER_MS if is_ended else None,))

    with pytest.raises(sqlite3.IntegrityError, match="a failure that has ended is refunded"):
        transfer(books, "main", "charge" if kind == "charge" else "refund", 10, generation_id="gen_1", at_ms=1)


def test_an_end_settles_by_itself(books: sqlite3.Connection) -> None:
    """The schema charges or refunds every end, whichever statement writes it."""
    generate(books, "gen_1", outcome="failed")
    generate(books, "gen_2", outcome="canceled")

    books.execute("UPDATE generations SET ended_at_ms = ?", (LATER_MS,))

    assert sides(books) == {"sold": -100, "available": 90, "reserved": 0, "charged": 10}
    assert audit(books) == []


def test_a_generation_cannot_be_entered_as_ended(books: sqlite3.Connection) -> None:
    """It would never have been settled."""
    generate(books)

    with pytest.raises(sqlite3.IntegrityError, match="begins before it ends"):
        books.execute(
            "INSERT INTO generations (id, account, key_sha256, model, cost_credits, created_at_ms, outcome,"
            " ended_at_ms, drawing_json) VALUES ('gen_9', 'main', '', 'epsilon-2', 1, 1, 'failed', 2, x'7b7d')"
        )


def test_more_than_there_is_cannot_be_reserved(books: sqlite3.Connection) -> None:
    """No side is ever overdrawn, whatever the code before it has checked."""
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        generate(books, cost_credits=101)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE transfers SET credits = 1",
        "UPDATE transfers SET generation_id = 'gen_2'",
        "DELETE FROM transfers",
        "DELETE FROM accounts WHERE name = 'main'",
        "INSERT INTO accounts (name, subscription) VALUES ('third', 2)",
        "UPDATE accounts SET active_generations = -1",
        "INSERT INTO credit_sides VALUES ('main', 'lent', 0, 0)",
        "INSERT INTO credit_sides VALUES ('nobody', 'sold', 0, 0)",
        "INSERT OR REPLACE INTO credit_sides VALUES ('main', 'charged', 0, 0)",
        "DELETE FROM credit_sides",
        "UPDATE credit_sides SET credits = credits",
        "UPDATE credit_sides SET credits = credits + 1 WHERE side = 'available'",
        "UPDATE credit_sides SET credits = credits - 10, moved_by = 1 WHERE side = 'available' AND account = 'main'",
        "UPDATE credit_sides SET credits = credits - 10, moved_by = moved_by + 1 WHERE side = 'available'",
        "UPDATE credit_sides SET account = 'other' WHERE side = 'charged' AND account = 'main'",
        "UPDATE credit_sides SET credits = -1 WHERE side = 'available'",
        "UPDATE credit_sides SET credits = 1 WHERE side = 'sold'",
        "UPDATE generations SET ended_at_ms = 1 WHERE id = 'gen_3'",  # nothing was reserved for it
        "UPDATE day_usage SET credits = credits - 1",
        "UPDATE day_usage SET upload_files = -1",
        "INSERT INTO day_usage (account, day) VALUES ('nobody', 1)",
        "DELETE FROM generations",
        "UPDATE generations SET cost_credits = 1",
        "UPDATE generations SET account = 'other'",
        "UPDATE generations SET key_sha256 = 'other'",
        "UPDATE generations SET ended_at_ms = NULL WHERE id = 'gen_1'",
        "UPDATE generations SET outcome = 'success' WHERE id = 'gen_1'",
        "UPDATE generations SET outcome = 'lost' WHERE id = 'gen_2'",
        "UPDATE generations SET outcome = 'success', ended_at_ms = 1 WHERE id = 'gen_2'",
        "DELETE FROM idempotency",
        "UPDATE idempotency SET body_sha256 = 'other'",
        "INSERT INTO idempotency VALUES ('main', 'idempotency-key-of-gen_1', '/', '', 'gen_2')",
        "INSERT INTO idempotency VALUES ('main', 'another-idempotency-key', '/', '', 'gen_1')",
        "INSERT INTO idempotency VALUES ('other', 'another-idempotency-key', '/', '', 'gen_3')",
        "INSERT INTO idempotency VALUES ('main', 'another-idempotency-key', '/', '', 'gen_0')",
        "INSERT INTO idempotency VALUES ('main', 'too-short', '/', '', 'gen_3')",
    ],
)
def test_what_is_in_the_books_stays(books: sqlite3.Connection, statement: str) -> None:
    """The schema refuses every statement that changes, moves or deletes a booking."""
    generate(books, "gen_1")
    settle(books, "main", LATER_MS)
    generate(books, "gen_2", seconds=600)
    books.execute(
        "INSERT INTO generations (id, account, key_sha256, model, cost_credits, created_at_ms, outcome, drawing_json)"
        " VALUES ('gen_3', 'main', '', 'epsilon-2', 1, 1, 'failed', x'7b7d')"
    )
    add_usage(books, "main", NOW_MS // 86_400_000, upload_files=1)

    with pytest.raises(sqlite3.IntegrityError):
        books.execute(statement)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE credit_sides SET credits = credits + 1 WHERE side = 'available'", "do not add up to zero"),
        (
            "UPDATE credit_sides SET credits = credits + iif(side = 'sold', -5, 5) WHERE side < 'c' OR side > 's'",
            "main available: the transfers do not add up to what the side holds",
        ),
        ("UPDATE transfers SET credits = 9 WHERE kind = 'reserve'", "gen_1: its cost was not reserved"),
        ("DELETE FROM transfers WHERE kind = 'reserve'", "gen_1: its cost was not reserved"),
        ("DELETE FROM transfers WHERE kind = 'refund'", "gen_1: it has ended, and is neither charged nor refunded"),
        ("UPDATE generations SET outcome = 'canceled' WHERE id = 'gen_1'", "gen_1: it has ended, and is neither"),
        ("UPDATE generations SET ended_at_ms = NULL", "gen_1: it is active, and already charged or refunded"),
        ("UPDATE transfers SET kind = 'charge' WHERE kind = 'refund'", "gen_1: it has ended, and is neither"),
        ("DELETE FROM idempotency WHERE generation_id = 'gen_1'", "gen_1: no idempotency key leads to it"),
        ("UPDATE accounts SET active_generations = 7", "main: its count of active generations is wrong"),
        ("UPDATE day_usage SET credits = 0", "main: the days do not add up to what its generations cost"),
    ],
)
def test_an_audit_finds_damage(books: sqlite3.Connection, damage: str, found: str) -> None:
    """The audit names the account of each row that violates a constraint."""
    generate(books, "gen_1")
    generate(books, "gen_2", seconds=600)
    settle(books, "main", LATER_MS)
    assert audit(books) == []

    unguarded(books, damage)

    assert any(found in sentence for sentence in audit(books)), audit(books)
