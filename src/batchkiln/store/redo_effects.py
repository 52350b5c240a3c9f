"""The effects of making done items again: verdicts that end, items that become stale, and the job's budget.

`redo` and the application of a manifest with `on_change="redo"` use the same figures and the same refusal.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from batchkiln.core.shown import Shown
from batchkiln.store.jobs import JobSummary
from batchkiln.store.session import Session
from batchkiln.store.sql import query

KEPT_NAMED: Final = 5
"""The number of named items whose verdicts end; the others are only counted."""


class Outdated(Struct, frozen=True):
    """Items that were sent with files that a redo replaces: they become stale as soon as it has new ones.

    `first` is the name of one of them. `may_cost` is the sum of the known quotes for making them again, in credits, or
    None without any; `unquoted` of them are not included.
    """

    count: int
    first: str
    may_cost: int | None
    unquoted: int


class RedoEffects(Shown, Struct, frozen=True):
    """What making done items again means for what exists.

    `kept` counts the items that a person kept, and `kept_names` has the first of them: each verdict is about the
    present files, and ends as soon as new ones are saved. `outdated` is None if nothing was made from the items.
    """

    kept: int = 0
    kept_names: tuple[str, ...] = ()
    outdated: Outdated | None = None

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "verdicts that end", self.kept
        yield "kept", self.kept_names
        if self.outdated is not None:
            yield "items that become stale", self.outdated.count
            yield "making those again may cost in credits", self.outdated.may_cost


def redo_effects(connection: Session, item_ids: Sequence[int]) -> RedoEffects:
    """Return the effects of making these done items again."""
    if not item_ids:
        return RedoEffects()
    params = {"ids": json.dumps(item_ids), "limit": KEPT_NAMED}
    kept = connection.execute(query("count_kept_among"), params).fetchone()[0]
    names = connection.execute(query("kept_among"), params).fetchall() if kept else ()
    row = connection.execute(query("sent_with_current"), params).fetchone()
    outdated = Outdated(row["n"], row["name"], row["cost"], row["unquoted"]) if row["n"] else None
    return RedoEffects(kept, tuple(name for (name,) in names), outdated)


def over_budget(summary: JobSummary, budget: int | None, cost: int, *, new: int = 0) -> tuple[str, int] | None:
    """Return why a budget does not pay for making done items of a job again beside what is queued; None if it does.

    The second value is the budget that would suffice. All are credits by the known quotes; `new` is the cost of items
    that are to be queued as well. What a budget does not pay for is rejected, and a done item would lose its state for
    nothing.
    """
    enough, queued = summary.budget_for(cost + new), summary.queued_cost + new
    if budget is None or not cost or enough <= budget:
        return None
    beside = f" beside {queued:,} for what is queued" if queued else ""
    left = max(0, budget - summary.credits.spent - summary.credits.reserved)
    reason = f"the job's budget.credits has {left:,} of {budget:,} credits left, and this may cost {cost:,}{beside}"
    return reason, enough
