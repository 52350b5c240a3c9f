"""What `show` says of an item that needs a person."""

from batchkiln.cli.show import _HELD, _NEXT
from batchkiln.core.states import TRANSITIONS, ItemState


def test_every_way_to_be_held_is_explained() -> None:
    """Whatever leads to a hold, `show` tells why and what to do."""
    ways = {event for (_, event), state in TRANSITIONS.items() if state is ItemState.HELD}

    assert set(_HELD) == ways
    assert all("resolve" in text for text in _HELD.values())


def test_every_state_names_what_comes_next() -> None:
    """No state leaves a person without the next step; a hold has its own words."""
    assert set(_NEXT) == set(ItemState) - {ItemState.HELD}
