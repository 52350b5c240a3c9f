"""When the active generation is read: by what was learned of others of its kind, in this run and earlier ones."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from batchkiln.core.duration_model import DurationModel, LogNormal, Observation
from batchkiln.core.poll_schedule import next_read_seconds
from batchkiln.core.queue_types import Kind

USUAL_IMAGE_SECONDS: Final = 20.0
USUAL_CLIP_SECONDS: Final = 90.0
"""What a generation is expected to take while nothing of its kind was seen."""

_LEARNING: Final = 3
"""So many of a kind are read every interval, before what was seen is worth more than looking."""

_LEAST_SECONDS: Final = 0.001


@dataclass(slots=True)
class DurationModels:
    """How long one service's generations take, by kind; shared by the workers of all its accounts."""

    interval_seconds: float
    _history: dict[Kind, list[Observation]] = field(default_factory=dict)
    _known: dict[Kind, DurationModel] = field(default_factory=dict)

    def remember(self, sightings: Iterable[tuple[Kind, Observation]]) -> None:
        """Begin with what earlier runs saw, the oldest first."""
        for kind, sighting in sightings:
            self._history.setdefault(kind, []).append(sighting)

    def of(self, kind: Kind) -> DurationModel:
        """Return what is known of a kind."""
        if kind not in self._known:
            usual = USUAL_CLIP_SECONDS if kind.is_video else USUAL_IMAGE_SECONDS
            self._known[kind] = DurationModel(usual, self._history.pop(kind, ()))
        return self._known[kind]


@dataclass(slots=True)
class TrackedGeneration:
    """The one active generation of an account, from this process's point of view; all moments are monotonic."""

    attempt_id: int
    kind: Kind
    began_at: float
    shape: LogNormal | None  # what to expect; None while nothing is known: read every interval
    going_at: float

    def next_read_at(self, last_touched_at: float, interval_seconds: float) -> float:
        """Return when the next read is worth most: at least an interval after the last (Service rule 4.4)."""
        if self.shape is None:
            return last_touched_at + interval_seconds
        elapsed = last_touched_at - self.began_at
        return self.began_at + next_read_seconds(
            self.shape, elapsed_seconds=max(0.0, elapsed), interval_seconds=interval_seconds
        )

    def still_goes(self, sent_at: float) -> None:
        """Note that a read which left then was told that the generation goes on."""
        self.going_at = max(self.going_at, sent_at)

    def ended(self, seen_at: float) -> Observation:
        """Return what was seen of its duration, where a success was read at this moment."""
        ended = max(_LEAST_SECONDS, seen_at - self.began_at)
        return Observation(min(max(0.0, self.going_at - self.began_at), ended), ended)


def track_generation(
    paces: DurationModels, attempt_id: int, kind: Kind, *, began_at: float, draw: float
) -> TrackedGeneration:
    """Begin to follow a generation; `draw` is uniform from 0 to 1."""
    known = paces.of(kind)
    shape = known.drawn(draw) if known.seen >= _LEARNING and paces.interval_seconds else None
    return TrackedGeneration(attempt_id, kind, began_at, shape, began_at)
