"""Operations of a person on a job: retry, cancel, pause and unpause. `resolution` ends holds.

`retry` and `cancel` open their own transactions, for some thousands of items each (for `Store.run`). The others run
inside one (for `Store.write`), previews on a snapshot (for `Store.read`). `now` is milliseconds of service time.
Unknown names raise `InputError` before anything is changed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from batchkiln.core.errors import command_arguments
from batchkiln.core.shown import Shown
from batchkiln.core.states import FINAL_STATES, NOT_DELIVERED, RETRYABLE, Event, ItemState
from batchkiln.store.item_sources import waiting_for, waiting_for_queued
from batchkiln.store.items import Items
from batchkiln.store.jobs import Jobs
from batchkiln.store.redo_effects import RedoEffects, over_budget, redo_effects
from batchkiln.store.session import Session, transaction
from batchkiln.store.sql import query
from batchkiln.store.transitions import set_paused, transition_all

ITEMS_AT_ONCE: Final = 10_000
"""Items per transaction; it takes some tenths of a second, for which another process waits."""

_SKIPPED_SHOWN: Final = 3

_NOT_RETRIED: Final = {
    ItemState.QUEUED: "it is already queued",
    ItemState.SUBMITTING: "it was sent and waits for a reply",
    ItemState.ACTIVE: "it is being generated",
    ItemState.DOWNLOADING: "it is generated, and its files are being downloaded",
    ItemState.DONE: (
        "it is done; `batchkiln redo {item}` makes it again, which costs again, and `batchkiln fetch {item}` downloads "
        "files that are gone"
    ),
    ItemState.HELD: "it is held; `batchkiln show {item}` explains how to resolve it",
}
_NOT_REDONE: Final = dict.fromkeys(RETRYABLE, "it is not done; `batchkiln retry {item}` queues it again") | {
    state: _NOT_RETRIED[state] for state in _NOT_RETRIED if state is not ItemState.DONE
}
_NOT_CANCELED: Final = {state: f"it has ended: {state}" for state in FINAL_STATES} | {
    ItemState.SUBMITTING: (
        "it was sent and may be paid; if so, it will be downloaded. To give it up, stop the process that runs the "
        "queue and use `batchkiln resolve --as failed {item}`"
    ),
    ItemState.ACTIVE: (
        "active: it is already paid and will be downloaded. If its polls never succeed, stop the process that runs "
        "the queue and use `batchkiln resolve --as failed {item}`"
    ),
    ItemState.DOWNLOADING: "downloading: it is already paid and will be downloaded",
    ItemState.DONE: "it is done; its files are saved",
    ItemState.CANCELED: "it is already canceled",
    ItemState.HELD: "it is held; `batchkiln show {item}` explains how to resolve it",
}


_IS_LOST: Final = (
    "an attempt of it was lost with a restored copy of the queue, and may be paid: the next run replays it"
)


class Skipped(Struct, frozen=True):
    """A named item that was left unchanged, and the reason."""

    name: str
    reason: str


class RetryGroup(Struct, frozen=True):
    """The items in one state that a retry would queue; `cost` in credits is None if none has a quote within its cap.

    The figures are as in `RetryReport`. `newest_attempt` is None if none was ever sent.
    """

    state: ItemState
    count: int
    cost: int | None
    unquoted: int
    paying_again: int
    newest_attempt: int | None
    over_cap: int
    day_cost: int | None


class RetryReport(Shown, Struct, frozen=True):
    """The number of items that a retry queues, by their previous state; or would queue, if it `is_preview`.

    `may_cost` is the sum of the known quotes in credits, or None without any; `unquoted` items are not included, nor
    are `over_cap` items, whose quotes exceed their caps or the job's budget of a day: they would be rejected, and cost
    nothing. The rejected ones
    among the others have the sum `rejected_cost`: unless the cause is gone, they are rejected again at no cost.
    `day_cost` is the most of the day's credits that the others use, if all but the last of their attempts fail: a
    failed one is refunded, and counts for the day. `paying_again` counts items whose first result may have been paid:
    expired, canceled by the service, or given up by a person. `newest_attempt` is the largest id of an attempt of these
    items, 0 without any: it grows whenever one of them is tried again. `groups` are the figures of each state.
    """

    requeued: Mapping[ItemState, int]
    skipped: tuple[Skipped, ...]
    may_cost: int | None
    unquoted: int
    paying_again: int
    newest_attempt: int = 0
    over_cap: int = 0
    rejected_cost: int = 0
    day_cost: int = 0
    groups: tuple[RetryGroup, ...] = ()
    is_preview: bool = False

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield (
            "would be queued again" if self.is_preview else "queued again",
            [f"{count:,} {state}" for state, count in self.requeued.items()] or 0,
        )
        yield "may be paid again", self.paying_again or None
        yield from _costs_shown(self.may_cost, self.unquoted)
        yield "unchanged", [f"{each.name}: {each.reason}" for each in self.skipped[:_SKIPPED_SHOWN]]


class CancelReport(Shown, Struct, frozen=True):
    """The number of canceled items; canceling is free. `waiting` other items wait for outputs of the canceled ones."""

    canceled: int
    skipped: tuple[Skipped, ...]
    waiting: int = 0

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "canceled", self.canceled
        yield "waiting for canceled ones", self.waiting or None
        yield "unchanged", [f"{each.name}: {each.reason}" for each in self.skipped[:_SKIPPED_SHOWN]]


class RedoReport(Shown, Struct, frozen=True):
    """The number of done items that are made again; or would be made again, if it `is_preview`.

    `may_cost` is the sum of the known quotes in credits, or None without any; `unquoted` items are not included, nor
    are `over_cap` items, whose quotes exceed their caps or the job's budget of a day: they would be rejected, and cost
    nothing. `newest_attempt` is the largest id of an attempt of these items, 0 without any: it grows whenever one of
    them is made again. `day_cost` is as in `RetryReport`.
    """

    redone: int
    skipped: tuple[Skipped, ...]
    may_cost: int | None
    unquoted: int
    newest_attempt: int = 0
    over_cap: int = 0
    day_cost: int = 0
    effects: RedoEffects = RedoEffects()
    is_preview: bool = False

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "would be made again" if self.is_preview else "made again", self.redone
        yield from _costs_shown(self.may_cost, self.unquoted)
        if self.effects != RedoEffects():
            yield from self.effects._shown()  # noqa: SLF001  the same display
        yield "unchanged", [f"{each.name}: {each.reason}" for each in self.skipped[:_SKIPPED_SHOWN]]


def _costs_shown(may_cost: int | None, unquoted: int) -> Iterator[tuple[str, object]]:
    yield "may cost in credits", may_cost
    yield "items without a known price", unquoted or None


class Affected(Struct, frozen=True):
    """An item that an operation would change. `may_be_paid`: an earlier attempt of it may have cost credits."""

    name: str
    state: ItemState
    may_be_paid: bool


AFFECTED_SHOWN: Final = 8
_REFUSALS: Final = {"retry": _NOT_RETRIED, "redo": _NOT_REDONE, "cancel": _NOT_CANCELED}
_STATES_OF_ALL: Final = {"redo": (), "cancel": (ItemState.QUEUED,)}


def affected(
    connection: Session,
    operation: Literal["retry", "redo", "cancel"],
    job_name: str,
    item_names: Sequence[str],
    states: Sequence[ItemState] = NOT_DELIVERED,
) -> tuple[Affected, ...]:
    """Return up to `AFFECTED_SHOWN` items that an operation would change, those that may be paid already first.

    `states` are those of a retry without names.
    """
    job_id = Jobs(connection).id_of(job_name)
    ids, _ = choose(connection, job_id, job_name, item_names, _REFUSALS[operation])
    if not item_names:
        if operation == "retry":
            wanted = {"job_id": job_id, "states": json.dumps(list(states)), "limit": AFFECTED_SHOWN}
            ids = [row[0] for row in connection.execute(query("first_paid_for_nothing"), wanted)]
        for state in states if operation == "retry" else _STATES_OF_ALL[operation]:
            ids += Items(connection).ids(job_id, state=state, limit=AFFECTED_SHOWN)
    if operation == "cancel":
        lost = {row["item_id"] for row in connection.execute(query("lost_items_of_job"), {"job_id": job_id})}
        ids = [item_id for item_id in ids if item_id not in lost]
    params = {"ids": json.dumps(list(dict.fromkeys(ids))), "limit": AFFECTED_SHOWN}
    rows = connection.execute(query("affected_items"), params)
    return tuple(Affected(row["name"], ItemState(row["state"]), bool(row["may_be_paid"])) for row in rows)


def preview_retry(
    connection: Session, job_name: str, item_names: Sequence[str], states: Sequence[ItemState] = NOT_DELIVERED
) -> RetryReport:
    """Return the effect and the possible cost of `retry`, without a change."""
    job_id = Jobs(connection).id_of(job_name)
    ids, skipped = choose(connection, job_id, job_name, item_names, _NOT_RETRIED)
    if item_names:
        rows = connection.execute(query("retry_figures_of_items"), {"ids": json.dumps(ids)})
        found = [RetryGroup(ItemState(state), *figures) for state, *figures in rows]
    else:
        found = [_retried(connection, job_id, state) for state in states]
    costs = [entry.cost for entry in found if entry.cost is not None]
    return RetryReport(
        requeued={entry.state: entry.count for entry in found if entry.count},
        skipped=skipped,
        may_cost=sum(costs) if costs else None,
        unquoted=sum(entry.unquoted for entry in found),
        paying_again=sum(entry.paying_again for entry in found),
        newest_attempt=max((entry.newest_attempt or 0 for entry in found), default=0),
        over_cap=sum(entry.over_cap for entry in found),
        rejected_cost=sum(entry.cost or 0 for entry in found if entry.state is ItemState.REJECTED),
        day_cost=sum(entry.day_cost or 0 for entry in found if entry.state is not ItemState.REJECTED),
        groups=tuple(entry for entry in found if entry.count),
        is_preview=True,
    )


def retry(
    connection: Session,
    job_name: str,
    item_names: Sequence[str],
    now: int,
    on_moved: Callable[[int], None] = lambda _: None,
    *,
    states: Sequence[ItemState] = NOT_DELIVERED,
) -> RetryReport:
    """Queue ended items again with all their tries. Without names: all in `states`.

    `on_moved` is called with the number of items of each transaction.
    """
    report = preview_retry(connection, job_name, item_names, states)
    job_id = Jobs(connection).id_of(job_name)
    ids, _ = choose(connection, job_id, job_name, item_names, _NOT_RETRIED)

    def requeue(item_ids: Sequence[int], state: ItemState) -> None:
        connection.execute(query("forget_failures"), {"ids": json.dumps(item_ids)})
        transition_all(connection, item_ids, expected=state, event=Event.RETRY_REQUESTED, now=now)

    if item_names:
        counts = _each(connection, _pages_of(ids), RETRYABLE, requeue, on_moved)
    else:
        counts = _each_in(connection, job_id, states, requeue, on_moved)
    return replace(report, requeued=counts, is_preview=False)


def preview_redo(connection: Session, job_name: str, item_names: Sequence[str]) -> RedoReport:
    """Return the effect and the possible cost of `redo`, without a change.

    Nothing is made again if the rest of the job's budget does not pay for all of it: `skipped` says so.
    """
    job_id = Jobs(connection).id_of(job_name)
    ids, skipped = choose(connection, job_id, job_name, item_names, _NOT_REDONE)
    rows = connection.execute(query("retry_figures_of_items"), {"ids": json.dumps(ids)}).fetchall()
    costs = [row["cost"] for row in rows if row["cost"] is not None]
    if reason := _over_budget(connection, job_name, sum(costs)):
        named = list(dict.fromkeys(item_names))
        return RedoReport(0, tuple(Skipped(name, reason) for name in named), None, 0, is_preview=True)
    return RedoReport(
        len(ids),
        skipped,
        sum(costs) if costs else None,
        sum(row["unquoted"] for row in rows),
        max((row["newest"] or 0 for row in rows), default=0),
        sum(row["over_cap"] for row in rows),
        sum(row["day_cost"] or 0 for row in rows),
        redo_effects(connection, ids),
        is_preview=True,
    )


def _over_budget(connection: Session, job_name: str, cost: int) -> str | None:
    """Return why the job's budget does not pay for making done items again, and what to do; None if it does."""
    summary = Jobs(connection).summary(job_name)
    found = over_budget(summary, summary.budget_credits, cost)
    if found is None:
        return None
    reason, enough = found
    applying = f"`batchkiln enqueue {command_arguments(summary.manifest_path)}`"
    return f"{reason}: raise it to {enough:,} in the manifest, and {applying}"


def redo(connection: Session, job_name: str, item_names: Sequence[str], now: int) -> RedoReport:
    """Queue done items again, each with all its tries. Their files stay current until new ones are saved.

    Queued items that are made from them wait for the new files.
    """
    report = replace(preview_redo(connection, job_name, item_names), is_preview=False)
    ids, _ = choose(connection, Jobs(connection).id_of(job_name), job_name, item_names, _NOT_REDONE)
    if not report.redone:
        return report

    def again(item_ids: Sequence[int], _: ItemState) -> None:
        make_again(connection, item_ids, now)

    counts = _each(connection, _pages_of(ids), frozenset({ItemState.DONE}), again)
    return replace(report, redone=sum(counts.values()))


def make_again(connection: Session, item_ids: Sequence[int], now: int) -> None:
    """Queue done items again inside the caller's transaction."""
    connection.execute(query("forget_failures"), {"ids": json.dumps(item_ids)})
    transition_all(connection, item_ids, expected=ItemState.DONE, event=Event.REDO_REQUESTED, now=now)


def preview_cancel(connection: Session, job_name: str, item_names: Sequence[str]) -> CancelReport:
    """Return the effect of `cancel`, without a change."""
    job_id = Jobs(connection).id_of(job_name)
    ids, lost, skipped = _cancelable(connection, job_id, job_name, item_names)
    waiting = _waiting_for(connection, job_id, ids, item_names)
    if item_names:
        return CancelReport(len(set(ids) - lost), skipped, waiting)
    params = {"job_id": job_id, "state": ItemState.QUEUED}
    queued = connection.execute(query("count_in_state"), params).fetchone()[0]
    return CancelReport(queued - len(lost), skipped, waiting)


def _waiting_for(connection: Session, job_id: int, ids: Sequence[int], item_names: Sequence[str]) -> int:
    """Return how many items wait for outputs of the named items, or of the queued items of a job."""
    return waiting_for(connection, ids) if item_names else waiting_for_queued(connection, job_id)


def cancel(
    connection: Session,
    job_name: str,
    item_names: Sequence[str],
    now: int,
    on_moved: Callable[[int], None] = lambda _: None,
) -> CancelReport:
    """Cancel queued items; without names, all of them. Sent items continue, and so do those that may have been sent.

    `on_moved` is called with the number of items of each transaction.
    """
    job_id = Jobs(connection).id_of(job_name)
    ids, lost, skipped = _cancelable(connection, job_id, job_name, item_names)
    waiting = _waiting_for(connection, job_id, ids, item_names)

    def drop(item_ids: Sequence[int], state: ItemState) -> None:
        made = {row["id"] for row in connection.execute(query("items_made_again"), {"ids": json.dumps(item_ids)})}
        unmade = [item_id for item_id in item_ids if item_id not in made]
        transition_all(connection, unmade, expected=state, event=Event.CANCEL_REQUESTED, now=now)
        if made:  # a canceled redo leaves the item done, with the files that it has
            transition_all(connection, sorted(made), expected=state, event=Event.REDO_CANCELED, now=now)

    queued = (ItemState.QUEUED,)
    if item_names:
        unsent = [item_id for item_id in ids if item_id not in lost]
        counts = _each(connection, _pages_of(unsent), frozenset(queued), drop, on_moved)
    else:
        counts = _each_in(connection, job_id, queued, drop, on_moved, without=lost)
    return CancelReport(sum(counts.values()), skipped, waiting)


def _cancelable(
    connection: Session, job_id: int, job_name: str, item_names: Sequence[str]
) -> tuple[list[int], set[int], tuple[Skipped, ...]]:
    """Return the ids of the named items in a state that allows it, the ids that stay nevertheless, and the reasons.

    A queued item is not canceled if a restored copy of the queue lost an attempt of it, which may have been charged.
    """
    ids, skipped = choose(connection, job_id, job_name, item_names, _NOT_CANCELED)
    rows = connection.execute(query("lost_items_of_job"), {"job_id": job_id})
    lost = {row["item_id"]: row["item"] for row in rows if not item_names or row["item"] in item_names}
    return ids, set(lost), (*skipped, *(Skipped(name, _IS_LOST) for name in lost.values()))


def pause(connection: Session, job_name: str, now: int) -> bool:
    """Pause a job: begin nothing new; sent items continue. Return whether this changed anything."""
    return _set_paused(connection, job_name, now, is_paused=True)


def unpause(connection: Session, job_name: str, now: int) -> bool:
    """Resume a job. Return whether it was paused."""
    return _set_paused(connection, job_name, now, is_paused=False)


def _set_paused(connection: Session, job_name: str, now: int, *, is_paused: bool) -> bool:
    job_id = Jobs(connection).id_of(job_name)
    return set_paused(connection, job_id, now, is_paused=is_paused)


def choose(
    connection: Session,
    job_id: int,
    job_name: str,
    item_names: Sequence[str],
    refusals: Mapping[ItemState, str],
) -> tuple[list[int], tuple[Skipped, ...]]:
    """Return the ids of the named items that the operation may change, and the reasons for the others."""
    found = Jobs(connection).items_named(job_id, job=job_name, names=item_names)
    ids = [item_id for item_id, state in found.values() if state not in refusals]
    skipped = [
        Skipped(name, refusals[state].format(item=command_arguments(job_name, name)))
        for name, (_, state) in found.items()
        if state in refusals
    ]
    return ids, tuple(skipped)


def _retried(connection: Session, job_id: int, state: ItemState) -> RetryGroup:
    """Return the totals of a job's items in a state. All expired items were paid."""
    params = {"job_id": job_id, "state": state}
    count, cost, unquoted, over_cap, day_cost = connection.execute(query("retry_figures_of_state"), params).fetchone()
    (newest,) = connection.execute(query("newest_tried_in_state"), params).fetchone()
    if state is ItemState.EXPIRED:
        return RetryGroup(state, count, cost, unquoted, count, newest, over_cap, day_cost)
    (paying_again,) = connection.execute(query("count_paid_for_nothing"), params).fetchone()
    return RetryGroup(state, count, cost, unquoted, paying_again, newest, over_cap, day_cost)


def _pages_of(ids: Sequence[int]) -> Iterator[list[int]]:
    """Yield ids in portions of `ITEMS_AT_ONCE`."""
    for start in range(0, len(ids), ITEMS_AT_ONCE):
        yield list(ids[start : start + ITEMS_AT_ONCE])


def _each(
    connection: Session,
    pages: Iterator[list[int]],
    states: frozenset[ItemState],
    act: Callable[[Sequence[int], ItemState], None],
    on_moved: Callable[[int], None] = lambda _: None,
) -> dict[ItemState, int]:
    """Call `act` for each page of items in each of `states`, each in a transaction; return their number by state."""
    counts: dict[ItemState, int] = {}
    for page in pages:
        with transaction(connection):
            rows = connection.execute(query("items_by_state"), {"ids": json.dumps(page)})
            found = {row["state"]: sorted(json.loads(row["ids"])) for row in rows}
            for state in sorted(states):
                if ids := found.get(state):
                    act(ids, state)
                    counts[state] = counts.get(state, 0) + len(ids)
        on_moved(len(page))
    return counts


def _each_in(
    connection: Session,
    job_id: int,
    states: Sequence[ItemState],
    act: Callable[[Sequence[int], ItemState], None],
    on_moved: Callable[[int], None],
    *,
    without: Collection[int] = (),
) -> dict[ItemState, int]:
    """Call `act` for all items of a job in some states, as `_each` does for pages of given ones.

    `act` moves the items out of their states; those of `without` stay.
    """
    counts: dict[ItemState, int] = {}
    for state in states:
        after, is_over = 0, False
        while not is_over:
            with transaction(connection):
                params = {"job_id": job_id, "state": state, "after": after, "limit": ITEMS_AT_ONCE}
                page = json.loads(connection.execute(query("ids_in_state"), params).fetchone()[0])
                if ids := [item_id for item_id in page if item_id not in without]:
                    act(ids, state)
                    counts[state] = counts.get(state, 0) + len(ids)
            if ids:
                on_moved(len(ids))
            is_over = len(page) < ITEMS_AT_ONCE
            after = page[-1] if page else after
    return counts
