"""Notifications from the event log: jobs that ended, and held items, grouped by job."""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from batchkiln.core.errors import command_arguments
from batchkiln.core.notifications import Notification, NotificationKind
from batchkiln.core.states import AT_REST, ItemState
from batchkiln.presentation.formatting import plural
from batchkiln.store import JobSummary, LoggedEvent, Reader

ITEMS_NAMED: Final = 5
_EVENTS_AT_ONCE: Final = 1000


class EventNotifications(Struct, frozen=True):
    """The notifications from the event log up to the event `newest`."""

    notifications: tuple[Notification, ...]
    newest: int


class _JobEvents(Struct):
    """A job's relevant events: the last one that ended an item, and those that held an item."""

    last_id: int = 0
    at: datetime | None = None
    held: int = 0
    first_held_id: int = 0
    last_held_id: int = 0
    items: list[str] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)


def notification_id(uid: str, *parts: object) -> str:
    """Return a notification's id, stable within a queue and different between queues; it contains no dot."""
    text = "\n".join(str(part) for part in (uid, *parts))
    return f"notice_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def notifications_since(reader: Reader, cursor: int, uid: str) -> EventNotifications:
    """Read the event log after `cursor` to its end, page by page; memory grows only with the number of jobs."""
    jobs: dict[str, _JobEvents] = {}
    newest = cursor
    while events := reader.events.after(newest, _EVENTS_AT_ONCE):
        for event in events:
            if event.item is not None and event.state in AT_REST:
                _add(jobs.setdefault(event.job, _JobEvents()), event)
        newest = events[-1].id
    notifications = [
        notification for name, found in jobs.items() for notification in _notifications_of(reader, name, found, uid)
    ]
    return EventNotifications(tuple(notifications), newest)


def _add(found: _JobEvents, event: LoggedEvent) -> None:
    found.last_id, found.at = event.id, event.at
    if event.state != ItemState.HELD:
        return
    found.held += 1
    found.first_held_id = found.first_held_id or event.id
    found.last_held_id = event.id
    if len(found.items) < ITEMS_NAMED and event.item is not None and event.item not in found.items:
        found.items.append(event.item)
    code = str(event.detail.get("code", event.kind))
    found.codes[code] = found.codes.get(code, 0) + 1


def _notifications_of(reader: Reader, name: str, found: _JobEvents, uid: str) -> Iterator[Notification]:
    summary = reader.jobs.summary(name)
    audience = reader.notifications.audience([name])
    if found.held and summary.items[ItemState.HELD]:
        yield _held(summary, found, uid, audience)
    if summary.is_finished and not summary.items[ItemState.QUEUED]:
        yield _ended(summary, found, uid, audience)


def _held(summary: JobSummary, found: _JobEvents, uid: str, audience: frozenset[str] | None) -> Notification:
    assert found.at is not None, "an event has an instant"
    job = summary.name
    reasons = ", ".join(f"{number:,} {code}" for code, number in found.codes.items())
    more = f" and {found.held - len(found.items):,} more" if found.held > len(found.items) else ""
    return Notification(
        id=notification_id(uid, NotificationKind.ITEM_HELD, job, found.first_held_id, found.last_held_id),
        kind=NotificationKind.ITEM_HELD,
        at=found.at,
        title=f"{job}: {plural(found.held, 'item needs', 'items need')} your decision",
        text=(
            f"{', '.join(found.items)}{more} ({reasons}). Nothing is lost; `batchkiln show "
            f"{command_arguments(job, found.items[0])}` explains why, and what to do."
        ),
        recipients=audience,
        data={"job": job, "held": found.held, "items": found.items, "codes": found.codes},
    )


def _ended(summary: JobSummary, found: _JobEvents, uid: str, audience: frozenset[str] | None) -> Notification:
    assert found.at is not None, "an event has an instant"
    job, items, spent = summary.name, summary.items, summary.credits
    counts = {state.value: number for state, number in items.items() if number}
    ended = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    refunded = f", {spent.refunded:,} refunded" if spent.refunded else ""
    return Notification(
        id=notification_id(uid, NotificationKind.JOB_ENDED, job, found.last_id),
        kind=NotificationKind.JOB_ENDED,
        at=found.at,
        title=f"{job}: ended, {items[ItemState.DONE]:,} of {plural(summary.total, 'item')} done",
        text=(
            f"{ended}; {plural(spent.charged, 'credit')} charged{refunded}. "
            f"`batchkiln status {command_arguments(job)}` shows details."
        ),
        recipients=audience,
        data={
            "job": job,
            "items": counts | {"total": summary.total},
            "credits": {"charged": spent.charged, "refunded": spent.refunded, "reserved": spent.reserved},
        },
    )
