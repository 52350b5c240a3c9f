"""Keys in the books: pace, revocation, and what the configuration may do to them."""

import sqlite3
from collections.abc import Iterator

import pytest

from batchkiln_service.db.keys import (
    ApiKey,
    KeyOwner,
    MadeKey,
    create_key,
    digest_of,
    enter_configured,
    find_owner,
    list_keys,
    revoke_key,
)
from batchkiln_service.errors import KeyRefusedError

from .memory_books import CALENDAR, DAY_MS, NOW_MS, opened

HOUR_MS = 3_600_000
DIGEST = "d" * 64
CONFIGURED = KeyOwner("main", digest_of("configured"), is_legacy=False)


@pytest.fixture
def books() -> Iterator[sqlite3.Connection]:
    with opened() as connection:
        yield connection


def make(books: sqlite3.Connection, now_ms: int = NOW_MS, account: str = "main") -> MadeKey:
    return create_key(books, account, now_ms=now_ms, calendar=CALENDAR)


def make_and_revoke(books: sqlite3.Connection, times: int, now_ms: int = NOW_MS) -> None:
    for _ in range(times):
        revoke_key(books, make(books, now_ms).id, now_ms=now_ms)


def only_key(books: sqlite3.Connection) -> ApiKey:
    (found,) = list_keys(books, "main")
    return found


def is_known(books: sqlite3.Connection, key: str) -> bool:
    return find_owner(books, digest_of(key)) is not None


def test_a_made_key_is_found_and_stands_nowhere_in_clear(books: sqlite3.Connection) -> None:
    """A key is shown once; the books have its hash. Service rule 5.2."""
    made = make(books)

    assert find_owner(books, digest_of(made.secret)) == KeyOwner("main", digest_of(made.secret), is_legacy=False)
    assert made.secret not in "\n".join(books.iterdump())


def test_two_keys_are_never_alike(books: sqlite3.Connection) -> None:
    """Neither the keys nor the ids that people call them by."""
    first, second = make(books), make(books)

    assert first.secret != second.secret
    assert first.id != second.id


def test_a_revoked_key_is_unknown_from_then_on(books: sqlite3.Connection) -> None:
    """An exposed key is of no use at once. Service rule 5.6."""
    made = make(books)

    revoke_key(books, made.id, now_ms=NOW_MS + 1)

    assert not is_known(books, made.secret)
    assert (only_key(books).revoked_at_ms, only_key(books).revoked_by) == (NOW_MS + 1, "person")


def test_revoking_again_changes_nothing(books: sqlite3.Connection) -> None:
    """The instant of the first time stays."""
    made = make(books)
    first = revoke_key(books, made.id, now_ms=NOW_MS + 1)

    assert revoke_key(books, made.id, now_ms=NOW_MS + 2) == first


def test_revoking_a_key_that_is_not_there_is_refused(books: sqlite3.Connection) -> None:
    """The id is named."""
    with pytest.raises(KeyRefusedError, match="there is no key key_0"):
        revoke_key(books, "key_0", now_ms=NOW_MS)


def test_keys_are_listed_by_account(books: sqlite3.Connection) -> None:
    """One account's, or all."""
    ids = [make(books).id, make(books, NOW_MS + 1).id, make(books, account="other").id]

    assert [key.id for key in list_keys(books)] == ids
    assert [key.id for key in list_keys(books, "other")] == ids[2:]


@pytest.mark.parametrize("use", [make, list_keys])
def test_an_unknown_account_is_named_with_those_that_are(books: sqlite3.Connection, use: object) -> None:
    """A mistyped account is told from one without keys."""
    with pytest.raises(KeyRefusedError, match="there is no account nobody; there are: main, other"):
        make(books, account="nobody") if use is make else list_keys(books, "nobody")


def test_an_eleventh_active_key_is_refused(books: sqlite3.Connection) -> None:
    """Ten are active at most, and another account's do not count. Service rule 5.3."""
    for hour in range(10):
        make(books, NOW_MS + hour * HOUR_MS)

    with pytest.raises(KeyRefusedError, match=r"main has 10 active keys; .* once one of them is revoked"):
        make(books, NOW_MS + 10 * HOUR_MS)
    make(books, account="other")


def test_the_eleventh_key_within_an_hour_waits_for_the_first_to_be_an_hour_old(books: sqlite3.Connection) -> None:
    """Ten are made within an hour; the sentence says when the next may be. Service rule 5.3."""
    make_and_revoke(books, 1)
    make_and_revoke(books, 9, NOW_MS + HOUR_MS // 2)

    with pytest.raises(KeyRefusedError, match=r"10 keys within an hour; .* in 1 seconds .* at 2024-10-04T01:00:00Z"):
        make(books, NOW_MS + HOUR_MS - 1)
    make(books, NOW_MS + HOUR_MS)


def test_the_twenty_first_key_of_a_day_waits_for_the_next_day(books: sqlite3.Connection) -> None:
    """Twenty are made within a day, which resets as all days do. Service rule 5.3 and section 8."""
    for hour in (20, 22):
        make_and_revoke(books, 10, NOW_MS + hour * HOUR_MS)

    with pytest.raises(KeyRefusedError, match=r"20 keys within this day; .* in 1 seconds .* at 2024-10-05T00:00:00Z"):
        make(books, NOW_MS + DAY_MS - 1)
    make(books, NOW_MS + DAY_MS)


def test_the_later_of_two_waits_is_reported(books: sqlite3.Connection) -> None:
    """A request after the announced wait is not refused again."""
    for minutes in (22 * 60 + 30, 23 * 60 + 45):
        make_and_revoke(books, 10, NOW_MS + minutes * 60_000)

    with pytest.raises(KeyRefusedError, match=r"at 2024-10-05T00:45:00Z"):
        make(books, NOW_MS + DAY_MS - 60_000)
    make(books, NOW_MS + DAY_MS + 45 * 60_000)


def test_configured_keys_do_not_count_as_made(books: sqlite3.Connection) -> None:
    """A new state folder gets all of them at once; a person may still make as many as the rule says."""
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)
    enter_configured(books, [], now_ms=NOW_MS)

    make_and_revoke(books, 10)

    with pytest.raises(KeyRefusedError, match="10 keys within an hour"):
        make(books)


def test_a_configured_key_that_is_put_back_works_again(books: sqlite3.Connection) -> None:
    """Taking a key out of the configuration revokes it for as long as it is out."""
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)
    enter_configured(books, [], now_ms=NOW_MS + 1)
    gone = only_key(books)
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS + 2)

    assert (gone.revoked_at_ms, gone.revoked_by) == (NOW_MS + 1, "configuration")
    assert is_known(books, "configured")
    assert only_key(books).id == gone.id


@pytest.mark.parametrize("is_configured", [True, False])
def test_a_configured_key_that_a_person_revoked_never_comes_back(
    books: sqlite3.Connection, *, is_configured: bool
) -> None:
    """The configuration does not bring it back, whether it held the key at that moment or not. Service rule 5.6."""
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)
    enter_configured(books, [CONFIGURED] if is_configured else [], now_ms=NOW_MS)
    revoke_key(books, only_key(books).id, now_ms=NOW_MS)

    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)

    assert not is_known(books, "configured")


def test_a_key_made_by_command_does_not_depend_on_the_configuration(books: sqlite3.Connection) -> None:
    """Only keys that came with the configuration go with it."""
    made = make(books)

    enter_configured(books, [], now_ms=NOW_MS)

    assert is_known(books, made.secret)


def test_a_configured_key_may_become_a_legacy_one(books: sqlite3.Connection) -> None:
    """What the configuration says of its keys holds from the next start on."""
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)

    enter_configured(books, [KeyOwner("main", CONFIGURED.key_sha256, is_legacy=True)], now_ms=NOW_MS)

    assert only_key(books).is_legacy


def test_one_key_cannot_be_configured_for_two_accounts(books: sqlite3.Connection) -> None:
    """A key says whose request it is."""
    twice = [CONFIGURED, KeyOwner("other", CONFIGURED.key_sha256, is_legacy=False)]

    with pytest.raises(KeyRefusedError, match="a key of account other already belongs to account main"):
        enter_configured(books, twice, now_ms=NOW_MS)


def test_ten_configured_keys_can_be_replaced_by_ten_others(books: sqlite3.Connection) -> None:
    """Those that leave make room before the others come."""
    for generation in range(2):
        keys = [KeyOwner("main", digest_of(f"{generation}-{number}"), is_legacy=False) for number in range(10)]
        enter_configured(books, keys, now_ms=NOW_MS)

    assert sum(key.revoked_at_ms is None for key in list_keys(books)) == 10


def test_a_configured_key_that_would_be_the_eleventh_is_refused(books: sqlite3.Connection) -> None:
    """Ten are active at most, however they came. Service rule 5.3."""
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)
    enter_configured(books, [], now_ms=NOW_MS)
    for hour in range(10):
        make(books, NOW_MS + hour * HOUR_MS)

    with pytest.raises(KeyRefusedError, match="10 active keys"):
        enter_configured(books, [CONFIGURED], now_ms=NOW_MS)


COLUMNS = "key_sha256, id, account, origin, is_legacy, created_at_ms, revoked_at_ms, revoked_by"


@pytest.mark.parametrize(
    "values",
    [
        f"'{DIGEST}', 'key_2', 'nobody', 'command', 0, 1, NULL, NULL",
        f"'{DIGEST}', 'key_2', 'main', 'elsewhere', 0, 1, NULL, NULL",
        f"'{DIGEST}', 'key_2', 'main', 'command', 2, 1, NULL, NULL",
        f"'{DIGEST}', 'key_2', 'main', 'command', 0, 1, 2, NULL",
        f"'{DIGEST}', 'key_2', 'main', 'command', 0, 1, NULL, 'person'",
        f"'{DIGEST}', 'key_2', 'main', 'command', 0, 1, 2, 'nobody'",
        f"'{DIGEST}', 'key_2', 'main', 'command', 0, 1, 2, 'configuration'",
        f"'{DIGEST}', 'key_1', 'main', 'command', 0, 1, NULL, NULL",
        "'a key in clear', 'key_2', 'main', 'command', 0, 1, NULL, NULL",
    ],
)
def test_a_key_that_makes_no_sense_cannot_be_written(books: sqlite3.Connection, values: str) -> None:
    """The schema is the last guard."""
    books.execute(
        f"INSERT INTO api_keys ({COLUMNS}) VALUES ('{'e' * 64}', 'key_1', 'main', 'command', 0, 1, NULL, NULL)"
    )

    with pytest.raises(sqlite3.IntegrityError):
        books.execute(f"INSERT INTO api_keys ({COLUMNS}) VALUES ({values})")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE api_keys SET revoked_at_ms = NULL, revoked_by = NULL",
        "UPDATE api_keys SET revoked_at_ms = revoked_at_ms + 1",
        "UPDATE api_keys SET account = 'other'",
        "UPDATE api_keys SET created_at_ms = 0",
        "DELETE FROM api_keys",
    ],
)
def test_a_revoked_key_cannot_be_changed(books: sqlite3.Connection, statement: str) -> None:
    """The schema refuses every statement that changes it."""
    make_and_revoke(books, 1)

    with pytest.raises(sqlite3.IntegrityError):
        books.execute(statement)


def test_the_schema_itself_allows_ten_active_keys(books: sqlite3.Connection) -> None:
    """Neither an eleventh nor one that comes back goes past it. Service rule 5.3."""
    enter_configured(books, [CONFIGURED], now_ms=NOW_MS)
    enter_configured(books, [], now_ms=NOW_MS)
    for hour in range(10):
        make(books, NOW_MS + hour * HOUR_MS)

    for statement in (
        f"INSERT INTO api_keys ({COLUMNS}) VALUES ('{DIGEST}', 'key_2', 'main', 'command', 0, 1, NULL, NULL)",
        "UPDATE api_keys SET revoked_at_ms = NULL, revoked_by = NULL WHERE revoked_at_ms IS NOT NULL",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="ten active keys"):
            books.execute(statement)
