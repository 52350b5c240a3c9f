"""The notifications of a run: six kinds of event for which a person or a program may want to act."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class NotificationKind(StrEnum):
    """The kind of a notification, as the configuration names it and as the type of a webhook's message."""

    JOB_ENDED = "job_ended"  # nothing in the job changes any more unless a person acts
    BUDGET_SPENT = "budget_spent"  # the day's credits are used up, and work is left
    ITEM_HELD = "item_held"  # an item waits for a person's decision
    RESULTS_EXPIRING = "results_expiring"  # charged, not fetched, and about to be deleted by the service
    NOT_UNDERSTOOD = "not_understood"  # the service's successes cannot be read (Law 10)
    ACCOUNT_BLOCKED = "account_blocked"  # key refused, upgrade required, no credits, forbidden, overcharged


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification. Sent again after a crash or a lost reply, it has the same `id`.

    `at` is service time. `recipients` are names of notifiers, None for all. `text` names jobs and items and never
    contains a prompt, a link or a key (Law 8); `data` holds the same for programs.
    """

    id: str
    kind: NotificationKind
    at: datetime
    title: str
    text: str
    recipients: frozenset[str] | None = None
    data: Mapping[str, object] = field(default_factory=dict)

    def is_for(self, notifier: str, kinds: frozenset[str] | None) -> bool:
        """Return whether a notifier that is configured for these kinds, None for all, receives it."""
        return (kinds is None or self.kind in kinds) and (self.recipients is None or notifier in self.recipients)
