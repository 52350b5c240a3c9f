"""Chooses the next item so that a day's credits are used as fully as possible (contract, section 7: `pack`).

Among the remaining items, some subset fills the day best. The most expensive item of such a subset goes first, because
expensive items are the hardest to place later. Repeating the choice for each item keeps the best total reachable;
always choosing the most expensive item that fits would leave credits that no item fits into.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from batchkiln.core.queue_types import Candidate


def best_next_candidate(first: Candidate, ordered: Sequence[Candidate], room: int) -> Candidate:
    """Return the candidate to start instead of `first`, the most expensive one of its job that fits.

    `ordered` holds all candidates in the planner's order. `room` is the number of credits that the job may use today.
    Candidates over their cap will be rejected, and take no room.
    """
    alike = [each for each in ordered if (each.job_id, each.priority) == (first.job_id, first.priority)]
    alike = [each for each in alike if each.cost is None or each.cap is None or each.cost <= each.cap]
    counts = Counter[int]()
    for each in alike:
        if each.cost is not None:
            counts[each.cost] += each.queued
    cost = best_next_cost(counts, room)
    return next((each for each in alike if each.cost == cost and each.is_ready), first)


def best_next_cost(counts: Mapping[int, int], room: int) -> int | None:
    """Return the cost of the item to start next; None if nothing fits.

    `counts` maps each cost to its number of items; `room` is the number of credits left. Items that cost 0 come last.
    """
    fitting = sorted(((price, n) for price, n in counts.items() if 0 < price <= room and n > 0), reverse=True)
    if not fitting:
        return 0 if counts.get(0) else None
    fullest = _sums(fitting, room).bit_length() - 1
    return next(price for price, _ in fitting if price <= fullest and _leaves(fitting, price, fullest))


def _leaves(fitting: list[tuple[int, int]], price: int, fullest: int) -> bool:
    """Return whether the other items can fill `fullest` exactly if one item of this price is chosen."""
    others = [(other, n - (other == price)) for other, n in fitting]
    return bool(_sums(others, fullest - price) >> (fullest - price) & 1)


def _sums(prices: list[tuple[int, int]], most: int) -> int:
    """Return all reachable sums up to `most` as a bit set. Counts are split into powers of two."""
    mask = (1 << (most + 1)) - 1
    sums = 1
    for price, count in prices:
        left, taken = min(count, most // price), 1
        while left > 0:
            taken = min(taken, left)
            sums |= (sums << (price * taken)) & mask
            left -= taken
            taken *= 2
    return sums
