"""Alerts about items that need attention before something paid is lost."""

from batchkiln.core.polling import RETENTION_WARNING, is_long_pending
from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import format_age, format_minute, plural, sanitize
from batchkiln.presentation.overview import JobView


def alerts_of(view: JobView) -> list[str]:
    """Return the alerts of a job, one sentence each."""
    found = []
    for entry in view.summary.under_way:
        ends_at = entry.retention_ends_at
        if entry.state is ItemState.DOWNLOADING and ends_at is not None and ends_at - view.now < RETENTION_WARNING:
            found.append(
                f"{entry.item} is paid but not downloaded yet: the service may delete it from "
                f"{format_minute(ends_at)} on. Run `batchkiln work`"
            )
        if entry.state is ItemState.ACTIVE and is_long_pending(entry.since, view.now):
            found.append(
                f"{entry.item} has been {sanitize(entry.status or 'pending')} for "
                f"{format_age(entry.since, view.now)}: ask the service's support about generation "
                f"{entry.generation_id}. It is still polled, and never replaced, because it may be charged"
            )
        if entry.state is ItemState.SUBMITTING and is_long_pending(entry.since, view.now):
            found.append(
                f"{entry.item} was sent {plural(entry.sends, 'time')} in {format_age(entry.since, view.now)} without "
                "a definite reply; the same request is sent again, which is never charged twice"
            )
    return found
