"""What the queue remembers of accounts without an API key, on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.core.queue_changes import KeyMissing, KeysConfigured
from batchkiln.store.account_changes import forget_account_problems, update_account
from batchkiln.store.accounts import Accounts
from support.attempt_steps import begin
from support.builders import NOON, day_of, now_at
from support.worker_world import PROFILE, World

PLACES = "the file anna.key"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An account that has sent its first create."""
    made = World(tmp_path)
    made.enqueue("item-1")
    yield made
    made.close()


@pytest.mark.parametrize("way", ["a key was found", "its work was canceled", "the next run begins"])
def test_missing_key_is_known_until_it_is_over(world: World, way: str) -> None:
    """The account's summary and the explanation of an item name the same places, and then none."""
    attempt = begin(world)
    assert attempt is not None
    accounts = Accounts(world.connection)
    (summary,) = accounts.summaries()

    def places() -> set[str | None]:
        (told,) = accounts.summaries()
        standing = accounts.standing(
            profile=summary.profile, name=summary.name, item_id=attempt.item_id, day=day_of(NOON)
        )
        return {told.key_missing, standing.key_missing}

    assert places() == {None}
    world.write(update_account, PROFILE, attempt.account_id, KeyMissing(PLACES), now_at())
    assert places() == {PLACES}
    match way:
        case "a key was found":
            world.write(update_account, PROFILE, attempt.account_id, KeysConfigured(frozenset()), now_at())
        case "its work was canceled":
            world.write(update_account, PROFILE, attempt.account_id, KeyMissing(None), now_at())
        case _:
            world.write(forget_account_problems)
    assert places() == {None}
