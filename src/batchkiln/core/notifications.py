"""The notifications of a run: seven kinds of event for which a person or a program may want to act."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field


class NotificationKind(StrEnum):
    """The kind of a notification, as the configuration names it and as the type of a webhook's message."""

    JOB_ENDED = "job_ended"  # no item of the job can change without a person
    BUDGET_SPENT = "budget_spent"  # the day's credits are used up, but work is left
    BUDGET_SHARE = "budget_share"  # a job has spent 50, 80 or 95 % of its budget
    ITEM_HELD = "item_held"  # an item waits for a person's decision
    RESULTS_EXPIRING = "results_expiring"  # charged, not downloaded, and about to be deleted by the service
    NOT_UNDERSTOOD = "not_understood"  # the service's successes cannot be read (Law 10)
    ACCOUNT_BLOCKED = "account_blocked"  # key refused, upgrade required, no credits, forbidden, overcharged


class Notification(Struct, frozen=True):
    """One notification. A repeated delivery, after a crash or a lost reply, has the same `id`.

    `at` is service time. `recipients` lists names of notifiers; None means all. `text` names jobs and items, and never
    contains a prompt, a link or a key (Law 8). `data` holds the same information for programs.
    """

    id: str
    kind: NotificationKind
    at: datetime
    title: str
    text: str
    recipients: frozenset[str] | None = None
    data: Mapping[str, object] = field(default_factory=dict)

    def is_for(self, notifier: str, kinds: frozenset[str] | None) -> bool:
        """Return whether a notifier with this name and these kinds receives the notification.

        `kinds` None means all kinds.
        """
        return (kinds is None or self.kind in kinds) and (self.recipients is None or notifier in self.recipients)
