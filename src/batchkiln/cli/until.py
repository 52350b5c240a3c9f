"""When a run is to stop: `--until done|budget|TIME`."""

import re
from datetime import UTC, date, datetime, time
from typing import Final

import click

from batchkiln.api.run_options import Until

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


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
