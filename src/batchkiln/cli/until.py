"""When a run is to stop: `--until done|budget|TIME` and `--max-credits`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import click

from batchkiln.scheduler.control import Control

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Until:
    """What ends a run early. `at` is an instant, or a time of day (UTC) of which the next one is meant."""

    is_budget: bool = False
    at: datetime | time | None = None

    @property
    def is_early(self) -> bool:
        """Whether anything but the end of all work ends the run."""
        return self.is_budget or self.at is not None

    def instant(self, now: datetime) -> datetime | None:
        """Return the moment meant, seen from `now`, both in service time."""
        if not isinstance(self.at, time):
            return self.at
        today = datetime.combine(now.astimezone(UTC).date(), self.at, UTC)
        return today if today > now else today + timedelta(days=1)

    def set_up(self, control: Control, now: Callable[[], datetime]) -> None:
        """Tell the run."""
        control.stops_at_reset = self.is_budget
        if self.at is not None:
            control.starts_until = self.instant(now())


class UntilType(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Reads `done`, `budget`, `HH:MM` or an ISO 8601 date and time; without a zone it is UTC."""

    name = "done|budget|TIME"

    def convert(self, value: str | Until, param: click.Parameter | None, ctx: click.Context | None) -> Until:
        """Return what the text means."""
        if isinstance(value, Until):
            return value
        if value in {"done", "budget"}:
            return Until(is_budget=value == "budget")
        if match := _CLOCK.fullmatch(value):
            return Until(at=time(int(match[1]), int(match[2])))
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither done nor budget, nor a time such as 18:30 or 2030-01-31T18:30Z", param, ctx
            )
        if len(value) <= len(date.min.isoformat()):
            self.fail(f"{value!r} is a date without a time: write {value}T00:00Z", param, ctx)
        return Until(at=instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC))


UNTIL = UntilType()
