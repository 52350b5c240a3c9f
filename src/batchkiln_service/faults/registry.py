"""The active fault rules, their counters, and the faults that apply to a request.

Every rule counts its matching requests and draws from its own random stream, so that rules do not influence each
other: the same seed and sequence of requests give the same faults.
"""

import threading
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TypedDict, Unpack

from msgspec import Struct

from batchkiln_service.clock import RandomStream
from batchkiln_service.faults.fault_rules import (
    BEFORE,
    DELAY,
    FALSEHOOD,
    REPLY,
    Endpoint,
    FaultMatch,
    FaultRule,
    Misbehaviour,
    Subject,
    is_at,
)


class FaultSettings(TypedDict, total=False):
    """The optional settings of a rule; as in `FaultRule`."""

    times: int | None
    after: int
    every: int
    probability: float
    seed: int | None
    seconds: float | None
    factor: float | None
    extra_bytes: int | None
    match: FaultMatch


class Tally(Struct, frozen=True):
    """The counters of a configured rule. `rule` is its number and content; a changed rule starts from zero."""

    rule: str
    met: int
    struck: int


class ActiveRule(Struct):
    """An active rule: the number of matching requests, and of those that it affected."""

    number: int
    rule: FaultRule
    random: RandomStream
    met: int = 0
    struck: int = 0

    @property
    def is_used_up(self) -> bool:
        """Whether the rule has affected as many requests as it may."""
        return self.rule.times is not None and self.struck >= self.rule.times

    @property
    def tally(self) -> Tally:
        """The rule's counters."""
        return Tally(_name_of(self.number, self.rule), self.met, self.struck)

    def restore(self, tally: Tally) -> None:
        """Restore the counters from before a restart, and advance the random stream accordingly."""
        self.met, self.struck = tally.met, tally.struck
        if self.rule.probability < 1:
            for _ in range(max(0, self.met - self.rule.after) // self.rule.every):
                self.random.happens(self.rule.probability)

    def meets(self, subject: Subject) -> bool:
        """Count the request if it matches; return whether the rule affects it."""
        rule = self.rule
        if not is_at(rule, subject.endpoints) or not rule.match.fits(subject):
            return False
        self.met += 1
        if self.met <= rule.after or (self.met - rule.after) % rule.every != 0:
            return False
        return rule.probability >= 1 or self.random.happens(rule.probability)


class Faults:
    """The active rules. Within a group of kinds, the first rule that affects a request applies.

    Thread-safe: outcomes of generations are drawn in the database thread.
    """

    def __init__(self, rules: Sequence[FaultRule], seed: int, tallies: Iterable[Tally] = ()) -> None:
        """Activate the configured rules with their saved counters."""
        self._seed = seed
        self._rules = rules
        self._lock = threading.Lock()
        self._next_number = 0
        self._active: list[ActiveRule] = []
        self._configured: tuple[ActiveRule, ...]
        self._unsaved: set[int] = set()
        self.reset()
        known = {tally.rule: tally for tally in tallies}
        for active in self._configured:
            if (tally := known.get(active.tally.rule)) is not None:
                active.restore(tally)
        self._active = [active for active in self._active if not active.is_used_up]

    def reset(self) -> None:
        """Activate the configured rules with counters of zero, and no others."""
        with self._lock:
            self._next_number = 0
            self._active = []
            self._unsaved.clear()
        for rule in self._rules:
            self.add_rule(rule)
        self._configured = tuple(self._active)

    def add(self, kind: Misbehaviour, endpoint: Endpoint = "any", **settings: Unpack[FaultSettings]) -> int:
        """Activate a fault, by default for the next matching request; return the rule's number.

        Raise ValueError if the settings do not fit the kind.
        """
        return self.add_rule(FaultRule(kind=kind, endpoint=endpoint, **settings))

    def add_rule(self, rule: FaultRule) -> int:
        """Activate a rule after the others; return its number."""
        with self._lock:
            number = self._next_number
            self._next_number += 1
            seed = _seed_of(f"{self._seed}:{number}") if rule.seed is None else rule.seed
            self._active.append(ActiveRule(number, rule, RandomStream(seed)))
            return number

    def clear(self) -> int:
        """Deactivate all rules; return their number."""
        with self._lock:
            count = len(self._active)
            self._active = []
            return count

    def withdraw(self, number: int) -> bool:
        """Deactivate a rule; return False if it is not active."""
        with self._lock:
            left = [active for active in self._active if active.number != number]
            was_there = len(left) < len(self._active)
            self._active = left
            return was_there

    def active_rules(self) -> list[ActiveRule]:
        """Return the active rules, in order."""
        with self._lock:
            return list(self._active)

    def needs_details(self, endpoints: frozenset[str]) -> bool:
        """Return whether a rule for one of these endpoints matches on account, model or prompt."""
        return any(active.rule.match.needs_details and is_at(active.rule, endpoints) for active in self.active_rules())

    def match(self, kinds: frozenset[str], subject: Subject) -> ActiveRule | None:
        """Count a request in every rule of these kinds; return the first that affects it, without counting its use."""
        with self._lock:
            matching = [active for active in self._active if active.rule.kind in kinds and active.meets(subject)]
            return matching[0] if matching else None

    def use(self, active: ActiveRule) -> FaultRule:
        """Count a use of a rule and return it; a rule is deactivated after its last use."""
        with self._lock:
            active.struck += 1
            self._unsaved.add(active.number)
            if active.is_used_up and active in self._active:
                self._active.remove(active)
            return active.rule

    def tallies(self) -> list[Tally]:
        """Return the counters of each configured rule, active or not."""
        with self._lock:
            return [active.tally for active in self._configured]

    def take_unsaved(self) -> list[Tally]:
        """Return the counters of configured rules that were used since the last call."""
        with self._lock:
            taken = [active.tally for active in self._configured if active.number in self._unsaved]
            self._unsaved.clear()
            return taken


class RequestFaults:
    """The faults of one request: those that it names itself, or else those of the active rules.

    `before` replies in place of the work; the faults in `late` spoil the reply after it, in order.
    """

    def __init__(self, faults: Faults, subject: Subject, asked: Sequence[FaultRule] = ()) -> None:
        self._faults = faults
        self._subject = subject
        self._asked = asked
        self.struck: list[FaultRule] = []
        # Every group is counted even if another group's fault applies, so that no rule hides requests from another.
        choices = [self._choice(kinds) for kinds in (BEFORE, DELAY, FALSEHOOD, REPLY)]
        self.before = self._take(choices[0])
        self.late: tuple[FaultRule, ...] = ()
        if self.before is None:
            self.late = tuple(rule for choice in choices[1:] if (rule := self._take(choice)) is not None)

    @property
    def loses_reply(self) -> bool:
        """Whether the client cannot read the reply."""
        return any(rule.kind in REPLY for rule in self.late)

    def draw(self, kinds: frozenset[str]) -> FaultRule | None:
        """Return the fault that applies to the generation or link created by this request, if any."""
        return self._take(self._choice(kinds))

    def _choice(self, kinds: frozenset[str]) -> FaultRule | ActiveRule | None:
        active = self._faults.match(kinds, self._subject)
        return next((rule for rule in self._asked if rule.kind in kinds), active)

    def _take(self, choice: FaultRule | ActiveRule | None) -> FaultRule | None:
        rule = self._faults.use(choice) if isinstance(choice, ActiveRule) else choice
        if rule is not None:
            self.struck.append(rule)
        return rule


def _name_of(number: int, rule: FaultRule) -> str:
    return f"{number} {rule.model_dump_json(exclude_defaults=True)}"


def _seed_of(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])
