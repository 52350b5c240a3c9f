"""Differences between a manifest and its job, decided one item at a time."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from batchkiln.core.states import Event, ItemState
from batchkiln.store.chains import rebuild_inputs
from batchkiln.store.references import relink
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import log_event, transition

_REQUEST_FIELDS: Final = ("model", "mode", "prompt", "inputs", "parameters")
_INPUT_PATHS: Final = "paths of inputs"
_SETTINGS: Final = ("priority", "output name", _INPUT_PATHS, "max_cost_credits", "attempts")
_CHOICE: Final = ("variants", "choose", "review")
_EVENTS: Final = {
    ItemState.QUEUED: Event.REQUEST_CHANGED,
    ItemState.REJECTED: Event.REQUEST_CHANGED,
    ItemState.CANCELED: Event.REQUEST_CHANGED,
    ItemState.HELD: Event.REQUEUED,  # it was never sent, so it waited for an image
}
_REDO_EVENTS: Final = {
    ItemState.DONE: Event.REDO_REQUESTED,
    ItemState.FAILED: Event.RETRY_REQUESTED,
    ItemState.REJECTED: Event.RETRY_REQUESTED,
    ItemState.EXPIRED: Event.RETRY_REQUESTED,
    ItemState.QUEUED: Event.REQUEST_CHANGED,
    ItemState.CANCELED: Event.REQUEST_CHANGED,
}
"""Events of items that are made again with their new request. What is under way or held is left to a person."""


class DiffKind(Enum):
    """The way in which a difference is applied."""

    SAME = auto()  # differs only in what the item's state no longer uses
    TAKE_OVER = auto()
    SETTINGS = auto()
    METADATA = auto()  # only metadata, or what decides about its use: group, choice and review
    REDO = auto()  # its request changed after it was sent, and a person wants it made again
    SENT = auto()  # its request changed after it was sent: a person decides


class Difference(Struct, frozen=True):
    """The difference of one known item. `seq`, `file` and `line` come from the staging.

    The recipe ids are those of the item's current recipe and of the manifest's recipe. `new_cost` is the quote of the
    latter, if known; `is_over_cap` is true if that exceeds the manifest's cap. With `may_redo`, a sent item whose
    request changed is made again, unless an attempt of it is open. `is_relinked` is true if the item is now made from
    other items than before, and `has_sources` if it was made from other items before.
    """

    seq: int
    file: int
    line: int
    item_id: int
    name: str
    state: ItemState
    request_fields: tuple[str, ...]
    settings: tuple[str, ...]
    choice: tuple[str, ...]
    metadata_differs: bool
    was_sent: bool
    old_recipe_id: int
    new_recipe_id: int
    may_redo: bool = False
    new_cost: int | None = None
    is_over_cap: bool = False
    is_relinked: bool = False
    has_sources: bool = False

    @property
    def kind(self) -> DiffKind:
        """The kind of change.

        A request may change until it is sent, settings until the item is done, and metadata always.
        """
        if self.request_fields:
            if not self.was_sent:
                return DiffKind.TAKE_OVER
            return DiffKind.REDO if self.may_redo and self.state in _REDO_EVENTS else DiffKind.SENT
        if self.settings and self.state is not ItemState.DONE:
            return DiffKind.SETTINGS
        return DiffKind.METADATA if self.metadata_differs or self.choice else DiffKind.SAME

    @property
    def fields(self) -> tuple[str, ...]:
        """The differing fields, in the manifest's words. A request that is sent again includes its settings."""
        settings = () if self.state is ItemState.DONE else self.settings
        if "inputs" in self.request_fields:
            settings = tuple(name for name in settings if name != _INPUT_PATHS)
        return self.request_fields + settings + self.choice + (("metadata",) if self.metadata_differs else ())

    @property
    def requeues(self) -> bool:
        """Whether applying the change queues the item again."""
        return self.kind is DiffKind.TAKE_OVER and self.state in {ItemState.REJECTED, ItemState.HELD}

    @property
    def redoes(self) -> bool:
        """Whether applying the change makes an ended item again, at the price of a new attempt."""
        return self.kind is DiffKind.REDO and self.state not in {ItemState.QUEUED, ItemState.CANCELED}


def differences_after(
    connection: Session, seq: int, limit: int, *, profile: str, may_redo: bool = False
) -> list[Difference]:
    """Return the next differences of the items' current data, in the manifest's order."""
    params = {"after": seq, "limit": limit, "profile": profile}
    rows = connection.execute(query("differences"), params).fetchall()
    return [_difference(row, may_redo=may_redo) for row in rows]


def all_differences(connection: Session, *, at_once: int, profile: str, may_redo: bool = False) -> Iterator[Difference]:
    """Yield all differences, read in portions of `at_once`."""
    seq = 0
    while page := differences_after(connection, seq, at_once, profile=profile, may_redo=may_redo):
        yield from page
        seq = page[-1].seq


def _difference(row: Row, *, may_redo: bool) -> Difference:
    request = (
        row["model_differs"],
        row["mode_differs"],
        row["prompt_differs"],
        row["inputs_differ"] or row["is_relinked"],
        row["parameters_differ"],
    )
    settings = (
        row["priority_differs"],
        row["file_name_differs"],
        row["input_paths_differ"],
        row["cap_differs"],
        row["attempts_differ"],
    )
    choice = (row["variants_differ"], row["choose_differs"], row["review_differs"])
    return Difference(
        seq=row["seq"],
        file=row["file"],
        line=row["line"],
        item_id=row["item_id"],
        name=row["name"],
        state=ItemState(row["state"]),
        request_fields=tuple(name for name, differs in zip(_REQUEST_FIELDS, request, strict=True) if differs),
        settings=tuple(name for name, differs in zip(_SETTINGS, settings, strict=True) if differs),
        choice=tuple(name for name, differs in zip(_CHOICE, choice, strict=True) if differs),
        metadata_differs=bool(row["metadata_differs"]),
        was_sent=bool(row["was_sent"]),
        old_recipe_id=row["old_recipe_id"],
        new_recipe_id=row["new_recipe_id"],
        may_redo=may_redo and not row["is_lost"],
        new_cost=row["new_cost"],
        is_over_cap=bool(row["is_over_cap"]),
        is_relinked=bool(row["is_relinked"]),
        has_sources=bool(row["has_sources"]),
    )


def apply_change(connection: Session, difference: Difference, now: int) -> None:
    """Apply a difference to the item inside the caller's transaction, as far as its kind allows."""
    params = {"seq": difference.seq, "item_id": difference.item_id}
    match difference.kind:
        case DiffKind.TAKE_OVER:
            connection.execute(query("take_over_item"), params)
            _take_over_sources(connection, difference, now)
            _log_change(connection, difference, now)
        case DiffKind.REDO:
            connection.execute(query("take_over_item"), params)
            connection.execute(query("forget_failures_of"), params)
            detail = {"fields": ", ".join(difference.request_fields)}
            event, state = _REDO_EVENTS[difference.state], difference.state
            transition(connection, item_id=difference.item_id, expected=state, event=event, now=now, detail=detail)
            _take_over_sources(connection, difference, now)
        case DiffKind.SETTINGS:
            connection.execute(query("take_over_settings"), params)
            _take_over_sources(connection, difference, now)
        case DiffKind.METADATA:
            connection.execute(query("take_over_metadata"), params)
        case DiffKind.SAME | DiffKind.SENT:
            pass


def _take_over_sources(connection: Session, difference: Difference, now: int) -> None:
    """Store the new sources of an item, after they are read again: a source may have been made since the comparison."""
    if difference.is_relinked:
        relink(connection, difference.seq, difference.item_id, now)
    elif difference.has_sources:
        rebuild_inputs(connection, difference.item_id)


def _log_change(connection: Session, difference: Difference, now: int) -> None:
    detail = {"fields": ", ".join(difference.request_fields)}
    event = _EVENTS.get(difference.state)
    if event is None:  # a person gave it up before it was sent, so its state remains
        log_event(connection, Event.REQUEST_CHANGED, item_id=difference.item_id, now=now, detail=detail)
        return
    transition(connection, item_id=difference.item_id, expected=difference.state, event=event, now=now, detail=detail)
