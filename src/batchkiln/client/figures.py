"""The price in a quote and the credits in a balance: by the documented name, else by the only sensible one.

A figure that two names give differently is not guessed: a price too low is refused, and one too high blocks a day.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from batchkiln.client.coercion import read_cost, read_number
from batchkiln.client.guide import UNGUIDED, Guide
from batchkiln.client.json_tree import Place, plain, walk
from batchkiln.core.response_rules import ReplyField

T = TypeVar("T", int, float)

_PRICE: Final = frozenset({"costcredits"})
_PRICES_NEAR: Final = frozenset(
    {"creditscost", "creditcost", "costincredits", "totalcostcredits", "creditprice", "pricecredits", "creditsrequired"}
)
_PRICES: Final = frozenset(
    {*("cost", "price", "credits", "quote", "amount", "total", "totalcredits", "totalcost", "totalprice", "charge")}
)
_PRICE_HOLDERS: Final = frozenset({"cost", "price", "quote", "charge", "costs", "pricing", "estimate"})

_LEFT: Final = frozenset({"balance", "remaining", "available", "left"})
_CREDITS: Final = frozenset({"credits", "credit"})
_GENERIC: Final = frozenset({"amount", "total", "value", "credits", "credit"})
_OTHER: Final = frozenset(
    {
        *(
            "used",
            "spent",
            "limit",
            "limits",
            "max",
            "maximum",
            "reserved",
            "pending",
            "daily",
            "day",
            "today",
            "budget",
        ),
        *(
            "cost",
            "price",
            "id",
            "time",
            "timestamp",
            "at",
            "expires",
            "request",
            "requests",
            "reads",
            "files",
            "quota",
        ),
        *("uploads", "bytes", "minute", "rate", "reset", "version", "count", "code", "status", "previous", "monthly"),
        *("ms", "duration", "latency", "page", "key", "keys"),
    }
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def find_price(document: object, guide: Guide = UNGUIDED) -> int | None:
    """Return the price in whole credits: `cost_credits` wherever it stands, the dearest of several.

    Without it another name's figure, if there is only one; None otherwise.
    """
    if guide.has(ReplyField.PRICE):
        return read_cost(plain(guide.find(ReplyField.PRICE, document)))
    if (bare := read_cost(document)) is not None:
        return bare
    places = list(walk(document))
    if documented := [place for place in places if place.name in _PRICE]:
        return max(_figures(documented, read_cost), default=None)
    charged = [place for place in places if place.names[-2:] == ("credits", "cost")]
    for tier in ([place for place in places if place.name in _PRICES_NEAR], charged, prices_by_name(places)):
        if found := _figures(tier, read_cost):
            return found.pop() if len(found) == 1 else None
    return None


def prices_by_name(places: list[Place]) -> list[Place]:
    """Return the places whose name could mean a price; a number below `price` counts under a general name only."""
    return [
        place
        for place in places
        if isinstance(place.value, int | float | str)
        and (place.name in _PRICES or (set(place.names[:-1]) & _PRICE_HOLDERS and place.name in _GENERIC))
    ]


def find_balance(document: object, guide: Guide = UNGUIDED) -> float | int | None:
    """Return the remaining credits; None where no figure, or more than one, could be meant."""
    if guide.has(ReplyField.BALANCE):
        return read_number(plain(guide.find(ReplyField.BALANCE, document)))
    if (bare := read_number(document)) is not None:
        return bare
    numbers = [place for place in walk(document) if read_number(place.value) is not None]
    if hint := guide.hints.balance:
        hinted = _figures([place for place in numbers if place.names[-len(hint) :] == hint], read_number)
        if len(hinted) == 1:
            return hinted.pop()
    for tier in _balance_tiers(numbers):
        if found := _figures(tier, read_number):
            return found.pop() if len(found) == 1 else None
    return None


def _balance_tiers(numbers: list[Place]) -> Iterator[list[Place]]:
    """Give the places that may hold the balance, the surest names first, the only number at all last."""
    told = [(place, _words(place)) for place in numbers]
    sure = [(place, words, around) for place, (words, around) in told if not (words | around) & _OTHER]
    yield [place for place, words, _ in sure if words & _LEFT and words <= _LEFT | _CREDITS | {"account", "current"}]
    yield [place for place, words, _ in sure if words & _LEFT]
    yield [place for place, words, around in sure if around & _LEFT and words & {"total"}]
    yield [place for place, words, around in sure if around & _LEFT and words & _GENERIC]
    yield [place for place, words, _ in sure if words & _CREDITS]
    yield [place for place, words, _ in sure if words & _GENERIC]
    yield [place for place, _, _ in sure]
    yield numbers


def _words(place: Place) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of a place's own name, and of the names above it."""
    names = [step for step in place.path if isinstance(step, str)]
    split = [frozenset(word.lower() for word in _WORD.findall(name[:100])) for name in names]
    own = split[-1] if split else frozenset()
    return own, frozenset().union(*split[:-1])


def _figures(places: list[Place], read: Callable[[object], T | None]) -> set[T]:
    return {number for place in places if (number := read(plain(place.value))) is not None}
