"""Worlds drawn from a seed: what is asked for, and everything that goes wrong until the calm."""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from .network import Misfortune
from .plan import START, ClockStep, Outage, Plan
from .troubles import Trouble

DAY: Final = 86_400.0
HOUR: Final = 3_600.0
_MISFORTUNES: Final[tuple[Misfortune, ...]] = ("lost", "reset_before", "reset_after", "cut", "slow")
_FAULTS: Final = (
    ("reply_lost", ("create", "quote", "upload", "complete", "poll", "download")),
    ("reset_before", ("create", "quote", "upload", "poll", "put", "download")),
    ("cut_body", ("create", "quote", "complete", "poll", "download")),
    ("unavailable", ("create", "quote", "upload", "complete", "poll")),
    ("throttle", ("create", "quote", "upload", "poll")),
    ("html", ("create", "quote", "poll")),
    ("slow", ("create", "poll", "download")),
    ("edge_block", ("create", "poll")),
    ("link_dies_early", ("any",)),
    ("fail_generation", ("create",)),
    ("cancel_generation", ("create",)),
    ("stay_pending", ("create",)),
)
_IMAGE: Final = "{model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}"
_EDIT: Final = "{model: epsilon-2, mode: image-to-image, parameters: {resolution: 1024x1024}}"
_CLIP: Final = "{{model: alpha-2.5-lite, mode: text-to-video, parameters: {{resolution: 480p, duration_seconds: {0}}}}}"
_MOVED: Final = (
    "{{model: alpha-2.5-lite, mode: image-to-video, parameters: {{resolution: 480p, duration_seconds: {0}}}}}"
)


class Storms:
    """Delays always, misfortunes until the calm."""

    def __init__(self, seed: int, *, probability: float, calm_at: float) -> None:
        self._chance = random.Random(f"weather {seed}")
        self._probability = probability
        self._calm_at = calm_at

    def delay_seconds(self) -> float:
        return self._chance.uniform(0.001, 0.08)

    def misfortune(self, sender: str, now: float) -> Misfortune:
        del sender
        if now >= self._calm_at or self._chance.random() >= self._probability:
            return "none"
        return self._chance.choice(_MISFORTUNES)


@dataclass(frozen=True)
class Options:
    """How large and how rough worlds are."""

    days: float = 2.0
    is_rough: bool = True


def draw(seed: int, options: Options) -> Plan:
    """Return the world of a seed."""
    chance = random.Random(seed)
    calm_at = options.days * DAY if options.is_rough else 0.0
    accounts = ("main",) if chance.random() < 0.7 else ("main", "second")
    pictures = tuple(f"picture-{number}.png" for number in range(3))
    budget = round(2000 * options.days * chance.uniform(0.5, 1.0)) * len(accounts)
    jobs = chance.randint(1, 3)
    manifests = {
        f"job-{number}.yaml": _manifest(chance, f"job-{number}", budget // jobs, accounts=accounts, pictures=pictures)
        for number in range(jobs)
    }
    just_before_midnight = 24 * 60 - (START.hour * 60 + START.minute) - 1
    later_minutes = chance.choice((0, chance.randrange(1440), just_before_midnight))
    plan = Plan(
        seed=seed,
        starts_at=START + timedelta(minutes=later_minutes),
        manifests=manifests,
        pictures=pictures,
        accounts=accounts,
        calm_at=calm_at,
    )
    if options.is_rough:
        _roughen(chance, plan)
    return plan


def _manifest(
    chance: random.Random, job: str, credits_in_all: int, *, accounts: tuple[str, ...], pictures: tuple[str, ...]
) -> str:
    lines = ["version: 1", f"job: {job}", f"accounts: [{', '.join(accounts)}]"]
    lines.append(f"order: {chance.choice(('manifest', 'pack'))}")
    if chance.random() < 0.3:
        lines.append(f"budget: {{credits_per_day: {chance.choice((800, 1500))}}}")
    lines += ["items:"]
    spent, number = 0, 0
    while spent < credits_in_all:
        number += 1
        price, text = _item(chance, f"{job} {number}", pictures)
        spent += price
        lines.append(f"  - {{id: i{number}, priority: {chance.choice((0, 0, 0, 5))}, {text}}}")
    return "\n".join(lines) + "\n"


def _item(chance: random.Random, name: str, pictures: tuple[str, ...]) -> tuple[int, str]:
    prompt = f"prompt: {name}"
    inputs = f"inputs: [{chance.choice(pictures)}]"
    kind = chance.random()
    if kind < 0.15:
        return 2, f"{prompt}, {_IMAGE[1:-1]}"
    if kind < 0.25:
        return 5, f"{prompt}, {inputs}, {_EDIT[1:-1]}"
    seconds = chance.choice((5, 8, 10))
    if kind < 0.8:
        return 10 * seconds, f"{prompt}, {_CLIP.format(seconds)[1:-1]}"
    return 10 * seconds, f"{prompt}, {inputs}, {_MOVED.format(seconds)[1:-1]}"


def _roughen(chance: random.Random, plan: Plan) -> None:
    """Draw what goes wrong, all of it before the calm."""
    plan.weather = Storms(plan.seed, probability=chance.choice((0.0, 0.002, 0.01, 0.03)), calm_at=plan.calm_at)
    faults = []
    for kind, endpoints in _FAULTS:
        for endpoint in endpoints:
            if chance.random() < 0.3:
                rule: dict[str, object] = {"kind": kind, "endpoint": endpoint, "times": None}
                rule["probability"] = chance.choice((0.01, 0.03, 0.1))
                if kind in {"slow", "throttle", "unavailable", "stay_pending", "link_dies_early"}:
                    rule["seconds"] = chance.choice((1, 20, 90))
                faults.append(rule)
    plan.service["faults"] = faults
    plan.service["duration_scale"] = chance.choice((1.0, 1.0, 0.05))  # so fast that the minute's creates run out
    plan.kills = tuple(sorted(_busy_moment(chance, plan) for _ in range(chance.randint(0, 12))))
    plan.cuts_power = chance.random() < 0.4
    plan.outages = tuple(
        Outage(_busy_moment(chance, plan), chance.choice((1.0, 60.0, 3600.0, 6 * 3600.0)))
        for _ in range(chance.choice((0, 0, 1, 2, 4)))
    )
    if chance.random() < 0.3:
        plan.clock_steps = tuple(
            ClockStep(_busy_moment(chance, plan), chance.choice((-1, 1)) * chance.choice((2, 90, 3600, 3 * DAY)))
            for _ in range(chance.randint(1, 3))
        )
    if chance.random() < 0.3:
        plan.troubles = tuple(
            Trouble(
                life=chance.randint(1, 5),
                first=chance.randint(1, 2000),
                count=chance.choice((1, 1, 20, 10**9)),
                kind=chance.choice(("full", "failing")),
            )
            for _ in range(chance.randint(1, 4))
        )
    if chance.random() < 0.1:
        plan.revoked_at = _busy_moment(chance, plan)
    if chance.random() < 0.1:
        plan.stranger_until = plan.calm_at
    if chance.random() < 0.1:
        plan.rests = tuple(chance.choice((5.0, 3600.0, DAY, 13.5 * DAY)) for _ in range(3))


def _busy_moment(chance: random.Random, plan: Plan) -> float:
    """Draw a moment at which there is something to disturb: the day's credits are spent within its first hour."""
    since_midnight = (plan.starts_at.hour * 60 + plan.starts_at.minute) * 60.0
    day = chance.randrange(max(1, round(plan.calm_at / DAY)))
    return max(0.0, day * DAY - since_midnight * (day > 0)) + chance.uniform(0, 0.6 * HOUR)
