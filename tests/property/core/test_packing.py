"""Days filled with thousands of prices, held against the sum that no program can beat."""

from collections import Counter
from math import ceil
from random import Random

import pytest

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
