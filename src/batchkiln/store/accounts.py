"""Accounts: daily usage, waits that the service imposed, past days, and the service's time."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from batchkiln.core.rate_limits import DayUsage, HeldUntil, LoggedRequest
from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.store.misunderstood import all_misunderstood, misunderstood
from batchkiln.store.row_types import blocked_of, held_of, input_ids_of, instant, outage_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.usage import logged_requests, usages

if TYPE_CHECKING:
    from batchkiln.core.calls import Misunderstood, Outage
    from batchkiln.core.queue_types import Snapshot, Viewpoint
    from batchkiln.core.responses import AccountBlocked


class AccountSummary(Struct, frozen=True):
    """An account's usage on its latest day, the waits that the service imposed, and its present outage.

    `key_missing` names the places where the process that runs the queue has found no API key; None if it needs none.
    `refused` is why the last run could not use the account, if that began on this queue in a file.
    """

    id: int
    profile: str
    name: str
    day: datetime | None
    usage: DayUsage
    creates_held: HeldUntil | None
    reads_held: HeldUntil | None
    misunderstood: "tuple[Misunderstood, ...]" = ()
    outage: "Outage | None" = None
    key_missing: str | None = None
    refused: "AccountBlocked | None" = None


class SlotHolder(Struct, frozen=True):
    """The item that occupies the account's only slot (Law 4)."""

    item_id: int
    job: str
    item: str
    state: ItemState


class AccountStanding(Struct, frozen=True):
    """The status of one account. `is_ready` is true if all images of the item are uploaded to the account."""

    account: str
    holder: SlotHolder | None
    usages: tuple[DayUsage, ...]
    creates_held: HeldUntil | None
    reads_held: HeldUntil | None
    is_ready: bool
    misunderstood: "tuple[Misunderstood, ...]" = ()
    outage: "Outage | None" = None
    key_missing: str | None = None
    refused: "AccountBlocked | None" = None


class PastDay(Struct, frozen=True):
    """An account's usage on one service day."""

    starts_at: datetime
    creates: int
    reads: int
    credits: int


class Accounts:
    """Reads accounts."""

    def __init__(self, connection: Session) -> None:
        """Read from this connection."""
        self._connection = connection

    def summaries(self) -> tuple[AccountSummary, ...]:
        """Return the accounts that sent requests, ordered by profile."""
        rows = self._connection.execute(query("account_usage")).fetchall()
        not_understood = all_misunderstood(self._connection)
        return tuple(_account(row, not_understood.get(row["id"], ())) for row in rows)

    def standing(self, *, profile: str, name: str, item_id: int, day: datetime) -> AccountStanding:
        """Return an account's usage and waits on a service day. An account without requests has used nothing."""
        from batchkiln.store.planner_snapshot import ready_inputs  # noqa: PLC0415  `status` needs none of it
        from batchkiln.store.preparations import item_request  # noqa: PLC0415  `status` needs none of it

        row = self._connection.execute(query("account_named"), {"profile": profile, "name": name}).fetchone()
        item = item_request(self._connection, item_id)
        inputs = input_ids_of(item["inputs"])
        if row is None:
            return AccountStanding(name, None, (DayUsage(),), None, None, is_ready=not inputs)
        holder = self._connection.execute(query("slot_holder"), {"account_id": row["id"]}).fetchone()
        return AccountStanding(
            account=name,
            holder=None
            if holder is None
            else SlotHolder(holder["item_id"], holder["job"], holder["item"], ItemState(holder["state"])),
            usages=usages(self._connection, row["id"], [day]),
            creates_held=held_of(row["creates_held_until"], row["creates_held_reason"]),
            reads_held=held_of(row["reads_held_until"], row["reads_held_reason"]),
            is_ready=ready_inputs(self._connection, row["id"], inputs) >= set(inputs),
            misunderstood=misunderstood(self._connection, row["id"]),
            outage=outage_of(row),
            key_missing=row["key_missing"],
            refused=_refused(row),
        )

    def past_days(self, account_id: int, since: datetime) -> list[PastDay]:
        """Return an account's days from an instant on. Days without activity are left out."""
        params = {"account_id": account_id, "since": to_milliseconds(since)}
        return [
            PastDay(from_milliseconds(row["day_start_at"]), row["creates"], row["reads"], row["credits"])
            for row in self._connection.execute(query("account_days"), params)
        ]

    def logged_requests(self, profile: str, last_seconds: float) -> list[LoggedRequest]:
        """Return a profile's requests of the `last_seconds` before its last request, oldest first."""
        return logged_requests(self._connection, profile, last_seconds)

    def misunderstood(self, account_id: int) -> "tuple[Misunderstood, ...]":
        """Return the calls whose replies the account's worker could not read."""
        return misunderstood(self._connection, account_id)

    def snapshot(self, viewpoint: "Viewpoint", days: Sequence[datetime]) -> "Snapshot":
        """Return the input of the planner for an account's worker."""
        from batchkiln.store.planner_snapshot import snapshot  # noqa: PLC0415  only a run needs the planner

        return snapshot(self._connection, viewpoint, days)

    def service_time(self, profile: str, machine_now: datetime) -> datetime:
        """Return the best estimate of a service's time while no process talks to it."""
        known = latest_time(self._connection, profile)
        return machine_now if known is None else max(machine_now, known)


def _refused(row: Row) -> "AccountBlocked | None":
    return None if row["refused"] is None else blocked_of(*json.loads(row["refused"]))


def _account(row: Row, not_understood: "tuple[Misunderstood, ...]") -> AccountSummary:
    usage = DayUsage(
        creates=row["creates"] or 0,
        reads=row["reads"] or 0,
        credits=row["credits"] or 0,
        upload_files=row["upload_files"] or 0,
        upload_bytes=row["upload_bytes"] or 0,
    )
    return AccountSummary(
        id=row["id"],
        profile=row["profile"],
        name=row["name"],
        day=instant(row["day_start_at"]),
        usage=usage,
        creates_held=held_of(row["creates_held_until"], row["creates_held_reason"]),
        reads_held=held_of(row["reads_held_until"], row["reads_held_reason"]),
        misunderstood=not_understood,
        outage=outage_of(row),
        key_missing=row["key_missing"],
        refused=_refused(row),
    )


def latest_time(connection: Session, profile: str | None) -> datetime | None:
    """Return the latest known instant of a profile's service, from replies and requests; None if none is known."""
    params = {"profile": profile, "key": f"service_time/{profile}"}
    newest = connection.execute(query("latest_time"), params).fetchone()[0]
    return None if newest is None else from_milliseconds(int(newest))
