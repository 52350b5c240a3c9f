"""What a person should act on before something paid for is lost."""

from datetime import timedelta
from typing import Final

from batchkiln.core.polling import is_long_pending
from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import age, count, moment, one_line
from batchkiln.presentation.overview import JobView

NEAR_THE_END: Final = timedelta(days=3)
"""How long before its retention ends a paid output that is not fetched is warned of."""


def warnings_of(view: JobView) -> list[str]:
    """Say what a person should act on before something paid for is lost."""
    found = []
    for entry in view.summary.under_way:
        ends_at = entry.retention_ends_at
        if entry.state is ItemState.DOWNLOADING and ends_at is not None and ends_at - view.now < NEAR_THE_END:
            found.append(
                f"{entry.item} is paid, and not fetched yet: the service may delete it from {moment(ends_at)} on. "
                "Let `batchkiln work` run"
            )
        if entry.state is ItemState.ACTIVE and is_long_pending(entry.since, view.now):
            found.append(
                f"{entry.item} has been {one_line(entry.status or 'pending')} for {age(entry.since, view.now)}: ask "
                f"the service's support about generation {entry.generation_id}. It is polled on, and never replaced, "
                "since it may be charged"
            )
        if entry.state is ItemState.SUBMITTING and is_long_pending(entry.since, view.now):
            found.append(
                f"{entry.item} was sent {count(entry.sends, 'time')} in {age(entry.since, view.now)} without a "
                "definite reply; the same request is sent on, which is never charged twice"
            )
    return found
