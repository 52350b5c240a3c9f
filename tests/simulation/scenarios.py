"""Worlds drawn from a seed: what is asked for, and everything that goes wrong until the calm."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, Literal

from batchkiln.core.selection import Selection
from batchkiln.rehearsal.network import NetworkFault
from batchkiln_service.faults.fault_rules import Endpoint, Misbehaviour

from .decisions import Decision
from .disk_faults import Trouble
from .few_first import Few
from .manifests import Wishes, draw_wishes
from .object_points import with_objects
from .plan import START, ClockStep, Database, HookBounds, Intervention, Outage, Plan, StorageTrouble
from .reviewers import moments_near

DAY: Final = 86_400.0
HOUR: Final = 3_600.0
GRACE_DAYS: Final = 3.0  # for a first and a last day that are not whole, and for outages and standstills
_MISFORTUNES: Final[tuple[NetworkFault, ...]] = ("lost", "reset_before", "reset_after", "cut", "slow")
FAULTS: Final[tuple[tuple[Misbehaviour, tuple[Endpoint, ...]], ...]] = (
    ("reply_lost", ("create", "quote", "upload", "complete", "poll", "openapi", "download")),
    ("reset_before", ("create", "quote", "upload", "poll", "put", "download")),
    ("reset_after", ("create", "quote", "complete", "poll", "put", "download")),
    ("cut_body", ("create", "quote", "complete", "poll", "download")),
    ("wrong_length", ("put", "download")),
    ("unavailable", ("create", "quote", "upload", "complete", "poll", "openapi")),
    ("storage_unavailable", ("put", "download")),
    ("storage_error", ("put", "download")),
    ("throttle", ("create", "quote", "upload", "poll")),
    ("html", ("create", "quote", "poll", "openapi")),
    ("slow", ("create", "poll", "put", "download")),
    ("edge_block", ("create", "poll")),
    ("link_dies_early", ("poll",)),
    ("upload_link_dies_early", ("upload",)),
    ("refuse_replay", ("create",)),
    ("wrong_date", ("create", "quote", "upload", "poll", "openapi")),
    ("wrong_cost", ("create", "poll")),
    ("wrong_creation", ("create", "poll")),
    ("fail_generation", ("create",)),
    ("cancel_generation", ("create",)),
    ("stay_pending", ("create",)),
    ("slow_generation", ("create",)),
)
_LASTING: Final = frozenset(
    {
        "slow",
        "throttle",
        "unavailable",
        "storage_unavailable",
        "stay_pending",
        "slow_generation",
        "link_dies_early",
        "upload_link_dies_early",
    }
)  # those that take `seconds`

# So many replays that the minute's creates run out.
_REPLAYS: Final = ({"kind": "reply_lost", "endpoint": "create", "times": None, "probability": 0.5},)


class Storms:
    """Delays always, misfortunes until the calm."""

    def __init__(self, seed: int, *, probability: float, calm_at: float) -> None:
        self._chance = random.Random(f"weather {seed}")
        self._probability = probability
        self._calm_at = calm_at

    def delay_seconds(self) -> float:
        return self._chance.uniform(0.001, 0.08)

    def next_fault(self, sender: str, now: float) -> NetworkFault:
        del sender
        if now >= self._calm_at or self._chance.random() >= self._probability:
            return "none"
        return self._chance.choice(_MISFORTUNES)


@dataclass(frozen=True)
class Options:
    """How large and how rough worlds are."""

    days: float = 2.0
    is_rough: bool = True
    is_rushed: bool = False  # only worlds in which the minutes are what is short
    database: Database = "sqlite"  # on PostgreSQL no disk fails, and no power is cut: those are the server's matter
    is_choosing: bool = False  # only worlds with groups and a hook, in which a person decides again and again
    is_few: bool = False  # only worlds in which a few items are tried first


_REVIEWED: Final = 0.5  # of the worlds
_HOOKED: Final = 0.25
_STORED: Final = 0.2
_FEW: Final = 0.25
_PATTERNS: Final = ("i*[0-9]", "i*[02468]", "g*-[0-9]", "*-still*", "*[13579]", "i1*", "none of these")
_KINDS: Final[tuple[Literal["review", "undo", "redo", "use"], ...]] = (
    "review",
    "review",
    "review",
    "undo",
    "redo",
    "use",
)


def draw(seed: int, options: Options) -> Plan:
    """Return the world of a seed."""
    chance = random.Random(seed)
    calm_at = options.days * DAY if options.is_rough else 0.0
    accounts = ("main",) if chance.random() < 0.7 else ("main", "second")
    reviews = random.Random(f"{seed} reviews")
    has_reviews = reviews.random() < _REVIEWED or options.is_choosing
    wishes = draw_wishes(
        chance,
        days=options.days,
        accounts=accounts,
        is_rushed=options.is_rushed,
        is_choosing=options.is_choosing,
        reviews=reviews if has_reviews else None,
    )
    just_before_midnight = 24 * 60 - (START.hour * 60 + START.minute) - 1
    later_minutes = chance.choice((0, chance.randrange(1440), just_before_midnight))
    plan = Plan(
        seed=seed,
        starts_at=START + timedelta(minutes=later_minutes),
        manifests=wishes.manifests,
        pictures=wishes.pictures,
        accounts=accounts,
        calm_at=calm_at,
    )
    if options.is_rough:
        _roughen(chance, plan, wishes)
    if options.is_rough and has_reviews:
        moments = [reviews.uniform(0, calm_at) for _ in range(4)]
        often = 20 if options.is_choosing else 6
        moments += [_busy_moment(reviews, plan, wishes.busy_hours) for _ in range(often)]
        moments += moments_near(reviews, plan.kills)
        kinds = _KINDS if plan.revoked_at is None else ("review", "review", "undo")
        plan.interventions = tuple(Intervention(moment, reviews.choice(kinds)) for moment in moments)
    if options.database == "postgresql":
        plan.database, plan.cuts_power, plan.troubles = "postgresql", None, ()
    if options.is_rough:
        _store_objects(seed, plan, wishes)
    plan.decisions = _decisions(seed, plan)
    plan.hook = _hook(seed, plan, share=0.7 if options.is_choosing else _HOOKED)
    plan.few = _few(seed, share=1.0 if options.is_few else _FEW)
    redone = len(plan.decisions) + sum(each.kind == "redo" for each in plan.interventions) + 2 * (plan.hook is not None)
    plan.ends_by = redone * DAY + calm_at + (wishes.days_at_most + GRACE_DAYS) * DAY + sum(plan.rests)
    return plan


def _roughen(chance: random.Random, plan: Plan, wishes: Wishes) -> None:
    """Draw what goes wrong, all of it before the calm."""

    def moment() -> float:
        return _busy_moment(chance, plan, wishes.busy_hours)

    roughness = chance.choice((0.0, 0.003, 0.01, 0.05))
    plan.weather = partial(Storms, plan.seed, probability=roughness, calm_at=plan.calm_at)
    plan.service["faults"] = [*_faults(chance), *(_REPLAYS if wishes.is_rushed else ())]
    plan.service["duration_scale"] = 0.05 if wishes.is_rushed else chance.choice((1.0, 1.0, 0.3))
    plan.kills = tuple(sorted(moment() for _ in range(chance.randint(0, 12))))
    plan.cuts_power = chance.choice((None, None, None, "all", "drawn"))
    plan.outages = tuple(
        Outage(moment(), chance.choice((1.0, 60.0, 3600.0, 6 * 3600.0))) for _ in range(chance.choice((0, 0, 1, 2, 4)))
    )
    if chance.random() < 0.3:
        plan.clock_steps = tuple(
            ClockStep(moment(), chance.choice((-1, 1)) * chance.choice((2, 90, 3600, 3 * DAY)))
            for _ in range(chance.randint(1, 3))
        )
    if chance.random() < 0.3:
        plan.troubles = tuple(_trouble(chance) for _ in range(chance.randint(1, 4)))
    if chance.random() < 0.1:
        plan.revoked_at = moment()
    if chance.random() < 0.1:
        plan.stranger_until = plan.calm_at
    if chance.random() < 0.1:
        plan.rests = _rests(chance)


def _decisions(seed: int, plan: Plan) -> tuple[Decision, ...]:
    """Draw what a person decides about done items, apart from all else, so that a seed keeps its world.

    Where a key is revoked, what it created cannot be had again.
    """
    if plan.revoked_at is not None:
        return ()
    chance = random.Random(f"scenario decisions {seed}")
    return tuple(chance.choices(("redo", "use", "fetch"), weights=(3, 1, 1), k=chance.choice((0, 2, 4))))


def _hook(seed: int, plan: Plan, *, share: float) -> HookBounds | None:
    """Draw the bounds of the hook; None where there is none. What a revoked key has made cannot be made again."""
    chance = random.Random(f"scenario hook {seed}")
    if plan.revoked_at is not None or chance.random() >= share:
        return None
    return HookBounds(redos=chance.choice((1, 2)), redo_credits=chance.choice((5, 60, 500)))


def _few(seed: int, *, share: float) -> Few | None:
    """Draw which few items a person tries first, apart from all else, so that a seed keeps its world."""
    chance = random.Random(f"scenario few {seed}")
    if chance.random() >= share:
        return None
    way = chance.choice(("only", "limit", "sample", "all"))
    only = tuple(chance.sample(_PATTERNS, chance.choice((1, 1, 2)))) if way in {"only", "all"} else ()
    selection = Selection(
        only=only,
        limit=chance.choice((1, 3, 8)) if way in {"limit", "all"} else None,
        sample=chance.choice((1, 2, 5)) if way in {"sample", "all"} else None,
        seed=chance.choice((0, 7)),
    )
    return Few(selection, runs=chance.choice((1, 1, 2)))


def _store_objects(seed: int, plan: Plan, wishes: Wishes) -> None:
    """Let the outputs of some worlds be objects at a URL, whose storage fails, apart from all else.

    A power cut takes what a disk has not synced, and the place of these objects is no disk of the program.
    """
    chance = random.Random(f"scenario storage {seed}")
    if chance.random() >= _STORED:
        return
    plan.has_objects, plan.cuts_power = True, None
    plan.manifests = with_objects(plan.manifests)
    plan.storage = StorageTrouble(
        probability=chance.choice((0.0, 0.05, 0.2, 0.4)),
        outages=tuple(
            Outage(_busy_moment(chance, plan, wishes.busy_hours), chance.choice((20.0, 600.0, 3600.0, 6 * 3600.0)))
            for _ in range(chance.choice((0, 1, 3)))
        ),
    )


def _rests(chance: random.Random) -> tuple[float, ...]:
    """Draw how long nobody starts the program again: all in all, for no longer than results are retained."""
    rests = [chance.choice((5.0, HOUR, 3 * HOUR)) for _ in range(3)]
    rests[chance.randrange(3)] = chance.choice((DAY, 13.5 * DAY))
    return tuple(rests)


def _faults(chance: random.Random) -> Iterator[dict[str, object]]:
    """Draw rules of the service's misbehaviour."""
    for kind, endpoints in FAULTS:
        for endpoint in endpoints:
            if chance.random() < 0.3:
                # An image that comes cut three times is refused for good, and a file that comes cut the same way for
                # six hours, five times over, is believed to be whole: the worlds have to be likelier than that.
                is_refused = (kind, endpoint) == ("wrong_length", "put")
                is_accepted = (kind, endpoint) == ("wrong_length", "download")
                probability = 0.01 if is_refused else chance.choice((0.01, 0.05, 0.05 if is_accepted else 0.2))
                rule: dict[str, object] = {"kind": kind, "endpoint": endpoint, "times": None}
                yield (
                    rule
                    | {"probability": probability}
                    | ({"seconds": chance.choice((1, 20, 90))} if kind in _LASTING else {})
                )


def _trouble(chance: random.Random) -> Trouble:
    return Trouble(
        life=chance.randint(1, 5),
        first=chance.randint(1, 2000),
        count=chance.choice((1, 1, 20, 10**9)),
        kind=chance.choice(("full", "failing")),
    )


def _busy_moment(chance: random.Random, plan: Plan, busy_hours: float) -> float:
    """Draw a moment at which there is something to disturb: the day's credits are spent soon after it began."""
    since_midnight = (plan.starts_at.hour * 60 + plan.starts_at.minute) * 60.0
    day = chance.randrange(max(1, round(plan.calm_at / DAY)))
    return max(0.0, day * DAY - since_midnight * (day > 0)) + chance.uniform(0, busy_hours * HOUR)
