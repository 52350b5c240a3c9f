"""Quotes, uploads, rejections before sending, and files that were saved: facts beside the attempt itself.

Every function takes a connection inside a transaction. `now` is milliseconds of service time.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.job import SavedFile
from batchkiln.core.queue_types import Candidate, DownloadTask, WantedInput
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.store.row_types import attempt_of, input_file_of, input_ids_of, instant
from batchkiln.store.sql import query
from batchkiln.store.transitions import log_event, transition

REJECTED_AT_ONCE = 500
"""Items rejected in one transaction: a million that never fit must not block the queue for a minute."""

EXAMPLES = 5
"""How many items of one recipe are tried to have it priced."""


def record_quote(
    connection: sqlite3.Connection, *, profile: str, item_id: int, recipe_id: int, cost: int, now: int
) -> None:
    """Keep the price of the recipe that was asked, by way of an item; it serves all items that share it."""
    parameters = {"profile": profile, "recipe_id": recipe_id, "cost": cost, "now": now}
    connection.execute(query("set_quote"), parameters)
    log_event(connection, "quoted", item_id=item_id, now=now, detail={"cost_credits": cost})


def note_failing(
    connection: sqlite3.Connection, *, job_id: int, recipe_id: int, input_id: int | None, reason: str, now: int
) -> None:
    """Note in the history of a class's next item that its price, or the upload of an image, cannot be had for now."""
    parameters = {"job_id": job_id, "recipe_id": recipe_id, "limit": REJECTED_AT_ONCE}
    heads = connection.execute(query("queued_heads"), parameters).fetchall()
    kind = "price_not_had" if input_id is None else "upload_not_had"
    for head in heads:
        if input_id is None or input_id in input_ids_of(head["inputs"]):
            log_event(connection, kind, item_id=head["id"], now=now, detail={"reason": reason})
            return


def alike(connection: sqlite3.Connection, candidate: Candidate, number: int) -> int:
    """Return one of the next items that share a candidate's recipe and need no image that it does not need."""
    parameters = {"job_id": candidate.job_id, "recipe_id": candidate.recipe_id, "limit": EXAMPLES}
    heads = connection.execute(query("queued_heads"), parameters).fetchall()
    own = next((head for head in heads if head["id"] == candidate.item_id), None)
    ids = [head["id"] for head in heads if own is not None and head["inputs"] == own["inputs"]]
    return int(ids[(ids.index(candidate.item_id) + number) % len(ids)]) if ids else candidate.item_id


def keep_quotes(connection: sqlite3.Connection, *, profile: str, prices: Mapping[str, int], now: int) -> None:
    """Keep prices that were asked before their items were in the queue, by price key."""
    rows = [{"profile": profile, "price_key": key, "cost": cost, "now": now} for key, cost in prices.items()]
    connection.executemany(query("keep_quote"), rows)


def has_uploaded(connection: sqlite3.Connection, account_id: int) -> bool:
    """Tell whether an upload of the account was ever completed: its asset is here, or was accepted in a create."""
    place = {"account_id": account_id}
    return any(connection.execute(query(name), place).fetchone()[0] for name in ("has_assets", "has_used_images"))


def has_untried_images(connection: sqlite3.Connection, item_id: int, account_id: int) -> bool:
    """Tell whether an item has images, and no create of the account was ever accepted with any."""
    row = connection.execute(query("item_request"), {"item_id": item_id}).fetchone()
    if not input_ids_of(row["inputs"]):
        return False
    return not connection.execute(query("has_used_images"), {"account_id": account_id}).fetchone()[0]


def drop_assets(connection: sqlite3.Connection, item_id: int, account_id: int) -> None:
    """Forget the item's uploads on an account: the service says that one is gone."""
    connection.execute(query("drop_assets"), {"item_id": item_id, "account_id": account_id})


def reject_item(connection: sqlite3.Connection, item_id: int, error: ErrorInfo, now: int) -> None:
    """End an item whose quote the service refused; nothing was sent, nothing charged."""
    if _is_queued(connection, item_id):
        transition(connection, item_id=item_id, expected=ItemState.QUEUED, event=Event.REFUSED, now=now, error=error)


def reject_class(
    connection: sqlite3.Connection, job_id: int, recipe_id: int, error: ErrorInfo, now: int, *, event: Event
) -> int:
    """End queued items of one recipe with the same reason, some hundred at once; return how many."""
    parameters = {"job_id": job_id, "recipe_id": recipe_id, "limit": REJECTED_AT_ONCE}
    heads = connection.execute(query("queued_heads"), parameters).fetchall()
    for head in heads:
        transition(connection, item_id=head["id"], expected=ItemState.QUEUED, event=event, now=now, error=error)
    return len(heads)


def obstacle_error(obstacle: BudgetLimit, cost: int, limit: int | None) -> ErrorInfo:
    """Say why an item can never be paid."""
    what = {
        BudgetLimit.OVER_CAP: "its own cap",
        BudgetLimit.OVER_JOB_BUDGET: "what is left of the job's budget",
        BudgetLimit.OVER_JOB_DAY: "the job's daily budget",
        BudgetLimit.OVER_DAY: "the account's daily budget",
    }[obstacle]
    amount = "" if limit is None else f" ({limit})"
    return ErrorInfo(obstacle, f"its quote of {cost} credits exceeds {what}{amount}; nothing was sent or charged")


def wanted_inputs(connection: sqlite3.Connection, input_ids: Sequence[int], item_id: int) -> tuple[WantedInput, ...]:
    """Return the files behind input ids, in the order given, one per content."""
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


def record_assets(connection: sqlite3.Connection, account_id: int, urls: Iterable[tuple[str, str]], now: int) -> None:
    """Keep the url of each uploaded content (sha256, url) on its account."""
    for sha256, url in urls:
        connection.execute(query("set_asset"), {"account_id": account_id, "sha256": sha256, "url": url, "now": now})


def hold_for_input(
    connection: sqlite3.Connection, *, job_id: int, recipe_id: int, input_id: int, message: str, now: int
) -> int:
    """Hold the next items of a class that use a local file which is gone or has changed; return how many."""
    parameters = {"job_id": job_id, "recipe_id": recipe_id, "limit": REJECTED_AT_ONCE}
    held = 0
    for head in connection.execute(query("queued_heads"), parameters).fetchall():
        if input_id in input_ids_of(head["inputs"]):
            error = ErrorInfo("input_lost", message)
            transition(
                connection, item_id=head["id"], expected=ItemState.QUEUED, event=Event.INPUT_LOST, now=now, error=error
            )
            held += 1
    return held


def download_task(connection: sqlite3.Connection, attempt_id: int) -> DownloadTask:
    """Return what is needed to fetch and name the files of a finished generation."""
    row = connection.execute(query("download_task"), {"attempt_id": attempt_id}).fetchone()
    task = DownloadTask(
        attempt=attempt_of(row),
        job_name=row["job_name"],
        item_name=row["item_name"],
        index=row["position"],
        model=row["model"],
        metadata=row["metadata"],
        output_dir=row["output_dir"],
        filename=row["file_name"] or row["filename"],
        created_at=from_milliseconds(row["generation_created_at"]),
        saved={int(number): sha256 for number, sha256 in json.loads(row["saved"]).items()},
        listed=row["listed"],
        last_read_at=instant(row["last_read_at"]),
    )
    return replace(task, taken=taken_paths(connection, task, 1))


def taken_paths(connection: sqlite3.Connection, task: DownloadTask, number: int) -> frozenset[str]:
    """Return those of an output's possible paths that another output has: a person may have removed its file."""
    parameters = {"paths": json.dumps(output_paths(task, number)), "attempt_id": task.attempt.id, "number": number}
    return frozenset(path for (path,) in connection.execute(query("taken_paths"), parameters))


def output_paths(task: DownloadTask, number: int) -> list[str]:
    """Return an output's possible paths as they would be recorded: absolute, links followed."""
    names = [task.relative_name(number, extension).rpartition("/") for extension in task.extensions]
    folders = {folder: str(Path(task.output_dir, folder).resolve()) for folder in {folder for folder, _, _ in names}}
    return [f"{folders[folder].rstrip('/')}/{name}" for folder, _, name in names]


def record_saved(
    connection: sqlite3.Connection,
    task: DownloadTask,
    saved: SavedFile,
    *,
    number: int,
    listed: int,
    output_type: str,
    is_last: bool,
    now: int,
) -> bool:
    """Record a file that stands whole under its final name (Law 7); the last one ends its item.

    Returns False, with nothing recorded, where the file is another output's: of the same bytes, and so taken for what
    a crash had left, while that one was being recorded. This one needs a name of its own.
    """
    output: dict[str, str | int] = {
        "item_id": task.attempt.item_id,
        "attempt_id": task.attempt.id,
        "number": number,
        "type": output_type,
        "path": saved.path,
        "size_bytes": saved.size_bytes,
        "sha256": saved.sha256,
        "media_type": saved.media_type,
        "now": now,
    }
    is_new = connection.execute(query("insert_output"), output).rowcount == 1
    if not is_new and not connection.execute(query("is_output_saved"), output).fetchone()[0]:
        return False
    log_event(
        connection,
        "file_saved",
        item_id=task.attempt.item_id,
        now=now,
        attempt_id=task.attempt.id,
        detail={"number": number, "of": listed, "path": saved.path, "size_bytes": saved.size_bytes},
    )
    if is_last:
        record_done(connection, task, now)
    return True


def record_done(connection: sqlite3.Connection, task: DownloadTask, now: int) -> None:
    """End an item whose files are all recorded."""
    transition(
        connection,
        item_id=task.attempt.item_id,
        expected=ItemState.DOWNLOADING,
        event=Event.FILES_SAVED,
        now=now,
        attempt_id=task.attempt.id,
    )


def record_link_expired(connection: sqlite3.Connection, task: DownloadTask, now: int, reason: str) -> None:
    """Note that a link no longer worked: one more read gives a fresh one."""
    transition(
        connection,
        item_id=task.attempt.item_id,
        expected=ItemState.DOWNLOADING,
        event=Event.URL_EXPIRED,
        now=now,
        attempt_id=task.attempt.id,
        detail={"reason": reason},
    )


def record_retention_ended(connection: sqlite3.Connection, task: DownloadTask, now: int) -> None:
    """End an item whose paid outputs the service no longer holds.

    Where some of them are saved, a person has to look: a `retry`, which pays again, is not for what is on disk.
    """
    connection.execute(query("expire_attempt"), {"attempt_id": task.attempt.id, "now": now})
    if saved := connection.execute(query("count_outputs"), {"attempt_id": task.attempt.id}).fetchone()[0]:
        reason = f"{saved} of {task.listed} outputs are on disk; the service no longer holds the rest"
        _hold(connection, task, ErrorInfo("outputs_gone", reason), now)
        return
    error = ErrorInfo("expired", "paid, but the service no longer holds the outputs")
    transition(
        connection,
        item_id=task.attempt.item_id,
        expected=ItemState.DOWNLOADING,
        event=Event.RETENTION_ENDED,
        now=now,
        attempt_id=task.attempt.id,
        error=error,
    )


def record_unusable(connection: sqlite3.Connection, task: DownloadTask, reason: str, now: int) -> None:
    """Hold an item whose outputs were tried often and long enough, for a person. Its attempt stays as it is."""
    saved = connection.execute(query("count_outputs"), {"attempt_id": task.attempt.id}).fetchone()[0]
    _hold(connection, task, ErrorInfo("output_unusable", f"{saved} of its outputs are on disk; {reason}"), now)


def _hold(connection: sqlite3.Connection, task: DownloadTask, error: ErrorInfo, now: int) -> None:
    transition(
        connection,
        item_id=task.attempt.item_id,
        expected=ItemState.DOWNLOADING,
        event=Event.OUTPUTS_UNUSABLE,
        now=now,
        attempt_id=task.attempt.id,
        error=error,
    )


def _is_queued(connection: sqlite3.Connection, item_id: int) -> bool:
    row = connection.execute(query("item_request"), {"item_id": item_id}).fetchone()
    return bool(row["state"] == ItemState.QUEUED)


def asset_urls(connection: sqlite3.Connection, inputs: str | None, account_id: int) -> list[str] | None:
    """Return the urls of an item's images on an account, in order; None where one is not ready."""
    urls = []
    for input_id in input_ids_of(inputs):
        row = connection.execute(query("asset_url"), {"account_id": account_id, "input_id": input_id}).fetchone()
        if row is None:
            return None
        urls.append(row["url"])
    return urls
