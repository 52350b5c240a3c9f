"""Sentences about times in which a service was not available: it did not answer, or not as itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING

from batchkiln.presentation.formatting import (
    format_minute,
    format_service_age,
    format_service_duration,
    format_until,
    sanitize,
)
from batchkiln.presentation.overview import AccountView

if TYPE_CHECKING:
    from batchkiln.core.calls import Outage, PastOutage


def present_outages(accounts: Iterable[AccountView], *, is_driven: bool) -> Iterator[str]:
    """Yield a sentence for each profile whose service does not answer, as far as the queue knows."""
    first: dict[str, tuple[Outage, AccountView]] = {}
    for view in accounts:
        outage, known = view.summary.outage, first.get(view.summary.profile)
        if outage is not None and (known is None or outage.since < known[0].since):
            first[view.summary.profile] = outage, view
    for profile, (outage, view) in sorted(first.items(), key=itemgetter(0)):
        since, reason = format_until(outage.since, view.time_scale), sanitize(outage.reason)
        if is_driven:
            age = format_service_age(outage.since, view.now, view.time_scale)
            yield f"The service of {profile} has not been available since {since} ({age}): {reason}. It is tried again"
        else:
            yield f"The service of {profile} was not available from {since} on: {reason}. The next run tries again"


def past_outages(outages: "Sequence[PastOutage]", time_scales: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for each profile whose service was not available for a time, with its `time_scale` by name.

    The outages of a profile's accounts are combined.
    """
    for profile in sorted({outage.profile for outage in outages}):
        spans = _combined((each.since, each.until) for each in outages if each.profile == profile)
        since, until = spans[-1]
        time_scale = time_scales.get(profile, 1.0)
        last = f"from {format_minute(since)} to {format_until(until, time_scale)}"
        length = format_service_duration(sum(((end - start) for start, end in spans), timedelta()), time_scale)
        if len(spans) == 1:
            yield f"The service of {profile} was not available {last} ({length})"
        else:
            times = f"{len(spans)} times, {length} in all, the last time {last}"
            yield f"The service of {profile} was not available {times}"


def _combined(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Combine the spans that overlap."""
    found: list[tuple[datetime, datetime]] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        else:
            found.append((since, until))
    return found
