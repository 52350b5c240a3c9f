"""A request's bytes and keys: the same for ever."""

import json
import re

from hypothesis import given, strategies as st

from batchkiln.core.job import Mode
from batchkiln.core.request import (
    idempotency_key,
    idempotency_key_by_id,
    parameters_json,
    price_key,
    recipe_key,
    request_body,
)
from support.builders import recipe

CLIP = recipe(
    model="alpha-2.5-lite",
    mode=Mode.IMAGE_TO_VIDEO,
    parameters=(("aspect_ratio", "16:9"), ("duration_seconds", 5), ("generate_audio", False)),
    inputs_count=1,
)


def test_bytes_of_a_create_are_stable() -> None:
    """Law 2: a replay is compared byte for byte, also with one that an older version sent. Service rule 4.3."""
    body = request_body(CLIP, prompt="Die Füchsin 🦊", input_urls=["https://assets/1"], max_cost_credits=50)

    assert (
        body
        == (
            '{"inputs":[{"type":"image","url":"https://assets/1"}],"max_cost_credits":50,"mode":"image-to-video",'
            '"model":"alpha-2.5-lite","parameters":{"aspect_ratio":"16:9","duration_seconds":5,"generate_audio":false},'
            '"prompt":"Die Füchsin 🦊"}'
        ).encode()
    )


def test_quote_has_no_maximum_and_no_empty_fields() -> None:
    """Only documented fields with a value are sent. Service section 2.2."""
    body = request_body(recipe(parameters=()), prompt="x", input_urls=[], max_cost_credits=None)

    assert json.loads(body) == {"model": "cost-10", "mode": "text-to-image", "prompt": "x"}


def test_idempotency_key_is_stable() -> None:
    """Law 1: should a disk ever lose a recorded attempt, the same key is made again."""
    key = idempotency_key("uid", job="guide", item="red-fox", number=2)

    assert key == "bk-2cfb465ad46a7da7e915f369d607b60c9b0192fd"


def test_idempotency_key_of_an_older_queue_is_stable() -> None:
    """Law 1: a queue of an earlier version keeps its way for its lifetime."""
    assert idempotency_key_by_id("uid", item_id=7, number=2) == "bk-a331040e74af1d637815821f5c742a4e9088f7d2"


@given(st.text(), st.text(), st.text(), st.integers(1))
def test_idempotency_key_has_the_documented_form(uid: str, job: str, item: str, number: int) -> None:
    """16 to 128 letters, digits, underscores or hyphens. Service rule 4.1."""
    assert re.fullmatch(r"[A-Za-z0-9_-]{16,128}", idempotency_key(uid, job=job, item=item, number=number))
    assert re.fullmatch(r"[A-Za-z0-9_-]{16,128}", idempotency_key_by_id(uid, item_id=number, number=number))


def test_no_two_attempts_share_a_key() -> None:
    """Law 2: another attempt, item, job or queue has another key, also where the texts could be cut elsewhere."""
    by_name = {
        idempotency_key(uid, job=job, item=item, number=number)
        for uid in ("u", "u\n1")
        for job in ("a", "a-1", 'a","1')
        for item in ("1", "11", "1-1")
        for number in (1, 11, 111)
    }
    by_id = {
        idempotency_key_by_id(uid, item_id=item_id, number=number)
        for uid in ("u", "u\n1")
        for item_id in (1, 11, 111)
        for number in (1, 11, 111)
    }

    assert len(by_name | by_id) == 54 + 18


def test_price_depends_on_what_is_asked_and_not_on_the_wishes() -> None:
    """One quote serves all recipes of one price; cap and attempts are ours alone."""
    assert price_key(recipe(max_cost_credits=5)) == price_key(recipe(attempts=1))
    assert recipe_key(recipe(max_cost_credits=5)) != recipe_key(recipe())
    assert recipe_key(recipe(attempts=1)) != recipe_key(recipe())


def test_price_distinguishes_what_may_cost_differently() -> None:
    """A flag that is true is not the number one."""
    keys = {
        price_key(made)
        for made in (
            recipe(),
            recipe(model="cost-11"),
            recipe(mode=Mode.TEXT_TO_VIDEO),
            recipe(inputs_count=1),
            recipe(parameters=(("flag", True),)),
            recipe(parameters=(("flag", 1),)),
            recipe(parameters=(("flag", "1"),)),
        )
    }

    assert len(keys) == 7


def test_parameters_are_stored_in_canonical_form() -> None:
    """Equal parameters are equal texts."""
    assert parameters_json(CLIP) == '{"aspect_ratio":"16:9","duration_seconds":5,"generate_audio":false}'
