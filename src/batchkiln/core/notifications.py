"""What a person or a program may be told of a run: six kinds, each worth waking somebody for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class NotificationKind(StrEnum):
    """Why somebody is told. Names are the configuration's, and the type of a webhook's message."""

    JOB_ENDED = "job_ended"  # nothing of it can change any more without a person
    BUDGET_SPENT = "budget_spent"  # the day's credits are used up, and work is left
    ITEM_HELD = "item_held"  # waits for a person
    RESULTS_EXPIRING = "results_expiring"  # paid, not fetched, and soon deleted by the service
    NOT_UNDERSTOOD = "not_understood"  # the service succeeds, without what was asked for (Law 10)
    ACCOUNT_BLOCKED = "account_blocked"  # key refused, upgrade required, no credits, forbidden, overcharged


@dataclass(frozen=True, slots=True)
class Notification:
    """One thing to tell. The same thing told again, after a crash or a lost reply, has the same `id`.

    `at` is service time. `audience` are the notifiers meant, None for all. `text` names jobs and items, and never
    holds a prompt, a link or a key (Law 8); `facts` are the same for programs.
    """

    id: str
    kind: NotificationKind
    at: datetime
    title: str
    text: str
    audience: frozenset[str] | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    def is_for(self, notifier: str, kinds: frozenset[str] | None) -> bool:
        """Tell whether a notifier that wants these kinds, None for all, is to hear of it."""
        return (kinds is None or self.kind in kinds) and (self.audience is None or notifier in self.audience)
