"""Misbehaviour on demand: by configuration, at run time through `service.faults`, or asked for by a request itself.

A rule says what happens, at which endpoint, to which requests, and how often. Every rule counts the requests it
matches and draws from a stream of its own, so that one rule never changes what another does: the same seed and the
same sequence of requests give the same faults.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, Self, TypedDict, Unpack, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batchkiln.service.clock import Dice

Misbehaviour = Literal[
    "reset_before",  # the connection is reset before any work
    "throttle",  # 429 with Retry-After: `seconds`, or 1; no work
    "unavailable",  # 503, with Retry-After when `seconds` is given; no work
    "edge_block",  # the firewall's HTML 403, no work
    "html",  # 200 with an HTML page, no work
    "storage_error",  # the storage's 500, in XML, no work
    "storage_unavailable",  # the storage's 503, in XML, with Retry-After when `seconds` is given; no work
    "slow",  # the work is done, the reply waits for `seconds`
    "reply_lost",  # the work is done, the connection closes without a reply
    "reset_after",  # the work is done, the connection is reset without a reply
    "cut_body",  # the work is done, half of the body is sent
    "wrong_length",  # a download has, or an upload keeps, `extra_bytes` more than it should (default: -1, one less)
    "fail_generation",  # the created generation fails, and is refunded
    "cancel_generation",  # the created generation is canceled
    "stay_pending",  # the created generation stays pending for `seconds`, or for ever
    "slow_generation",  # the created generation takes `seconds` more, or `factor` times as long (default: 10)
    "link_dies_early",  # download links die after `seconds` (default: at once), whatever they promise
    "upload_link_dies_early",  # upload links die after `seconds` (default: at once), whatever they promise
]
Endpoint = Literal[
    "any", "create", "upload", "complete", "read", "quote", "poll", "models", "balance", "openapi", "put", "download"
]
KINDS: Final[tuple[Misbehaviour, ...]] = get_args(Misbehaviour)
BEFORE: Final = frozenset(
    {"reset_before", "throttle", "unavailable", "edge_block", "html", "storage_error", "storage_unavailable"}
)
DELAY: Final = frozenset({"slow"})
REPLY: Final = frozenset({"reply_lost", "reset_after", "cut_body", "wrong_length"})
FATE: Final = frozenset({"fail_generation", "cancel_generation", "stay_pending", "slow_generation"})
LINK: Final = frozenset({"link_dies_early"})
UPLOAD_LINK: Final = frozenset({"upload_link_dies_early"})

_STORAGE: Final = frozenset({"put", "download"})
_EVERYWHERE: Final = frozenset(get_args(Endpoint)) - {"any"}
_COMMON_NAMES: Final = frozenset({"read", "upload"})  # names of several endpoints; "upload" is also one of its own
# Where a kind can strike, if not everywhere.
_PLACES: Final[Mapping[str, frozenset[str]]] = {
    "edge_block": _EVERYWHERE - _STORAGE,  # the firewall stands before the API alone
    "cut_body": _EVERYWHERE - {"put"},  # the reply to an upload has no body
    "storage_error": _STORAGE,
    "storage_unavailable": _STORAGE,
    "wrong_length": _STORAGE,
    **dict.fromkeys(FATE, frozenset({"create"})),
    "link_dies_early": frozenset({"poll"}),
    "upload_link_dies_early": frozenset({"upload"}),
}
# Which kinds a setting means something to.
_USES: Final[Mapping[str, frozenset[str]]] = {
    "seconds": frozenset(
        {"throttle", "unavailable", "storage_unavailable", "slow", "stay_pending", "slow_generation"}
        | LINK
        | UPLOAD_LINK
    ),
    "factor": frozenset({"slow_generation"}),
    "extra_bytes": frozenset({"wrong_length"}),
}
_SUBJECTLESS: Final = frozenset({"models", "balance", "openapi", "upload", "complete", "put"})  # no model, no prompt


class FaultMatch(BaseModel):
    """Which requests of an endpoint a rule is for; all that is given has to fit.

    `prompt` is a part of the prompt; `path` a glob over the path below the base URL ("/generations/*") or, for the
    storage, below the host ("/storage/outputs/*"). A read of a generation, and a download, have its model and prompt.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    account: str | None = None
    model: str | None = None
    prompt: str | None = None
    method: Literal["GET", "HEAD", "POST", "PUT"] | None = None
    path: str | None = None

    @property
    def looks_closer(self) -> bool:
        """Whether method and path are not enough to tell."""
        return (self.account, self.model, self.prompt) != (None, None, None)

    def fits(self, subject: "Subject") -> bool:
        """Say whether a request is one of those that are meant."""
        return (
            self.account in {None, subject.account}
            and self.model in {None, subject.model}
            and self.method in {None, subject.method}
            and (self.prompt is None or (subject.prompt is not None and self.prompt in subject.prompt))
            and (self.path is None or fnmatchcase(subject.path, self.path))
        )


class FaultRule(BaseModel):
    """One misbehaviour: where, how often, and for how long.

    `times` None means without end; `after` lets that many matching requests pass first; of those that follow, each
    `every`-th is struck, with that probability. `seconds` is service time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Misbehaviour
    endpoint: Endpoint = "any"
    times: Annotated[int, Field(ge=1)] | None = 1
    after: Annotated[int, Field(ge=0)] = 0
    every: Annotated[int, Field(ge=1)] = 1
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    seed: int | None = None  # of the rule's own stream; default: from the service's seed and the rule's number
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    extra_bytes: int | None = None
    match: FaultMatch = FaultMatch()

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        places = places_of(self.kind)
        if self.endpoint != "any" and self.endpoint not in places:
            raise ValueError(
                f"{self.kind} cannot happen at the endpoint {self.endpoint}; allowed: any, {', '.join(sorted(places))}"
            )
        for setting, kinds in _USES.items():
            if getattr(self, setting) is not None and self.kind not in kinds:
                raise ValueError(f"{setting} means nothing to {self.kind}; it goes with {', '.join(sorted(kinds))}")
        if self.kind == "slow" and self.seconds is None:
            raise ValueError("slow needs seconds")
        if self.seconds is not None and self.factor is not None:
            raise ValueError("give either seconds or factor")
        if self.extra_bytes == 0:
            raise ValueError("extra_bytes is how many bytes too many, or too few when negative; it cannot be 0")
        return self

    @model_validator(mode="after")
    def _match_makes_sense(self) -> Self:
        asks_for_prompt = self.match.model is not None or self.match.prompt is not None
        if asks_for_prompt and self.endpoint in _SUBJECTLESS:
            raise ValueError(f"requests to the endpoint {self.endpoint} have no model and no prompt to match")
        if self.match.account is not None and self.endpoint == "openapi":
            raise ValueError("requests to the endpoint openapi are nobody's; there is no account to match")
        return self


class FaultSettings(TypedDict, total=False):
    """What a rule may have beside kind and endpoint; as in `FaultRule`."""

    times: int | None
    after: int
    every: int
    probability: float
    seed: int | None
    seconds: float | None
    factor: float | None
    extra_bytes: int | None
    match: FaultMatch


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rule may look at in a request; `endpoints` are the names it is known by."""

    endpoints: frozenset[str]
    method: str = ""
    path: str = ""
    account: str | None = None
    model: str | None = None
    prompt: str | None = None


@dataclass(slots=True)
class ArmedRule:
    """A rule in force: how many requests it has met, and how many of them it has struck."""

    number: int
    rule: FaultRule
    dice: Dice
    met: int = 0
    struck: int = 0

    def meets(self, subject: Subject) -> bool:
        """Count a request that is meant, and say whether it is to be struck."""
        rule = self.rule
        if not is_at(rule, subject.endpoints) or not rule.match.fits(subject):
            return False
        self.met += 1
        if self.met <= rule.after or (self.met - rule.after) % rule.every != 0:
            return False
        return rule.probability >= 1 or self.dice.happens(rule.probability)


class Faults:
    """The rules in force. Of those of one sort that would strike a request, the first does.

    May be used from any thread: the ends of generations are drawn in the database's.
    """

    def __init__(self, rules: Sequence[FaultRule], seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._next_number = 0
        self._armed: list[ArmedRule] = []
        for rule in rules:
            self.add_rule(rule)

    def add(self, kind: Misbehaviour, endpoint: Endpoint = "any", **settings: Unpack[FaultSettings]) -> int:
        """Switch a misbehaviour on, by default for the next matching request; return the rule's number.

        Raises ValueError when that makes no sense.
        """
        return self.add_rule(FaultRule(kind=kind, endpoint=endpoint, **settings))

    def add_rule(self, rule: FaultRule) -> int:
        """Put a rule in force after the others; return its number."""
        with self._lock:
            number = self._next_number
            self._next_number += 1
            seed = _seed_of(f"{self._seed}:{number}") if rule.seed is None else rule.seed
            self._armed.append(ArmedRule(number, rule, Dice(seed)))
            return number

    def clear(self) -> int:
        """Switch everything off; return how many rules that were."""
        with self._lock:
            count = len(self._armed)
            self._armed = []
            return count

    def withdraw(self, number: int) -> bool:
        """Switch one rule off; false when it is not in force."""
        with self._lock:
            left = [armed for armed in self._armed if armed.number != number]
            was_there = len(left) < len(self._armed)
            self._armed = left
            return was_there

    def in_force(self) -> list[ArmedRule]:
        """Return the rules that may still strike, in their order."""
        with self._lock:
            return list(self._armed)

    def looks_closer(self, endpoints: frozenset[str]) -> bool:
        """Say whether a rule for one of these endpoints asks for account, model or prompt."""
        return any(armed.rule.match.looks_closer and is_at(armed.rule, endpoints) for armed in self.in_force())

    def weigh(self, kinds: frozenset[str], subject: Subject) -> ArmedRule | None:
        """Let every rule of these kinds meet a request; return the first that would strike, and do not use it up."""
        with self._lock:
            striking = [armed for armed in self._armed if armed.rule.kind in kinds and armed.meets(subject)]
            return striking[0] if striking else None

    def use(self, armed: ArmedRule) -> FaultRule:
        """Count that a rule has struck; it ends when it has struck often enough."""
        with self._lock:
            armed.struck += 1
            if armed.rule.times is not None and armed.struck >= armed.rule.times and armed in self._armed:
                self._armed.remove(armed)
            return armed.rule


class RequestFaults:
    """What strikes one request: what it asked for itself, else the rules in force.

    `before` answers in place of the work; `late` spoils the reply after it, in that order.
    """

    def __init__(self, faults: Faults, subject: Subject, asked: Sequence[FaultRule] = ()) -> None:
        self._faults = faults
        self._subject = subject
        self._asked = asked
        self.struck: list[FaultRule] = []
        # All three sorts are weighed, whichever strikes: otherwise one rule would hide requests from another.
        choices = [self._choice(kinds) for kinds in (BEFORE, DELAY, REPLY)]
        self.before = self._take(choices[0])
        self.late: tuple[FaultRule, ...] = ()
        if self.before is None:
            self.late = tuple(rule for choice in choices[1:] if (rule := self._take(choice)) is not None)

    def draw(self, kinds: frozenset[str]) -> FaultRule | None:
        """Return what happens to a generation or link that this very request has made."""
        return self._take(self._choice(kinds))

    def _choice(self, kinds: frozenset[str]) -> FaultRule | ArmedRule | None:
        armed = self._faults.weigh(kinds, self._subject)
        return next((rule for rule in self._asked if rule.kind in kinds), armed)

    def _take(self, choice: FaultRule | ArmedRule | None) -> FaultRule | None:
        rule = self._faults.use(choice) if isinstance(choice, ArmedRule) else choice
        if rule is not None:
            self.struck.append(rule)
        return rule


def places_of(kind: Misbehaviour) -> frozenset[str]:
    """Return the endpoints at which a kind can strike."""
    return _PLACES.get(kind, _EVERYWHERE)


def own_name(endpoints: frozenset[str]) -> str:
    """Return the name that no other endpoint has, of those that one is known by."""
    return min(endpoints - _COMMON_NAMES or endpoints)


def is_at(rule: FaultRule, endpoints: frozenset[str]) -> bool:
    """Say whether a rule is for an endpoint, by the names that it is known by."""
    return own_name(endpoints) in places_of(rule.kind) and (rule.endpoint == "any" or rule.endpoint in endpoints)


def parse_asked(text: str, endpoints: frozenset[str]) -> list[FaultRule]:
    """Read what a request asks for itself: "slow; seconds=3, reply_lost".

    Raises ValueError, which names what is allowed, when that is not understood or cannot happen at this endpoint.
    """
    allowed = [kind for kind in KINDS if own_name(endpoints) in places_of(kind)]
    rules = []
    for part in text.split(","):
        kind, *settings = (piece.strip() for piece in part.split(";"))
        if kind not in allowed:
            raise ValueError(f"{kind!r} is no fault of this endpoint; allowed: {', '.join(allowed)}")
        rules.append(_asked_rule(kind, settings))
    return rules


def _asked_rule(kind: str, settings: Sequence[str]) -> FaultRule:
    given: dict[str, Any] = {}
    for setting in settings:
        name, is_given, value = (piece.strip() for piece in setting.partition("="))
        if name not in _USES or not is_given or name in given:
            raise ValueError(f"{setting!r} is not understood; allowed, once each: {', '.join(f'{n}=…' for n in _USES)}")
        given[name] = value
    try:
        return FaultRule(kind=kind, **given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ValueError(
            f"{kind}: {f'{where}: ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from error


def _seed_of(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])
