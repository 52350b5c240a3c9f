"""What a simulated world is made of, and everything that is to happen in it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from batchkiln.rehearsal.network import NetworkConditions
from batchkiln_service import LocalService

from .decisions import Decision
from .disk_faults import Trouble
from .few_first import Few
from .power_cuts import Cut

START: Final = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
RESTART_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Outage:
    """The service is killed at a moment, and comes back after so many seconds."""

    moment: float
    seconds: float


@dataclass(frozen=True)
class ClockStep:
    """From a moment on, the machine's clock is wrong by so many seconds."""

    moment: float
    error_seconds: float


@dataclass(frozen=True)
class StorageTrouble:
    """Until the calm, calls of object storage fail: some of them before or after they are done, and all in outages."""

    probability: float
    outages: tuple[Outage, ...] = ()


Database = Literal["sqlite", "postgresql"]
Stage = Literal[
    "any",
    "recorded",  # an attempt is committed, its line is written to the journal, and not flushed
    "journaled",  # it is flushed, and nothing is sent
    "sent",  # the first byte of a create is about to be sent
    "replied",  # the service's word on a create is on its way
    "in doubt",  # an attempt waits to be sent again
    "refused",  # an attempt was refused, and its item has no other one yet
    "failed",  # likewise, after a generation that failed
    "downloading",
    "deciding",  # a person is about to cancel, to retry or to resolve, or has just done it
]


@dataclass(frozen=True)
class QueueCopy:
    """A person copies the queue at a moment, or as soon after it as an attempt comes to a stage of its life."""

    moment: float
    stage: Stage = "any"


Hand = Literal[
    "none",
    "cancel",  # what the copy has as queued, before anything drives it
    "move",  # by `queue copy`: to another place, whose journal is empty
    "move twice",  # the first try is interrupted
]


@dataclass(frozen=True)
class Restore:
    """At a moment the program is killed, and its queue replaced by a copy: the newest, or one so many copies older.

    `hand` is what a person does with the copy before the program is started again.
    """

    moment: float
    back: int = 0
    hand: Hand = "none"


@dataclass(frozen=True)
class Intervention:
    """At a moment a person cancels items, retries those that were canceled, reviews, or decides about done items.

    The program runs meanwhile.
    """

    moment: float
    kind: Literal["cancel", "retry", "review", "undo"] | Decision


@dataclass(frozen=True)
class HookBounds:
    """The hook `on_saved` is configured: how often it may have an item made again, and for how many credits a job."""

    redos: int
    redo_credits: int


@dataclass
class Plan:
    """What a world is made of. Moments are virtual seconds from its beginning."""

    seed: int = 0
    starts_at: datetime = START
    manifests: dict[str, str] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()  # names of input images
    accounts: tuple[str, ...] = ("main",)
    service: dict[str, object] = field(default_factory=dict)  # fields of its configuration
    limits: dict[str, int] = field(default_factory=dict)  # of the accounts, where they have others than usual
    weather: Callable[[], NetworkConditions] | None = None
    deaths: tuple[int, ...] = ()  # points of the program, life by life
    cuts_power: Cut | None = None  # at deaths, and at kills
    cut_seed: int = 0  # draws what a power cut takes
    counts_statements: bool = False  # as points; only a real process can die within a transaction
    kills: tuple[float, ...] = ()  # moments at which the program is killed
    troubles: tuple[Trouble, ...] = ()  # with the program's disk and database
    copies: tuple[QueueCopy, ...] = ()
    restores: tuple[Restore, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    outages: tuple[Outage, ...] = ()
    clock_steps: tuple[ClockStep, ...] = ()
    revoked_at: float | None = None  # the API key of the first account; the next life has another one
    topped_up_at: float | None = None  # credits are bought for the first account, and the program is started again
    stranger_until: float = 0.0  # until when somebody else uses the first account, with a key of their own
    rests: tuple[float, ...] = ()  # seconds between two lives of the program, one after the other
    calm_at: float = 0.0  # from here on nothing goes wrong any more
    other_outputs: frozenset[str] = frozenset()  # hashes of files that only a dialect has
    replies: str = ""  # of the profile: what a person knows of the service's replies
    decisions: tuple[Decision, ...] = ()  # of a person about done items, between two lives of the program
    hook: HookBounds | None = None
    few: Few | None = None  # a person tries a few first, and then has everything made
    database: Database = "sqlite"
    made_again: tuple[str, str] | None = None  # job and item that are made again, whose first version is then used
    has_objects: bool = False  # `output.dir` is a URL; the place of its objects outlives the program
    storage: StorageTrouble | None = None  # of these objects
    is_left_alone: bool = False  # nobody helps, and nobody starts a program again that has ended by itself
    ends_by: float = 60 * 86_400.0  # by then everything has come to an end: a bound for liveness
    goes_on_at: float = 0.0  # a world that an earlier process left in its folder, at this moment
    prepare: Callable[[LocalService], None] = lambda _: None

    def rest_seconds(self, life: int) -> float:
        """Return how long the program is not running after a life, counted from one."""
        return self.rests[life - 1] if life <= len(self.rests) else RESTART_SECONDS

    def clock_error_seconds(self, moment: float) -> float:
        """Return by how much the machine's clock is wrong."""
        errors = [step.error_seconds for step in self.clock_steps if step.moment <= moment]
        return errors[-1] if errors else 0.0
