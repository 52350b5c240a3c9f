"""Which item to begin next so that a day's credits are used up as far as they can be (contract, section 7: `pack`).

Of all that is left, some selection fills the day's room best; the dearest item that belongs to such a selection goes
first, since dear ones are hardest to place later. Asked again for each item, this keeps the day fillable to the end:
days come out as full as the prices allow, where dearest-first leaves gaps that nothing fits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from batchkiln.core.queue_types import Candidate


def best_next_candidate(first: Candidate, ordered: Sequence[Candidate], room: int) -> Candidate:
    """Return which of a job's candidates to begin where `first`, its dearest that fits, may begin.

    `ordered` are all candidates in the planner's order, `room` the credits that the job may take of this day.
    """
    alike = [each for each in ordered if (each.job_id, each.priority) == (first.job_id, first.priority)]
    counts = Counter[int]()
    for each in alike:
        if each.cost is not None:
            counts[each.cost] += each.queued
    cost = best_next_cost(counts, room)
    return next((each for each in alike if each.cost == cost and each.is_ready), first)


def best_next_cost(counts: Mapping[int, int], room: int) -> int | None:
    """Return a price to begin with; `counts` has the number of items of each price, `room` the credits that are left.

    None where nothing fits. Prices of 0 come last: they fill nothing.
    """
    fitting = sorted(((price, n) for price, n in counts.items() if 0 < price <= room and n > 0), reverse=True)
    if not fitting:
        return 0 if counts.get(0) else None
    fullest = _sums(fitting, room).bit_length() - 1
    return next(price for price, _ in fitting if price <= fullest and _leaves(fitting, price, fullest))


def _leaves(fitting: list[tuple[int, int]], price: int, fullest: int) -> bool:
    """Tell whether the others can make up what a price leaves of the fullest sum."""
    others = [(other, n - (other == price)) for other, n in fitting]
    return bool(_sums(others, fullest - price) >> (fullest - price) & 1)


def _sums(prices: list[tuple[int, int]], most: int) -> int:
    """Return the sums up to `most` that some selection has, each as a bit; counts are split by halves."""
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
