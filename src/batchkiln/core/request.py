"""A request's canonical bytes, its idempotency key, and what its price depends on."""

import hashlib
import json
from collections.abc import Sequence

from batchkiln.core.job import Recipe

_KEY_DIGITS = 40  # hex digits of the idempotency key: 160 bits, far within 16 to 128 characters (Service rule 4.1)


def _canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def request_body(recipe: Recipe, *, prompt: str, input_urls: Sequence[str], max_cost_credits: int | None) -> bytes:
    """Return the bytes of a create, or of a quote where `max_cost_credits` is None (Service section 2.2).

    The same arguments give the same bytes for ever: a replay is checked byte for byte (Service rule 4.3).
    Only fields that the document names are sent, and `inputs` only where there are some.
    """
    body: dict[str, object] = {"model": recipe.model, "mode": recipe.mode.value, "prompt": prompt}
    if input_urls:
        body["inputs"] = [{"type": "image", "url": url} for url in input_urls]
    if recipe.parameters:
        body["parameters"] = dict(recipe.parameters)
    if max_cost_credits is not None:
        body["max_cost_credits"] = max_cost_credits
    return _canonical(body)


def idempotency_key(queue_uid: str, *, item_id: int, number: int) -> str:
    """Return the key of an item's attempt `number`.

    It is derived and not drawn, and the body is not part of it: should a disk ever lose a recorded attempt,
    making it again yields the same key, and the service replays or refuses it instead of charging twice.
    """
    text = f"batchkiln attempt\n{queue_uid}\n{item_id}\n{number}"
    return "bk-" + hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def parameters_json(recipe: Recipe) -> str:
    """Return the parameters as stored."""
    return _canonical(dict(recipe.parameters)).decode()


def price_key(recipe: Recipe) -> str:
    """Return a digest of what a price depends on: one quote serves all recipes that share it (contract, 8)."""
    relevant = [recipe.model, recipe.mode.value, dict(recipe.parameters), recipe.inputs_count]
    return hashlib.sha256(_canonical(relevant)).hexdigest()[:32]


def recipe_key(recipe: Recipe) -> str:
    """Return a digest of the whole recipe: equal recipes are stored once."""
    whole = [price_key(recipe), recipe.max_cost_credits, recipe.attempts]
    return hashlib.sha256(_canonical(whole)).hexdigest()[:32]
