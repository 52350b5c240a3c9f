"""The canonical bytes of a request, its idempotency key, and digests of the fields that determine its price."""

import hashlib
import json
from collections.abc import Sequence

from batchkiln.core.job import Recipe

_KEY_DIGITS = 40  # hex digits of the idempotency key: 160 bits; 16 to 128 characters are allowed (Service rule 4.1)


def _canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def request_body(recipe: Recipe, *, prompt: str, input_urls: Sequence[str], max_cost_credits: int | None) -> bytes:
    """Return the body of a create, or of a quote if `max_cost_credits` is None (Service section 2.2).

    The same arguments always give the same bytes, because a replay is compared byte for byte (Service rule 4.3). Only
    documented fields are sent, and `inputs` only if there are any.
    """
    body: dict[str, object] = {"model": recipe.model, "mode": recipe.mode.value, "prompt": prompt}
    if input_urls:
        body["inputs"] = [{"type": "image", "url": url} for url in input_urls]
    if recipe.parameters:
        body["parameters"] = dict(recipe.parameters)
    if max_cost_credits is not None:
        body["max_cost_credits"] = max_cost_credits
    return _canonical(body)


def input_urls(body: bytes) -> list[str]:
    """Return the addresses of the uploaded images in a body that `request_body` made, in order."""
    return [str(each["url"]) for each in json.loads(body).get("inputs", ())]


def idempotency_key(queue_uid: str, *, job: str, item: str, number: int) -> str:
    """Return the key of an item's attempt `number`, in a queue of schema 5 or later.

    The key is derived, not random, and does not depend on the body. If a disk loses a recorded attempt, recording it
    again gives the same key, and the service replays or refuses it instead of charging twice. Names are unique and
    never change, so this also holds for an item that was lost and enqueued again.
    """
    return _key(_canonical(["batchkiln attempt", queue_uid, job, item, number]))


def idempotency_key_by_id(queue_uid: str, *, item_id: int, number: int) -> str:
    """Return the key of an item's attempt `number`, in a queue that an earlier version created.

    Such a queue never changes its method, because an attempt that it lost and records again must get the same key.
    """
    return _key(f"batchkiln attempt\n{queue_uid}\n{item_id}\n{number}".encode())


def _key(text: bytes) -> str:
    return "bk-" + hashlib.sha256(text).hexdigest()[:_KEY_DIGITS]


def parameters_json(recipe: Recipe) -> str:
    """Return the parameters as the JSON that the queue stores."""
    return _canonical(dict(recipe.parameters)).decode()


def price_key(recipe: Recipe) -> str:
    """Return a digest of the fields that determine a price; equal digests share a quote (contract, section 8)."""
    relevant = [recipe.model, recipe.mode.value, dict(recipe.parameters), recipe.inputs_count]
    return hashlib.sha256(_canonical(relevant)).hexdigest()[:32]


def recipe_key(recipe: Recipe) -> str:
    """Return a digest of the whole recipe; equal recipes are stored once."""
    whole = [price_key(recipe), recipe.max_cost_credits, recipe.attempts]
    return hashlib.sha256(_canonical(whole)).hexdigest()[:32]
