"""The wait of an account, computed from the queue alone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.text import Text

from batchkiln.cli.status_text import job_blocks
from batchkiln.config import Config, Profile
from batchkiln.core.states import Event
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.presentation.account_waits import AccountStatus, account_status
from batchkiln.presentation.formatting import format_minute
from batchkiln.presentation.overview import read_accounts, read_status, service_time
from batchkiln.store import Reader
from batchkiln.store.lock import record_lease
from batchkiln.store.meta import write_meta
from batchkiln.store.session import Session
from support.queue_file import NOW, QueueFile, spec

AT = from_milliseconds(NOW)
PROFILE = Profile("local")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueFile]:
    opened = QueueFile(tmp_path / "queue.db")
    opened.apply([spec("owl"), spec("heron")])
    opened.quote(10)
    opened.connection.execute("INSERT INTO account (profile, name) VALUES ('local', 'main')")
    yield opened
    opened.connection.close()


def look(connection: Session, now: datetime = AT) -> AccountStatus:
    (account,), _ = read_accounts(Reader(connection), Config({"local": PROFILE}, "local"), now)
    return account_status(Reader(connection), account, PROFILE)


def test_an_account_with_room_waits_for_nothing(queue: QueueFile) -> None:
    """The planner would begin at once; there is nothing to tell a person."""
    found = look(queue.connection)

    assert found.wait.reason is WaitReason.NOW
    assert not found.wait.is_reportable
    assert not found.is_busy


def test_spent_credits_wait_for_the_reset(queue: QueueFile) -> None:
    """Until the service's next day, by its calendar. Service section 8."""
    day = to_milliseconds(PROFILE.day.start_of(AT))
    queue.connection.execute("INSERT INTO account_day (account_id, day_start_at, credits) VALUES (1, ?, 1995)", (day,))

    found = look(queue.connection)

    assert found.wait.reason is WaitReason.DAY_CREDITS
    assert found.wait.until == PROFILE.day.reset_after(AT)


def test_status_tells_a_wait_of_everything_in_both_times(queue: QueueFile) -> None:
    """A faster clock's midnight is near, so a person need not think that the run stands still."""
    day = to_milliseconds(PROFILE.day.start_of(AT))
    queue.connection.execute("INSERT INTO account_day (account_id, day_start_at, credits) VALUES (1, ?, 1995)", (day,))
    record_lease(queue.connection, "run", NOW)
    config = Config({"local": replace(PROFILE, scale=60.0)}, "local")

    overview = read_status(Reader(queue.connection), config, None, AT)
    lines = [line.plain for line in job_blocks(overview) if isinstance(line, Text)]

    hours = (PROFILE.day.reset_after(AT) - AT).total_seconds() / 3600
    assert (
        f"local/main waits until {format_minute(PROFILE.day.reset_after(AT))} by the service's clock "
        f"(in {hours:.0f} h of its time, about {hours:.0f} min of yours) "
        "for the next day: today's credits do not cover the next item"
    ) in lines


@pytest.mark.parametrize(("scale", "is_driven", "seconds"), [(60.0, True, 3600), (1.0, True, 0), (60.0, False, 0)])
def test_a_faster_clock_goes_on_between_requests(
    queue: QueueFile, scale: float, seconds: float, *, is_driven: bool
) -> None:
    """For others than the process that runs the queue: a minute after the last change, as long as it runs."""
    known = datetime(2100, 1, 1, tzinfo=UTC)
    write_meta(queue.connection, "service_time/local", str(to_milliseconds(known)))
    if is_driven:
        record_lease(queue.connection, "run", 0)
    reader, config = Reader(queue.connection), Config({"local": replace(PROFILE, scale=scale)}, "local")
    changed_at = reader.written_at()
    assert changed_at is not None

    found = service_time(reader, config, "local", changed_at + timedelta(minutes=1))

    assert found == known + timedelta(seconds=seconds)


def test_status_tells_no_wait_while_something_is_under_way(queue: QueueFile) -> None:
    """The account's slot waits for the service then, as always."""
    record_lease(queue.connection, "run", NOW)
    queue.send("owl", generation_id="gen_1")

    overview = read_status(Reader(queue.connection), Config({"local": PROFILE}, "local"), None, AT)

    assert {account.wait for account in overview.accounts} == {None}


def test_a_full_minute_waits_for_its_first_request_to_leave_it(queue: QueueFile) -> None:
    """Ten creates within the minute: the eleventh may leave a minute after the first."""
    for number in range(10):
        queue.connection.execute(
            "INSERT INTO request (account_id, kind, sent_at) VALUES (1, 'create', ?)", (NOW - 30_000 + number,)
        )

    found = look(queue.connection)

    assert found.minute.creates == 10
    assert found.wait.reason is WaitReason.MINUTE_WINDOW
    assert found.wait.until == AT + timedelta(seconds=30)


def test_a_pause_that_the_service_asked_for_is_reported_until_its_end(queue: QueueFile) -> None:
    """Retry-After is kept across restarts, and so is its reason."""
    queue.connection.execute(
        "UPDATE account SET creates_held_until = ?, creates_held_reason = 'throttled'", (NOW + 90_000,)
    )

    found = look(queue.connection)

    assert found.wait.reason is WaitReason.THROTTLED
    assert found.wait.until == AT + timedelta(seconds=90)


def test_an_active_generation_has_the_slot(queue: QueueFile) -> None:
    """What is being generated is what a page shows, not the wait for the next look at it."""
    queue.send("owl", generation_id="gen_1")

    found = look(queue.connection)

    assert found.is_busy
    assert not found.wait.is_reportable


def test_a_held_item_on_the_slot_waits_for_a_person(queue: QueueFile) -> None:
    """Without an end in sight (Law 4)."""
    queue.send("owl", generation_id="gen_1")
    queue.move("owl", Event.KEY_MISSING, code="key_missing")

    found = look(queue.connection)

    assert (found.wait.reason, found.wait.until) == (WaitReason.HELD, None)
