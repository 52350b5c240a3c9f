"""The results of a candidate's preparation: prices, uploads, and items that end before they are sent.

Every function takes a connection inside a transaction. `now` is milliseconds of service time.
"""

import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.queue_changes import (
    Failing,
    InputLost,
    ItemRefused,
    NeverFits,
    Preparation,
    Priced,
    RecipeRefused,
    Uploaded,
    UploadsGone,
)
from batchkiln.core.queue_types import Candidate, UploadHistory, WantedInput
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import Event, ItemState
from batchkiln.store.planner_snapshot import queued_heads
from batchkiln.store.row_types import input_file_of, input_ids_of
from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import log_event, transition

ENDED_AT_ONCE = 500
"""Items rejected or held in one transaction: a million that never fit must not block the queue for a minute."""

EXAMPLES = 5
"""A recipe is priced with at most this many of its items."""


End = ItemRefused | RecipeRefused | NeverFits | InputLost


def record_preparation(connection: Session, profile: str, candidate: Candidate, result: Preparation, now: int) -> None:
    """Record the result of a candidate's preparation."""
    match result:
        case Priced(cost_credits=cost):
            parameters = {"profile": profile, "recipe_id": candidate.recipe_id, "cost": cost, "now": now}
            connection.execute(query("set_quote"), parameters)
            log_event(connection, "quoted", item_id=candidate.item_id, now=now, detail={"cost_credits": cost})
        case Failing():
            _log_failing(connection, candidate, result, now)
        case ItemRefused() | RecipeRefused() | NeverFits() | InputLost():
            event, error = _end_of(result, candidate)
            for item_id in _ended(connection, candidate, result):
                transition(connection, item_id=item_id, expected=ItemState.QUEUED, event=event, now=now, error=error)
        case Uploaded(account_id=account_id, urls=urls):
            rows = [{"account_id": account_id, "sha256": sha256, "url": url, "now": now} for sha256, url in urls]
            connection.executemany(query("set_asset"), rows)
        case UploadsGone(account_id=account_id):
            drop_assets(connection, candidate.item_id, account_id)
        case _:
            assert_never(result)


def _end_of(result: End, candidate: Candidate) -> tuple[Event, ErrorInfo]:
    """Return event and error for queued items that end before anything was sent or charged."""
    match result:
        case ItemRefused(error=error) | RecipeRefused(error=error):
            return Event.REFUSED, error
        case NeverFits():
            return Event.NEVER_FITS, never_fits_error(result, candidate.cost or 0)
        case InputLost(message=message, code=code):
            return Event.INPUT_LOST, ErrorInfo(code, message)
        case _:
            assert_never(result)


def _ended(connection: Session, candidate: Candidate, result: End) -> list[int]:
    """Return the ids of the queued items that end: the candidate alone, or the next items of its recipe."""
    if isinstance(result, ItemRefused):
        row = item_request(connection, candidate.item_id)
        return [candidate.item_id] if row["state"] == ItemState.QUEUED else []
    heads = _heads(connection, candidate)
    if isinstance(result, InputLost):
        return [head["id"] for head in heads if result.input_id in input_ids_of(head["inputs"])]
    return [head["id"] for head in heads]


def _log_failing(connection: Session, candidate: Candidate, failing: Failing, now: int) -> None:
    """Log in the history of the next item concerned that a price or an upload is not available for now."""
    kind = "price_not_had" if failing.input_id is None else "upload_not_had"
    for head in _heads(connection, candidate):
        if failing.input_id is None or failing.input_id in input_ids_of(head["inputs"]):
            log_event(connection, kind, item_id=head["id"], now=now, detail={"reason": failing.reason})
            return


def _heads(connection: Session, candidate: Candidate, limit: int = ENDED_AT_ONCE) -> list[Row]:
    """Return the next queued items of a candidate's job and recipe."""
    is_selected = candidate.is_of_selection
    return queued_heads(connection, candidate.job_id, candidate.recipe_id, limit, is_selected=is_selected)


def never_fits_error(never_fits: NeverFits, cost: int) -> ErrorInfo:
    """Return the error of an item that can never be paid."""
    what = {
        BudgetLimit.OVER_CAP: "its own cap",
        BudgetLimit.OVER_JOB_BUDGET: "what is left of the job's budget",
        BudgetLimit.OVER_JOB_DAY: "the job's daily budget",
        BudgetLimit.OVER_DAY: "the account's daily budget",
    }[never_fits.obstacle]
    amount = "" if never_fits.limit is None else f" ({never_fits.limit})"
    message = f"its quote of {cost} credits exceeds {what}{amount}; nothing was sent or charged"
    return ErrorInfo(never_fits.obstacle, message)


def same_priced_item(connection: Session, candidate: Candidate, number: int) -> int:
    """Return the id of one of the next items that shares the candidate's recipe and needs no further image."""
    heads = _heads(connection, candidate, EXAMPLES)
    own = next((head for head in heads if head["id"] == candidate.item_id), None)
    ids = [head["id"] for head in heads if own is not None and head["inputs"] == own["inputs"]]
    return int(ids[(ids.index(candidate.item_id) + number) % len(ids)]) if ids else candidate.item_id


def keep_quotes(connection: Session, *, profile: str, prices: Mapping[str, int], now: int) -> None:
    """Store prices, by price key, that were requested before their items were in the queue."""
    rows = [{"profile": profile, "price_key": key, "cost": cost, "now": now} for key, cost in prices.items()]
    connection.executemany(query("keep_quote"), rows)


def upload_history(connection: Session, account_id: int, item_id: int) -> UploadHistory:
    """Return the history of an account's uploads, and whether an item has images."""
    row = item_request(connection, item_id)
    place = {"account_id": account_id}
    has_used, has_assets = (
        bool(connection.execute(query(name), place).fetchone()[0]) for name in ("has_used_images", "has_assets")
    )
    return UploadHistory(
        has_completed=has_used or has_assets, was_used=has_used, item_has_images=bool(input_ids_of(row["inputs"]))
    )


def wanted_inputs(connection: Session, input_ids: Sequence[int], item_id: int) -> tuple[WantedInput, ...]:
    """Return the files of input ids, in the given order, one for each content."""
    rows = connection.execute(query("input_files"), {"input_ids": json.dumps(list(input_ids))}).fetchall()
    by_id = {row["id"]: row for row in rows}
    by_content = {by_id[input_id]["sha256"]: input_id for input_id in reversed(input_ids) if input_id in by_id}
    kept = set(by_content.values())
    alike: dict[str, tuple[int, ...]] = {}
    for input_id, row in by_id.items():
        alike[row["sha256"]] = (*alike.get(row["sha256"], ()), input_id)
    return tuple(
        WantedInput(input_id, input_file_of(row), item_id, alike[row["sha256"]])
        for input_id, row in ((input_id, by_id[input_id]) for input_id in input_ids if input_id in kept)
    )


def drop_assets(connection: Session, item_id: int, account_id: int) -> None:
    """Delete an item's assets on an account, so that its images are uploaded again."""
    connection.execute(query("drop_assets"), {"item_id": item_id, "account_id": account_id})


def item_request(connection: Session, item_id: int) -> Row:
    """Return the data of an item's next attempt, with the item's state and price and the job's budgets."""
    row: Row = connection.execute(query("item_request"), {"item_id": item_id}).fetchone()
    return row


def asset_urls(connection: Session, inputs: str | None, account_id: int) -> list[str] | None:
    """Return the URLs of an item's images on an account, in order; None if one is not uploaded or made yet."""
    urls = []
    for input_id in [] if inputs is None else json.loads(inputs):
        row = connection.execute(query("asset_url"), {"account_id": account_id, "input_id": input_id}).fetchone()
        if row is None:
            return None
        urls.append(row["url"])
    return urls
