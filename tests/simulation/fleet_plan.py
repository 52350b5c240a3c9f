"""What a simulated fleet is made of: several workers on one queue, and everything that befalls them."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from batchkiln_service import LocalService

from .manifests import with_choices
from .object_points import with_objects
from .plan import Plan, Restore, StorageTrouble

if TYPE_CHECKING:
    from batchkiln_service.faults.fault_rules import Endpoint, Misbehaviour

HOUR: Final = 3_600.0
CALM_AT: Final = HOUR / 2
STORED: Final = 0.3
HANDOVERS: Final = ((20.0, 29.0), (60.0, 66.0), (90.0, 99.0))
"""When accounts change hands in the plan of a handover: a worker joins, another is stopped, and begins again."""
_EGRESSES: Final = ("fra-1", "fra-2", "fra-3")

Blow = Literal[
    "kill",  # at once, or between a commit and its reply
    "stop",  # as SIGTERM does
    "freeze",  # code stands still, clocks go on
    "lose",  # the connection to the database
    "sever",  # no byte to or from the service for a while
    "fill",  # the disk of its outputs
    "fill journal",  # the disk of its journal of attempts
]
When = Literal["now", "before commit", "after commit", "before send"]


@dataclass(frozen=True)
class Misadventure:
    """What befalls a worker: armed at a moment, it strikes at once, or at the worker's next commit or send."""

    moment: float
    worker: int
    blow: Blow
    when: When = "now"
    seconds: float = 0.0  # how long it lasts, or how long nobody starts the worker again
    clock_step: float = 0.0  # of the machine's wall clock, as it goes on


@dataclass(frozen=True)
class Machine:
    """One worker's machine: its address, how wrong its clock is, the accounts whose keys it has, and its start."""

    egress: str
    clock_error: float = 0.0
    accounts: tuple[str, ...] = ()
    starts_at: float = 0.0


@dataclass(frozen=True)
class DatabaseRestore:
    """At a moment the database is restored to what it was at another.

    `is_told`: the server says so itself, else a person does.
    """

    copied_at: float
    moment: float
    is_told: bool = False


@dataclass
class FleetPlan:
    """A world with several workers. Moments are virtual seconds."""

    world: Plan = field(default_factory=Plan)
    machines: tuple[Machine, ...] = ()
    misadventures: tuple[Misadventure, ...] = ()
    restores: tuple[DatabaseRestore, ...] = ()
    database_error: float = 0.0  # of the database's clock
    weather: float = 0.0  # probability of a misfortune of each write on the network
    ends_by: float = 8 * HOUR
    has_room: bool = True  # the addresses carry a killed worker's accounts besides, so that takeovers are measured


def handover() -> FleetPlan:
    """Return two workers with two accounts: the second one joins, the first one is stopped and begins again."""
    accounts = ("a0", "a1")
    lines = ["version: 1", "job: clips", "accounts: [a0, a1]", "items:"]
    request = "model: alpha-2.5-lite, mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 5}"
    lines += [f"  - {{id: i{number}, prompt: clip {number}, {request}}}" for number in range(6)]
    return FleetPlan(
        world=Plan(accounts=accounts, manifests={"clips.yaml": "\n".join(lines) + "\n"}),
        machines=(
            Machine("fra-1", clock_error=90.0, accounts=accounts),
            Machine("fra-2", accounts=accounts, starts_at=HANDOVERS[0][0]),
        ),
        misadventures=(Misadventure(HANDOVERS[1][0], 0, "stop", seconds=HANDOVERS[2][0] - HANDOVERS[1][0]),),
        database_error=-180.0,
    )


def draw_fleet(seed: int) -> FleetPlan:
    """Return the world of a seed: two or three workers, two to four accounts, kills, freezes and lost connections."""
    chance = random.Random(f"fleet {seed}")
    accounts = tuple(f"a{number}" for number in range(chance.randint(2, 4)))
    workers = chance.randint(2, 3)
    is_crowded = chance.random() < 0.3  # the address's minute is what is short
    limits = {"requests_per_minute_per_ip": 20} if is_crowded else {}
    shared = chance.random() < 0.4
    egresses = [_EGRESSES[0] if shared and number < 2 else _EGRESSES[number] for number in range(workers)]
    # Workers of one address have the same keys: one that stands by drives nothing, though nobody else may.
    keys = {egress: _keys(chance, accounts, number) for number, egress in enumerate(dict.fromkeys(egresses))}
    machines = tuple(
        Machine(
            egress=egresses[number],
            clock_error=chance.choice((0.0, 0.0, 150.0, -150.0, 400.0, -3600.0)),
            accounts=keys[egresses[number]],
            starts_at=chance.choice((0.0, 0.0, 1.0, chance.uniform(0, 200))),
        )
        for number in range(workers)
    )
    world = Plan(
        seed=seed,
        accounts=accounts,
        calm_at=CALM_AT,
        manifests=_with_choices(seed, dict(_manifests(chance, accounts))),
        limits=limits,
        service={"duration_scale": chance.choice((0.3, 0.3, 1.0))},
        prepare=_faults(chance),
    )
    _store_objects(seed, world)
    busy = chance.choice((300.0, 600.0))
    return FleetPlan(
        world=world,
        machines=machines,
        misadventures=(*_misadventures(chance, workers, busy), *_full_journals(seed, workers, busy)),
        database_error=chance.choice((0.0, 180.0, -180.0)),
        weather=chance.choice((0.0, 0.0, 0.003, 0.01)),
        has_room=not is_crowded,
    )


def draw_restored_fleet(seed: int) -> FleetPlan:
    """Return the fleet of a seed with a database that is restored twice, while accounts change hands."""
    plan, chance = draw_fleet(seed), random.Random(f"restored fleet {seed}")
    moments = sorted(chance.uniform(20, 300) for _ in range(2))
    plan.restores = tuple(
        DatabaseRestore(max(1.0, moment - chance.uniform(0.1, 60.0)), moment, is_told=chance.random() < 0.5)
        for moment in moments
    )
    plan.world.restores = tuple(Restore(each.moment) for each in plan.restores)  # what the checks make of it
    return plan


def _with_choices(seed: int, manifests: dict[str, str]) -> dict[str, str]:
    """Add chains, groups and reviews to half of the fleets, apart from all else, so that a seed keeps its world."""
    chance = random.Random(f"fleet choices {seed}")
    if chance.random() < 0.5:
        return manifests
    texts = {name.removesuffix(".yaml"): text for name, text in manifests.items()}
    return {f"{job}.yaml": text for job, text in with_choices(chance, texts, (1, 2, 3)).items()}


def _full_journals(seed: int, workers: int, busy: float) -> Iterator[Misadventure]:
    """Fill the disk of a journal in a fifth of the fleets, apart from all else."""
    chance = random.Random(f"fleet journals {seed}")
    if chance.random() < 0.2:
        yield Misadventure(
            chance.uniform(0, busy), chance.randrange(workers), "fill journal", seconds=chance.uniform(30, 200)
        )


def _store_objects(seed: int, world: Plan) -> None:
    """Let the outputs of some fleets be objects, apart from all else; each machine has complete files of its own."""
    chance = random.Random(f"fleet objects {seed}")
    if chance.random() < STORED:
        world.has_objects = True
        world.manifests = with_objects(world.manifests)
        world.storage = StorageTrouble(chance.choice((0.0, 0.05, 0.2)))


def _keys(chance: random.Random, accounts: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The first machine has all keys; another may lack one."""
    if number == 0 or chance.random() < 0.7:
        return accounts
    lacking = chance.choice(accounts)
    return tuple(account for account in accounts if account != lacking)


def _manifests(chance: random.Random, accounts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    offers = (
        "model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}",
        "model: epsilon-2, mode: text-to-image, parameters: {resolution: 1024x1024}",
        "model: alpha-2.5-lite, mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 5}",
    )
    for job in range(chance.randint(1, 2)):
        spread = accounts if chance.random() < 0.7 else accounts[: max(1, len(accounts) - 1)]
        lines = ["version: 1", f"job: job-{job}", f"accounts: [{', '.join(spread)}]"]
        is_budgeted = chance.random() < 0.3
        count = chance.randint(6, 10) * len(spread) // (job + 1)
        lines += [f"budget: {{credits: {50 * count + 100}}}"] if is_budgeted else []  # with a failure or two
        items = [f"  - {{id: i{n}, prompt: job-{job} {n}, {chance.choice(offers)}}}" for n in range(count)]
        yield f"job-{job}.yaml", "\n".join([*lines, "items:", *items]) + "\n"


def _faults(chance: random.Random) -> Callable[[LocalService], None]:
    rules: tuple[tuple[Misbehaviour, Endpoint], ...] = (
        ("reply_lost", "create"),
        ("reply_lost", "poll"),
        ("unavailable", "create"),
        ("throttle", "create"),
        ("throttle", "poll"),
        ("fail_generation", "create"),
    )
    drawn = [rule for rule in rules if chance.random() < 0.25]

    def prepare(service: LocalService) -> None:
        for kind, endpoint in drawn:
            service.faults.add(kind, endpoint, times=3)

    return prepare


def _misadventures(chance: random.Random, workers: int, busy: float) -> Iterator[Misadventure]:
    def each(blow: Blow, count: int, whens: tuple[When, ...], lengths: tuple[float, float]) -> Iterator[Misadventure]:
        for _ in range(count):
            seconds = chance.uniform(*lengths)
            # The wall clock of a machine that stood still may stand still with it, and be set right later, or never.
            is_stepped = blow == "freeze" and chance.random() < 0.4
            yield Misadventure(
                moment=chance.uniform(0, busy),
                worker=chance.randrange(workers),
                blow=blow,
                when=chance.choice(whens),
                seconds=seconds,
                clock_step=-seconds if is_stepped else 0.0,
            )

    anywhere: tuple[When, ...] = ("now", "before commit", "after commit", "before send")
    yield from each("kill", chance.randint(1, 5), anywhere, (1, 60))
    yield from each("freeze", chance.randint(2, 10), ("now", "after commit", "after commit", "before send"), (2, 60))
    yield from each("lose", chance.randint(2, 8), ("before commit", "after commit", "now"), (0, 45))
    yield from each("stop", chance.randint(0, 2), ("now",), (1, 60))
    yield from each("sever", chance.randint(0, 1), ("now",), (5, 90))
    yield from each("fill", 1 if chance.random() < 0.2 else 0, ("now",), (30, 200))
