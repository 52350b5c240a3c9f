"""Days that were, and days to come."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.config import Config, Profile
from batchkiln.core.rate_limits import Limits
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.presentation.calendar import DAYS_SHOWN, Calendar, read_calendars
from batchkiln.presentation.overview import estimated_ends, read_accounts
from batchkiln.store import Reader
from support.queue_file import NOW, QueueFile, spec

AT = from_milliseconds(NOW)
PROFILE = Profile("local", limits=replace(Limits(), credits_per_day=20))
CONFIG = Config({"local": PROFILE}, "local")
TODAY = PROFILE.day.start_of(AT)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    opened.apply([spec(f"item-{number}") for number in range(5)])
    opened.quote(10)
    opened.connection.execute("INSERT INTO account (profile, name) VALUES ('local', 'main')")
    yield opened
    opened.connection.close()


def calendar(queue: QueueFile) -> Calendar:
    accounts, times = read_accounts(Reader(queue.connection), CONFIG, AT)
    (found,) = read_calendars(Reader(queue.connection), CONFIG, times, accounts)
    return found


def test_used_and_expected_credits_share_the_present_day(queue: QueueFile) -> None:
    """What is used of today leaves less for what is to come; the rest goes to the days behind it."""
    for days_ago, credit_count in ((2, 20), (0, 10)):
        queue.connection.execute(
            "INSERT INTO account_day (account_id, day_start_at, creates, credits) VALUES (1, ?, 1, ?)",
            (to_milliseconds(TODAY - timedelta(days=days_ago)), credit_count),
        )

    days = calendar(queue).days

    shown = [(day.credits, day.credits_ahead, day.items_ahead, day.is_today) for day in days if not day.is_empty]
    assert shown == [(20, 0, 0, False), (10, 10, 1, True), (0, 20, 2, False), (0, 20, 2, False)]
    assert days[0].starts_at == TODAY - timedelta(days=2)
    assert len(days) == DAYS_SHOWN


def test_the_last_day_is_the_one_in_which_the_job_ends(queue: QueueFile) -> None:
    """The calendar and the finishing time are one forecast."""
    accounts, times = read_accounts(Reader(queue.connection), CONFIG, AT)

    (end,) = estimated_ends(Reader(queue.connection), CONFIG, times, accounts).values()

    assert end.at is not None
    last = [day for day in calendar(queue).days if day.items_ahead][-1]
    assert last.starts_at == PROFILE.day.start_of(end.at)


def test_a_finished_queue_shows_no_days_to_come(queue: QueueFile) -> None:
    """Today is the last of them, behind empty days."""
    queue.connection.execute("UPDATE item SET state = 'canceled'")
    queue.connection.execute(
        "INSERT INTO account_day (account_id, day_start_at, creates, credits) VALUES (1, ?, 1, 20)",
        (to_milliseconds(TODAY - timedelta(days=2)),),
    )

    days = calendar(queue).days

    assert len(days) == DAYS_SHOWN
    assert days[-1].is_today
    assert days[-3].credits == 20
