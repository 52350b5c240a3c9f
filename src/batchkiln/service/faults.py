"""Misbehaviour that can be switched on: by configuration, or at run time through `service.faults`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from batchkiln.service.clock import Dice

Misbehaviour = Literal[
    "reset_before",  # the connection is reset before any work
    "throttle",  # 429 with Retry-After, no work
    "unavailable",  # 503, with Retry-After when `seconds` is given, no work
    "edge_block",  # the firewall's HTML 403, no work
    "html",  # 200 with an HTML page, no work
    "slow",  # the work is done, the reply waits for `seconds`
    "reply_lost",  # the work is done, the connection closes without a reply
    "cut_body",  # the work is done, half of the body is sent
    "fail_generation",  # the created generation fails, and is refunded
    "cancel_generation",  # the created generation is canceled
    "stay_pending",  # the created generation stays pending for `seconds`, or for ever
    "link_dies_early",  # download links die after `seconds` (default: at once), whatever they promise
]
Endpoint = Literal[
    "any", "create", "upload", "complete", "read", "quote", "poll", "models", "balance", "openapi", "put", "download"
]
BEFORE: frozenset[str] = frozenset({"reset_before", "throttle", "unavailable", "edge_block", "html"})
REPLY: frozenset[str] = frozenset({"slow", "reply_lost", "cut_body"})
FATE: frozenset[str] = frozenset({"fail_generation", "cancel_generation", "stay_pending"})
LINK: frozenset[str] = frozenset({"link_dies_early"})


class FaultRule(BaseModel):
    """One misbehaviour: where, how often, and for how long.

    `times` None means without end; `after` lets that many matching requests pass first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Misbehaviour
    endpoint: Endpoint = "any"
    times: Annotated[int, Field(ge=1)] | None = 1
    after: Annotated[int, Field(ge=0)] = 0
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    seconds: Annotated[float, Field(ge=0)] | None = None


@dataclass(slots=True)
class _Armed:
    rule: FaultRule
    passed: int = 0
    used: int = 0


class Faults:
    """The rules in force; the first that matches is used."""

    def __init__(self, rules: tuple[FaultRule, ...], dice: Dice) -> None:
        self._dice = dice
        self._armed = [_Armed(rule) for rule in rules]

    def add(
        self,
        kind: Misbehaviour,
        endpoint: Endpoint = "any",
        *,
        times: int | None = 1,
        after: int = 0,
        probability: float = 1.0,
        seconds: float | None = None,
    ) -> None:
        """Switch a misbehaviour on for the next `times` matching requests."""
        rule = FaultRule(
            kind=kind, endpoint=endpoint, times=times, after=after, probability=probability, seconds=seconds
        )
        self._armed.append(_Armed(rule))

    def clear(self) -> None:
        """Switch everything off."""
        self._armed.clear()

    def draw(self, kinds: frozenset[str], endpoints: frozenset[str]) -> FaultRule | None:
        """Return the misbehaviour for one request of those endpoint names, and use it up."""
        for armed in self._armed:
            if armed.rule.kind in kinds and self._strikes(armed, endpoints):
                armed.used += 1
                if armed.rule.times is not None and armed.used >= armed.rule.times:
                    self._armed.remove(armed)
                return armed.rule
        return None

    def _strikes(self, armed: _Armed, endpoints: frozenset[str]) -> bool:
        if armed.rule.endpoint != "any" and armed.rule.endpoint not in endpoints:
            return False
        armed.passed += 1
        if armed.passed <= armed.rule.after:
            return False
        return armed.rule.probability >= 1 or self._dice.happens(armed.rule.probability)
