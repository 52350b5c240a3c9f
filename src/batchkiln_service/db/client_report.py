"""Computes the report on the clients' requests.

All queries run on one read-only connection in one transaction, so that the figures are consistent while the service
continues to write. The queries are in `client_report.sql`.
"""

import math
import os
import secrets
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from batchkiln_service.clock import iso
from batchkiln_service.config import Limits, ServiceConfig
from batchkiln_service.db.credits import audit
from batchkiln_service.db.database import check_version
from batchkiln_service.db.report import (
    AccountStatus,
    AddressUse,
    Creates,
    DayUse,
    EndsSeen,
    FaultCount,
    Listing,
    Overlap,
    Overlaps,
    Period,
    PollGaps,
    PromptCharges,
    RefusalCount,
    Report,
    RequestCount,
    SlotUse,
    Spread,
    WindowUse,
)
from batchkiln_service.db.setup import FILE_NAME, calendar_of, stored_anchor, with_rules
from batchkiln_service.db.sql import load_queries
from batchkiln_service.db.violations import count_replacements, violations_of
from batchkiln_service.rules.windows import Calendar, shortest_poll_gap_ms

Entry = TypeVar("Entry")
LONGEST_LIST: Final = 200
_TEMPORARY: Final = (
    "make_spans", "fill_spans", "index_spans",
    "make_durations", "fill_poll_gaps", "fill_idle", "fill_seen", "index_durations",
    "make_prompts", "fill_prompts",
)  # fmt: skip
_SQL: Final = load_queries("client_report")


def read_report(config: ServiceConfig, *, now_ms: int | None = None) -> Report:
    """Return the report from a state folder, whether or not the service is running.

    `now_ms` defaults to the instant of the last request, or, without any, of the last start. Limits, days and speed are
    those of the service's last start. The database is only read. A million requests take seconds, so do not call it in
    the event loop's thread. Raise sqlite3.Error if the database cannot be read, OSError if there is none, and
    `DatabaseVersionError`.
    """
    path = config.state_dir / FILE_NAME
    if not path.exists():
        raise FileNotFoundError(f"there is no service database in {config.state_dir}; --state-dir names another folder")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        check_version(connection, path)
        config, anchor = with_rules(connection, config), stored_anchor(connection)
        time_scale = config.time_scale if anchor is None else anchor.time_scale
        if now_ms is None:
            now_ms = last_request_ms(connection) or (0 if anchor is None else anchor.service_ms)
        return report_of(connection, config.limits, calendar_of(config), time_scale=time_scale, now_ms=now_ms)


def report_of(
    connection: sqlite3.Connection,
    limits: Limits,
    calendar: Calendar,
    *,
    time_scale: float = 1.0,
    now_ms: int | None = None,
) -> Report:
    """Return the report from a connection. Temporary tables remain in it. See `read_report`."""
    if now_ms is None:
        now_ms = last_request_ms(connection)
    shortest_gap_ms = shortest_poll_gap_ms(limits.poll_interval_seconds, time_scale=time_scale)
    return _Reading(connection, limits, calendar, now_ms, shortest_gap_ms).report()


def last_request_ms(connection: sqlite3.Connection) -> int:
    """Return the instant of the last logged request; 0 without any."""
    return connection.execute(_SQL["period"]).fetchone()["last_ms"] or 0


def write_report(report: Report, path: Path) -> None:
    """Write a report as JSON. The file is replaced atomically. Raise OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as file:
            file.write(report.as_json())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class _Reading(Struct, frozen=True):
    """The queries of one report, on a connection with an open transaction."""

    connection: sqlite3.Connection
    limits: Limits
    calendar: Calendar
    now_ms: int
    shortest_poll_gap_ms: float

    def report(self) -> Report:
        """Run all queries and return the report."""
        for name in _TEMPORARY:
            self.connection.execute(_SQL[name], self._parameters())
        prompts, findings = self._one("count_prompts"), audit(self.connection)
        violations = violations_of(
            {row["code"]: row["requests"] for row in self._rows("violations_by_code")},
            early_polls=self._one("too_short_polls")["n"],
            replacements=count_replacements(self.connection.execute(_SQL["creates_of_equal_bodies"])),
            ledger_errors=len(findings),
        )
        return Report(
            ok=not violations,
            violations=violations,
            period=self._period(),
            accounts=tuple(
                AccountStatus(**{**row, "has_subscription": bool(row["has_subscription"])})
                for row in self._rows("accounts")
            ),
            requests=tuple(RequestCount(**row) for row in self._rows("requests")),
            refused=tuple(RefusalCount(**row) for row in self._rows("refused")),
            creates=self._creates(),
            windows=self._windows(),
            addresses=self._addresses(),
            days=self._days(),
            prompts_paid_more_than_once=prompts["paid_more_than_once"],
            prompts=_listing((PromptCharges(**row) for row in self._rows("prompts")), prompts["n"]),
            overlaps=self._overlaps(),
            poll_gaps=PollGaps(
                interval_seconds=self.limits.poll_interval_seconds,
                too_short=self._one("too_short_polls")["n"],
                gaps=self._spread("poll_gap"),
            ),
            slots=self._slots(),
            ends_seen=EndsSeen(self._spread("seen"), self._one("unseen_ends")["n"]),
            audit=_listing(findings[:LONGEST_LIST], len(findings)),
            faults=tuple(FaultCount(**row) for row in self._rows("faults")),
        )

    def _parameters(self) -> dict[str, object]:
        return {
            "now_ms": self.now_ms,
            "minute_reach_ms": round(self.limits.minute_seconds * 1000) - 1,
            "day_start_ms": self.calendar.day_start_ms,
            "day_ms": self.calendar.day_ms,
            "cap": LONGEST_LIST,
            "too_short_below_ms": self.shortest_poll_gap_ms,
        }

    def _rows(self, name: str, **more: object) -> list[dict[str, Any]]:
        found = self.connection.execute(_SQL[name], self._parameters() | more)
        return [dict(row) for row in found]

    def _one(self, name: str, **more: object) -> dict[str, Any]:
        return self._rows(name, **more)[0]

    def _period(self) -> Period:
        row = self._one("period")
        first = _iso_or_none(row["first_ms"])
        return Period(
            first_request_at=first,
            last_request_at=_iso_or_none(row["last_ms"]),
            log_kept_since=first,
            is_log_whole=bool(row["is_log_whole"]),
            written_at=iso(self.now_ms),
        )

    def _creates(self) -> Creates:
        row = self._one("creates")
        return Creates(**row, replays=row["accepted"] - row["new"])

    def _windows(self) -> tuple[WindowUse, ...]:
        days = {(row["account"], row["budget"]): row for row in self._rows("busiest_days")}
        limits = {
            "creates": (self.limits.creates_per_minute, self.limits.creates_per_day),
            "reads": (self.limits.reads_per_minute, self.limits.reads_per_day),
        }
        nothing = {"requests": 0, "day": None}
        return tuple(
            WindowUse(
                account=row["account"],
                budget=row["budget"],
                limit_per_minute=limits[row["budget"]][0],
                busiest_minute_requests=row["requests"],
                busiest_minute_ended_at=_iso_or_none(row["ended_at_ms"]),
                busiest_minute_sent=row["sent"],
                limit_per_day=limits[row["budget"]][1],
                busiest_day_requests=day["requests"],
                busiest_day_began_at=None if day["day"] is None else iso(self.calendar.begin_of(day["day"])),
            )
            for row in self._rows("busiest_minutes")
            for day in [days.get((row["account"], row["budget"]), nothing)]
        )

    def _addresses(self) -> Listing[AddressUse]:
        limit = self.limits.requests_per_minute_per_ip
        found = [AddressUse(**row, limit_per_minute=limit) for row in self._rows("addresses")]
        return _listing(found, self._one("count_addresses")["n"])

    def _days(self) -> Listing[DayUse]:
        found = [
            DayUse(
                began_at=iso(self.calendar.begin_of(row.pop("day"))),
                **row,
                limit_credits=self.limits.credits_per_day,
                limit_files=self.limits.upload_files_per_day,
                limit_bytes=self.limits.upload_bytes_per_day,
            )
            for row in self._rows("days")
        ]
        return _listing(found, self._one("count_days")["n"])

    def _overlaps(self) -> Overlaps:
        counted = self._one("count_overlaps")
        first = [
            Overlap(began_at=iso(row.pop("began_at_ms")), overlap_seconds=row.pop("overlap_ms") / 1000, **row)
            for row in self._rows("overlaps")
        ]
        return Overlaps(**counted, first=_listing(first, counted["pairs"]))

    def _slots(self) -> tuple[SlotUse, ...]:
        return tuple(self._slot(**row) for row in self._rows("slots"))

    def _slot(self, account: str, generations: int, span_ms: int) -> SlotUse:
        idle = self._spread("idle", account)
        busy_seconds = span_ms / 1000 - idle.total_seconds
        return SlotUse(
            account=account,
            generations=generations,
            span_seconds=span_ms / 1000,
            busy_seconds=round(busy_seconds, 3),
            busy_share=round(busy_seconds / (span_ms / 1000), 6) if span_ms else None,
            idle=idle,
        )

    def _spread(self, name: str, account: str = "") -> Spread:
        """Return the distribution of the durations that the named query selects."""
        row = self._one("spread", subject=name, account=account)
        count = row["n"]
        if not count:
            return Spread(0, 0.0, None, None, None, None, None)
        median, p95 = (
            self._one("ranked", subject=name, account=account, rank=math.ceil(share * count))["ms"]
            for share in (Fraction(1, 2), Fraction(95, 100))
        )
        return Spread(
            count=count,
            total_seconds=row["total_ms"] / 1000,
            minimum_seconds=row["minimum_ms"] / 1000,
            mean_seconds=round(row["total_ms"] / count / 1000, 6),
            median_seconds=median / 1000,
            p95_seconds=p95 / 1000,
            maximum_seconds=row["maximum_ms"] / 1000,
        )


def _listing(entries: Iterable[Entry], count: int) -> Listing[Entry]:
    """Return a listing of the first entries of a list; `count` is the length of the whole list."""
    first = tuple(entries)
    return Listing(first, more=count - len(first))


def _iso_or_none(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else iso(instant_ms)
