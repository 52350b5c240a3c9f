"""Sentences about times in which a service was not available: it did not answer, or not as itself."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from batchkiln.core.calls import Outage, PastOutage
from batchkiln.presentation.formatting import format_age, format_duration, format_minute, sanitize
from batchkiln.presentation.overview import AccountView


def present_outages(accounts: Iterable[AccountView], *, is_driven: bool) -> Iterator[str]:
    """Yield a sentence for each profile whose service does not answer, as far as the queue knows."""
    first: dict[str, tuple[Outage, datetime]] = {}
    for view in accounts:
        outage, known = view.summary.outage, first.get(view.summary.profile)
        if outage is not None and (known is None or outage.since < known[0].since):
            first[view.summary.profile] = outage, view.now
    for profile, (outage, now) in sorted(first.items()):
        since, reason = format_minute(outage.since), sanitize(outage.reason)
        if is_driven:
            age = format_age(outage.since, now)
            yield f"The service of {profile} has not been available since {since} ({age}): {reason}. It is tried again"
        else:
            yield f"The service of {profile} was not available from {since} on: {reason}. The next run tries again"


def past_outages(outages: Sequence[PastOutage]) -> Iterator[str]:
    """Yield a sentence for each profile whose service did not answer for a time. Its accounts' outages are combined."""
    for profile in sorted({outage.profile for outage in outages}):
        spans = _combined((each.since, each.until) for each in outages if each.profile == profile)
        since, until = spans[-1]
        last = f"from {format_minute(since)} to {format_minute(until)}"
        length = format_duration(sum(((end - start) for start, end in spans), timedelta()).total_seconds())
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
