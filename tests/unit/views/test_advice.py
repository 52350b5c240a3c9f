"""What `show` says of an item that needs a person."""

from batchkiln.core.states import TRANSITIONS, ItemState
from batchkiln.views.advice import HELD, NEXT


def test_every_way_to_be_held_is_explained() -> None:
    """Whatever leads to a hold, `show` tells why and what to do."""
    ways = {event for (_, event), state in TRANSITIONS.items() if state is ItemState.HELD}

    assert set(HELD) == ways
    assert all("resolve" in text for text in HELD.values())


def test_every_state_names_what_comes_next() -> None:
    """No state leaves a person without the next step; a hold has its own words."""
    assert set(NEXT) == set(ItemState) - {ItemState.HELD}
