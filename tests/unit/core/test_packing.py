"""Days filled as far as prices allow."""

from itertools import product

from hypothesis import given, strategies as st

from batchkiln.core.packing import best_next_cost


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
