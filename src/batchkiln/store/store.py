"""The queue as the scheduler uses it: each call is one transaction, and one hop to the connection's thread."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.duration_model import Observation
from batchkiln.core.job import Attempt, SavedFile
from batchkiln.core.outcomes import Answer
from batchkiln.core.polling import LOST_AFTER
from batchkiln.core.queue_types import (
    Candidate,
    Circumstances,
    DownloadTask,
    Kind,
    NewAttempt,
    Progress,
    Snapshot,
    Viewpoint,
    WantedInput,
)
from batchkiln.core.rate_limits import LoggedRequest, RequestNote, ServiceDay
from batchkiln.core.responses import ErrorInfo, GenerationRecord
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import LATEST, ClockReading, from_milliseconds, to_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.store import attempts, misunderstood, planner_snapshot, preparations, usage
from batchkiln.store.charges import charge_beyond
from batchkiln.store.database import Database
from batchkiln.store.sql import query

P = ParamSpec("P")
T = TypeVar("T")


class ChangeNotifier:
    """Tells all who wait that the queue has changed, by us or by another process."""

    def __init__(self) -> None:
        """Begin with nothing new."""
        self._changed = asyncio.Event()
        self.version = 0

    def change(self) -> None:
        """Note a change that nobody needs to wake for: another follows it at once."""
        self.version += 1

    def announce(self) -> None:
        """Wake everybody who waits: something was changed, or may have been by others."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Return an event that the next change sets."""
        return self._changed


class Store:
    """What the scheduler asks of the queue, for the accounts of one profile."""

    def __init__(
        self, database: Database, news: ChangeNotifier, *, profile: str, day: ServiceDay, keep_requests_seconds: float
    ) -> None:
        """Use an open database; requests older than `keep_requests_seconds` no longer matter to any minute."""
        self._database = database
        self._news = news
        self._profile = profile
        self._day = day
        self._keep = keep_requests_seconds

    # --- news ---

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._news.version

    def announce(self) -> None:
        """Tell everybody who waits that the queue may have changed."""
        self._news.announce()

    def news(self) -> asyncio.Event:
        """Return an event that is set by the next change."""
        return self._news.next()

    async def _record(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._database.write(work, *args, **kwargs)
        finally:
            self._news.announce()

    async def _record_quietly(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Record what is only the first half of a step: the reply's record wakes everybody."""
        try:
            return await self._database.write(work, *args, **kwargs)
        finally:
            self._news.change()

    # --- looking ---

    async def snapshot(self, viewpoint: Viewpoint, days: Sequence[datetime]) -> Snapshot:
        """Read all that the planner has to know about one account."""
        return await self._database.read(planner_snapshot.snapshot, viewpoint, days)

    async def logged_requests(self) -> list[LoggedRequest]:
        """Return the requests that may still count in a minute, all accounts', oldest first."""
        return await self._database.read(usage.logged_requests, self._profile, self._keep)

    async def durations(self) -> list[tuple[Kind, Observation]]:
        """Return what was seen of the durations of the profile's newest successes, the oldest first."""
        return await self._database.read(planner_snapshot.durations, self._profile)

    async def download_task(self, attempt_id: int) -> DownloadTask:
        """Return what is needed to fetch and name an attempt's files."""
        return await self._database.read(preparations.download_task, attempt_id)

    async def taken_paths(self, task: DownloadTask, number: int) -> frozenset[str]:
        """Return those of an output's possible paths that another output has."""
        return await self._database.read(preparations.taken_paths, task, number)

    async def wanted_inputs(self, candidate: Candidate) -> tuple[WantedInput, ...]:
        """Return the files that a candidate, and the items just behind it, still need as assets."""
        return await self._database.read(preparations.wanted_inputs, candidate.missing_inputs, candidate.item_id)

    async def quote_body(self, item_id: int, account_id: int) -> bytes | None:
        """Return the body of a quote for an item; None where it is no longer queued or not ready."""
        return await self._database.read(attempts.quote_body, item_id, account_id)

    async def alike(self, candidate: Candidate, number: int) -> int:
        """Return one of the next items of a candidate's class: another one for each of the first few numbers."""
        return await self._database.read(preparations.alike, candidate, number)

    # --- requests ---

    async def account(self, name: str) -> int:
        """Return an account's id; it is made where it is new."""
        return await self._record(_account, self._profile, name)

    async def note_request(self, request: RequestNote) -> None:
        """Write a request down before it leaves (Law 5)."""
        await self._database.write(usage.write_request, request, keep_seconds=self._keep)

    async def note_read(self, attempt_id: int, request: RequestNote) -> None:
        """Write a read of a generation down before it leaves."""
        await self._database.write(attempts.record_read, attempt_id, request, keep_seconds=self._keep)

    async def count_also(self, request: RequestNote) -> None:
        """Count a request in further days: it was answered after a reset."""
        await self._database.write(usage.count_in_days, request)

    async def hold(self, account_id: int, *, creates: bool, until: datetime, reason: WaitReason) -> None:
        """Keep a wait that the service imposed, so that a restart honours it as well."""
        name = "hold_creates" if creates else "hold_reads"
        await self._record(_execute, name, account_id=account_id, until=to_milliseconds(until), reason=reason)

    async def cap_holds(self, account_id: int, now: ClockReading, *, logged_at: datetime | None) -> None:
        """Shorten an account's stored waits to what the service may have asked for, now that its time is known."""
        await self._database.write(usage.cap_holds, account_id, now.latest, logged_at)

    async def record_misunderstood(self, account_id: int, entry: Misunderstood, circumstances: Circumstances) -> None:
        """Keep that a call is not understood."""
        await self._record(misunderstood.record_misunderstood, account_id, entry, circumstances)

    async def forget_misunderstood(self, account_id: int, call: Call) -> None:
        """Forget that a call was not understood."""
        await self._record(misunderstood.forget_misunderstood, account_id, call)

    async def forget_other_circumstances(self, account_id: int, circumstances: Circumstances) -> None:
        """Forget what was not understood under other circumstances."""
        await self._record(misunderstood.forget_other_circumstances, account_id, circumstances)

    async def remember_time(self, now: ClockReading) -> None:
        """Keep the service's time, the floor of the next start's guess."""
        value = str(to_milliseconds(now.instant))
        await self._database.write(_execute, "set_meta", key=f"service_time/{self._profile}", value=value)

    async def remembered_time(self) -> datetime | None:
        """Return the latest service time that was kept."""
        milliseconds = await self._database.read(service_time, self._profile)
        is_possible = milliseconds is not None and 0 <= milliseconds < to_milliseconds(LATEST)
        return from_milliseconds(milliseconds) if milliseconds is not None and is_possible else None

    # --- attempts ---

    async def record_attempt(self, new: NewAttempt) -> Attempt | None:
        """Make an attempt durable before anything is sent (Law 1); None where the plan is no longer true."""
        return await self._record_quietly(attempts.record_attempt, new, keep_seconds=self._keep)

    async def record_replay(self, attempt_id: int, request: RequestNote) -> Attempt | None:
        """Count one more send of an attempt before it happens; None where it is damaged, and now held."""
        return await self._record_quietly(attempts.record_replay, attempt_id, request, keep_seconds=self._keep)

    async def record_answer(
        self, attempt: Attempt, answer: Answer, error: ErrorInfo, now: ClockReading, *, is_contact: bool
    ) -> ItemState:
        """Record what a reply that names no generation means; return the item's state."""
        at = to_milliseconds(now.instant)
        return await self._record(attempts.record_answer, attempt.id, answer, error, at, is_contact=is_contact)

    async def record_hold(self, attempt: Attempt, event: Event, error: ErrorInfo, now: ClockReading) -> ItemState:
        """Hand an attempt over to a person; return the item's state."""
        return await self._record(attempts.record_hold, attempt.id, event, error, to_milliseconds(now.instant))

    async def record_withdrawn(self, attempt: Attempt, now: ClockReading) -> None:
        """Note that an attempt that created nothing is not sent again."""
        await self._record(attempts.record_withdrawn, attempt.id, to_milliseconds(now.instant))

    async def record_accepted(self, attempt: Attempt, record: GenerationRecord, now: ClockReading) -> Progress:
        """Note the generation's id and price, and how far it is."""
        at = to_milliseconds(now.instant)
        return await self._record(_accept, attempt.id, record, at, self._day_of(now))

    async def record_generation(
        self,
        attempt: Attempt,
        record: GenerationRecord,
        now: ClockReading,
        *,
        sighting: Observation | None = None,
    ) -> Progress:
        """Take over what a poll said, and what was seen of the duration of a success."""
        at = to_milliseconds(now.instant)
        return await self._record(_take_over, attempt.id, record, at, self._day_of(now), sighting=sighting)

    def _day_of(self, now: ClockReading) -> usage.DayOf:
        return lambda instant: self._day.start_of(instant or now.latest)

    async def record_lost(self, attempt: Attempt, error: ErrorInfo, now: ClockReading) -> ItemState:
        """Note that the service denies a generation's id."""
        after = int(LOST_AFTER.total_seconds() * 1000)
        return await self._record(attempts.record_lost, attempt.id, error, to_milliseconds(now.instant), after)

    async def record_key_missing(
        self, attempt: Attempt, state: ItemState, now: ClockReading, *, is_refused: bool = False
    ) -> None:
        """Hold an item whose API key is not configured, or refused."""
        at = to_milliseconds(now.instant)
        await self._record(attempts.record_key_missing, attempt.id, state, at, is_refused=is_refused)

    async def resume_held_for_key(self, account_id: int, fingerprints: frozenset[str], now: ClockReading) -> int:
        """Take up items again whose API key came back."""
        at = to_milliseconds(now.instant)
        return await self._record(attempts.resume_held_for_key, account_id, fingerprints, at)

    # --- preparations ---

    async def record_quote(self, candidate: Candidate, cost_credits: int, now: ClockReading) -> None:
        """Keep a price of this profile."""
        await self._record(
            preparations.record_quote,
            profile=self._profile,
            item_id=candidate.item_id,
            recipe_id=candidate.recipe_id,
            cost=cost_credits,
            now=to_milliseconds(now.instant),
        )

    async def note_failing(self, candidate: Candidate, input_id: int | None, reason: str, now: ClockReading) -> None:
        """Note that a candidate's price, or the upload of an image, cannot be had for now, and why."""
        await self._record(
            preparations.note_failing,
            job_id=candidate.job_id,
            recipe_id=candidate.recipe_id,
            input_id=input_id,
            reason=reason,
            now=to_milliseconds(now.instant),
        )

    async def has_uploaded(self, account_id: int) -> bool:
        """Tell whether an upload of the account was ever completed, as far as it is known."""
        return await self._database.read(preparations.has_uploaded, account_id)

    async def has_untried_images(self, item_id: int, account_id: int) -> bool:
        """Tell whether an item has images, and no create of the account was ever accepted with any."""
        return await self._database.read(preparations.has_untried_images, item_id, account_id)

    async def drop_assets(self, item_id: int, account_id: int) -> None:
        """Forget an item's uploads, so that they are made again."""
        await self._record(preparations.drop_assets, item_id, account_id)

    async def reject_item(self, item_id: int, error: ErrorInfo, now: ClockReading) -> None:
        """End a queued item that the service refuses to price."""
        await self._record(preparations.reject_item, item_id, error, to_milliseconds(now.instant))

    async def reject_alike(self, candidate: Candidate, error: ErrorInfo, now: ClockReading) -> int:
        """End the queued items of a recipe that the service refuses to price."""
        at = to_milliseconds(now.instant)
        job_id, recipe_id = candidate.job_id, candidate.recipe_id
        return await self._record(preparations.reject_class, job_id, recipe_id, error, at, event=Event.REFUSED)

    async def reject_unpayable(
        self, candidate: Candidate, obstacle: BudgetLimit, limit: int | None, now: ClockReading
    ) -> int:
        """End the queued items of a recipe that can never be paid."""
        error = preparations.obstacle_error(obstacle, candidate.cost or 0, limit)
        at = to_milliseconds(now.instant)
        job_id, recipe_id = candidate.job_id, candidate.recipe_id
        return await self._record(preparations.reject_class, job_id, recipe_id, error, at, event=Event.NEVER_FITS)

    async def record_assets(self, account_id: int, urls: Iterable[tuple[str, str]], now: ClockReading) -> None:
        """Keep the urls of uploaded contents (sha256, url)."""
        await self._record(preparations.record_assets, account_id, urls, to_milliseconds(now.instant))

    async def hold_for_input(self, candidate: Candidate, input_id: int, message: str, now: ClockReading) -> None:
        """Hold the items of a class that need a local file which is gone or has changed."""
        await self._record(
            preparations.hold_for_input,
            job_id=candidate.job_id,
            recipe_id=candidate.recipe_id,
            input_id=input_id,
            message=message,
            now=to_milliseconds(now.instant),
        )

    # --- downloads ---

    async def record_saved(
        self,
        task: DownloadTask,
        saved: SavedFile,
        *,
        number: int,
        listed: int,
        output_type: str,
        is_last: bool,
        now: ClockReading,
    ) -> bool:
        """Record a file that stands whole under its final name (Law 7); False where another output has that file."""
        at = to_milliseconds(now.instant)
        return await self._record(
            preparations.record_saved,
            task,
            saved,
            number=number,
            listed=listed,
            output_type=output_type,
            is_last=is_last,
            now=at,
        )

    async def record_done(self, task: DownloadTask, now: ClockReading) -> None:
        """End an item whose files are all here."""
        await self._record(preparations.record_done, task, to_milliseconds(now.instant))

    async def record_link_expired(self, task: DownloadTask, reason: str, now: ClockReading) -> None:
        """Note that a link no longer worked."""
        await self._record(preparations.record_link_expired, task, to_milliseconds(now.instant), reason)

    async def record_unusable(self, task: DownloadTask, reason: str, now: ClockReading) -> None:
        """Hold an item whose outputs cannot be had, for a person."""
        await self._record(preparations.record_unusable, task, reason, to_milliseconds(now.instant))

    async def record_retention_ended(self, task: DownloadTask, now: ClockReading) -> None:
        """End an item whose paid outputs are gone."""
        await self._record(preparations.record_retention_ended, task, to_milliseconds(now.instant))


def _accept(
    connection: sqlite3.Connection, attempt_id: int, record: GenerationRecord, now: int, day_of: usage.DayOf
) -> Progress:
    before = _attempt(connection, attempt_id)
    state = attempts.record_accepted(connection, attempt_id, record, now, day_of)
    return _progress(connection, before, state)


def _take_over(
    connection: sqlite3.Connection,
    attempt_id: int,
    record: GenerationRecord,
    now: int,
    day_of: usage.DayOf,
    *,
    sighting: Observation | None,
) -> Progress:
    before = _attempt(connection, attempt_id)
    state = attempts.record_generation(connection, attempt_id, record, now, day_of, sighting=sighting)
    return _progress(connection, before, state)


def _attempt(connection: sqlite3.Connection, attempt_id: int) -> sqlite3.Row:
    row: sqlite3.Row = connection.execute(query("select_attempt"), {"attempt_id": attempt_id}).fetchone()
    return row


def _progress(connection: sqlite3.Connection, before: sqlite3.Row, state: ItemState) -> Progress:
    cost = _attempt(connection, before["id"])["cost_credits"]
    return Progress(state, charge_beyond(before, cost))


def _account(connection: sqlite3.Connection, profile: str, name: str) -> int:
    parameters = {"profile": profile, "name": name}
    connection.execute(query("insert_account"), parameters)
    account_id: int = connection.execute(query("select_account"), parameters).fetchone()[0]
    return account_id


def _execute(connection: sqlite3.Connection, name: str, /, **parameters: str | int | None) -> None:
    connection.execute(query(name), parameters)


def service_time(connection: sqlite3.Connection, profile: str) -> int | None:
    """Return the latest time of a profile's service that was kept, in milliseconds; None before the first."""
    row = connection.execute(query("get_meta"), {"key": f"service_time/{profile}"}).fetchone()
    return None if row is None else int(row["value"])
