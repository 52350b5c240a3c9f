"""Finds the price in a quote and the credits in a balance: by the documented name, else by the only plausible one.

If two names have different amounts, neither is used: the service refuses a price that is too low, and one that is too
high uses up a day's budget.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from batchkiln.client.json_tree import JsonNode, read_cost, read_number, unwrap, walk, words_in
from batchkiln.client.reply_mapping import NO_MAPPING, ReplyMapping
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
# Words in names of numbers that are not a balance.
_OTHER: Final = frozenset(
    {
        *("used", "spent", "limit", "limits", "max", "maximum", "reserved", "pending", "daily", "day", "today"),
        *("budget", "cost", "price", "id", "time", "timestamp", "at", "expires", "request", "requests", "reads"),
        *("files", "quota"),
        *("uploads", "bytes", "minute", "rate", "reset", "version", "count", "code", "status", "previous", "monthly"),
        *("ms", "duration", "latency", "page", "key", "keys"),
    }
)


def find_price(document: object, mapping: ReplyMapping = NO_MAPPING) -> int | None:
    """Return the price in whole credits; None if no field, or more than one, may be the price.

    `cost_credits` has priority, wherever it is; of several, the highest is returned.
    """
    if mapping.has(ReplyField.PRICE):
        return read_cost(unwrap(mapping.find(ReplyField.PRICE, document)))
    if (bare := read_cost(document)) is not None:
        return bare
    nodes = list(walk(document))
    if documented := [node for node in nodes if node.name in _PRICE]:
        return max(_amounts(documented, read_cost), default=None)
    charged = [node for node in nodes if node.names[-2:] == ("credits", "cost")]
    for tier in ([node for node in nodes if node.name in _PRICES_NEAR], charged, price_candidates(nodes)):
        if found := _amounts(tier, read_cost):
            return found.pop() if len(found) == 1 else None
    return None


def price_candidates(nodes: list[JsonNode]) -> list[JsonNode]:
    """Return the nodes whose name may mean a price. Inside `price`, names such as `amount` count as well."""
    return [
        node
        for node in nodes
        if isinstance(node.value, int | float | str)
        and (node.name in _PRICES or (set(node.names[:-1]) & _PRICE_HOLDERS and node.name in _GENERIC))
    ]


def find_balance(document: object, mapping: ReplyMapping = NO_MAPPING) -> float | int | None:
    """Return the remaining credits; None if no field, or more than one, may be the balance."""
    if mapping.has(ReplyField.BALANCE):
        return read_number(unwrap(mapping.find(ReplyField.BALANCE, document)))
    if (bare := read_number(document)) is not None:
        return bare
    numbers = [node for node in walk(document) if read_number(node.value) is not None]
    if hint := mapping.hints.balance:
        hinted = _amounts([node for node in numbers if node.names[-len(hint) :] == hint], read_number)
        if len(hinted) == 1:
            return hinted.pop()
    for tier in _balance_tiers(numbers):
        if found := _amounts(tier, read_number):
            return found.pop() if len(found) == 1 else None
    return None


def _balance_tiers(numbers: list[JsonNode]) -> Iterator[list[JsonNode]]:
    """Yield groups of nodes, any of which may be the balance: the most certain names first, all numbers last."""
    found = [(node, _words(node)) for node in numbers]
    sure = [(node, words, around) for node, (words, around) in found if not (words | around) & _OTHER]
    yield [node for node, words, _ in sure if words & _LEFT and words <= _LEFT | _CREDITS | {"account", "current"}]
    yield [node for node, words, _ in sure if words & _LEFT]
    yield [node for node, words, around in sure if around & _LEFT and words & {"total"}]
    yield [node for node, words, around in sure if around & _LEFT and words & _GENERIC]
    yield [node for node, words, _ in sure if words & _CREDITS]
    yield [node for node, words, _ in sure if words & _GENERIC]
    yield [node for node, _, _ in sure]
    yield numbers


def _words(node: JsonNode) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of a node's own name, and of the names above it."""
    names = [step for step in node.path if isinstance(step, str)]
    split = [words_in(name) for name in names]
    own = split[-1] if split else frozenset()
    return own, frozenset().union(*split[:-1])


def _amounts(nodes: list[JsonNode], read: Callable[[object], T | None]) -> set[T]:
    return {number for node in nodes if (number := read(unwrap(node.value))) is not None}
