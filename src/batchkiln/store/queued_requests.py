"""All queued items of jobs as the requests that they will become, for a model of a run."""

import json
from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct

from batchkiln.core.job import Order, Recipe
from batchkiln.core.polling import Kind
from batchkiln.store.row_types import order_of, output_seconds, recipe_of
from batchkiln.store.session import Session
from batchkiln.store.sql import query


class QueuedRequest(NamedTuple):
    """A queued item: one prompt, and the recipe that it is sent with."""

    item_id: int
    recipe_id: int
    priority: int
    prompt: str


class QueuedJob(Struct, frozen=True):
    """A job with its queued items. `accounts` is empty if it uses the profile's first account.

    `recipes` and `kinds` are by recipe id. If not `is_plain`, the job is paused, an item is not queued, or it has an
    image, a review, or other items that are made from it: it is more than its requests.
    """

    id: int
    name: str
    accounts: tuple[str, ...]
    order: Order
    budget_credits: int | None
    budget_credits_per_day: int | None
    recipes: dict[int, Recipe]
    kinds: dict[int, Kind]
    items: tuple[QueuedRequest, ...]
    is_plain: bool


def queued_requests(connection: Session, job_ids: Collection[int]) -> list[QueuedJob]:
    """Return jobs with their queued items, in the order of their ids."""
    rows = connection.execute(query("requested_jobs"), {"job_ids": json.dumps(sorted(job_ids))}).fetchall()
    found = []
    for row in rows:
        recipes = connection.execute(query("requested_recipes"), {"job_id": row["id"]}).fetchall()
        items = connection.execute(query("requested_items"), {"job_id": row["id"]}).fetchall()
        by_id = {recipe["id"]: recipe_of(recipe) for recipe in recipes}
        kinds = {
            recipe["id"]: Kind(
                recipe["price_key"],
                is_video := by_id[recipe["id"]].mode.makes_video,
                recipe["model"],
                output_seconds(json.loads(recipe["parameters"]), is_video),
            )
            for recipe in recipes
        }
        found.append(
            QueuedJob(
                id=row["id"],
                name=row["name"],
                accounts=tuple(json.loads(row["accounts"])),
                order=order_of(row["item_order"]),
                budget_credits=row["budget_credits"],
                budget_credits_per_day=row["budget_credits_per_day"],
                recipes=by_id,
                kinds=kinds,
                items=tuple(
                    QueuedRequest(each["id"], each["recipe_id"], each["priority"], each["prompt"]) for each in items
                ),
                is_plain=not row["is_paused"] and all(each["is_queued"] and not each["has_more"] for each in items),
            )
        )
    return found
