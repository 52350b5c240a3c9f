"""Days filled as far as prices allow."""

from collections import Counter
from itertools import product
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkiln.core.packing import best_next_cost

DAY = 2000


def days_needed(prices: list[int]) -> int:
    """Fill one day after the other, as the planner does."""
    left, days = Counter(prices), 0
    while left:
        room, days = DAY, days + 1
        while (price := best_next_cost(left, room)) is not None:
            room -= price
            left -= Counter([price])
    return days


@pytest.mark.parametrize(
    "offers",
    [
        range(5, 301, 5),
        range(5, 301),
        [50, 80, 100, 160, 240, 300],
        [7, 70, 130, 170, 210, 290],
        [210, 270, 280, 290, 300],
    ],
)
def test_days_are_at_most_one_in_a_hundred_too_many(offers: list[int]) -> None:
    """Against the sum of all credits, which no program can beat."""
    chance = Random(3)
    prices = [chance.choice(offers) for _ in range(2000)]

    assert days_needed(prices) <= 1.01 * ceil(sum(prices) / DAY)


@given(st.dictionaries(st.integers(1, 12), st.integers(0, 3), max_size=4), st.integers(0, 40))
def test_the_dearest_of_a_fullest_selection(counts: dict[int, int], room: int) -> None:
    """As trying all selections would find it."""
    prices = list(counts)
    sums = {
        picks: sum(price * n for price, n in zip(prices, picks, strict=True))
        for picks in product(*(range(counts[price] + 1) for price in prices))
    }
    fullest = max(total for total in sums.values() if total <= room)
    picked = {
        n and price for picks, total in sums.items() if total == fullest for price, n in zip(prices, picks, strict=True)
    }
    dearest = max(picked, default=0) or None

    assert best_next_cost(counts, room) == dearest


def test_what_costs_nothing_goes_last() -> None:
    """It fits every day."""
    assert best_next_cost({0: 3, 5: 1}, 10) == 5
    assert best_next_cost({0: 3, 5: 1}, 4) == 0
    assert best_next_cost({5: 1}, 4) is None
