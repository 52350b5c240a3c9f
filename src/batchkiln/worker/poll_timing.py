"""The moments at which the active generation is read, from the durations of similar generations.

The durations come from this run and from earlier ones.
"""

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.core.duration_model import REMEMBERED, DurationModel, Guess, guess_from
from batchkiln.core.job import Attempt
from batchkiln.core.polling import Kind, Observation
from batchkiln.core.responses import GenerationRecord, GenerationStatus
from batchkiln.core.timestamps import ClockReading

USUAL_IMAGE_SECONDS: Final = 20.0
USUAL_CLIP_SECONDS: Final = 90.0
"""Expected duration of a generation while none of its kind was seen."""

_LEAST_SECONDS: Final = 0.001

UNNAMED_READS: Final = 6
UNNAMED_SECONDS: Final = 300.0
"""So often, and for so long, an unknown word has to stand with the same outputs: previews come and change."""


class DurationModels(Struct):
    """The durations of one service's generations, by kind. The workers of all its accounts share them."""

    interval_seconds: float
    _seen: dict[Kind, deque[Observation]] = field(default_factory=dict)
    _known: dict[Kind, DurationModel] = field(default_factory=dict)

    def remember(self, observations: Iterable[tuple[Kind, Observation]]) -> None:
        """Add the observations of earlier runs, the oldest first."""
        for kind, observation in observations:
            self._seen.setdefault(kind, deque(maxlen=REMEMBERED)).append(observation)

    def add(self, kind: Kind, observation: Observation) -> None:
        """Learn from an observation of this run."""
        self.of(kind).add(observation)
        self.remember([(kind, observation)])

    def of(self, kind: Kind) -> DurationModel:
        """Return the model of a kind."""
        if kind not in self._known:
            self._known[kind] = DurationModel(self._guess(kind), self._seen.get(kind, ()))
        return self._known[kind]

    def _guess(self, kind: Kind) -> Guess:
        """Return the expectation of a kind before its own observations, from the similar kinds of its model."""
        similar = [
            (self._sibling(other, seen), factor)
            for other, seen in self._seen.items()
            if other != kind and (factor := kind.relative_length(other)) is not None
        ]
        return guess_from(similar) if similar else _usual(kind)

    def _sibling(self, kind: Kind, seen: Iterable[Observation]) -> DurationModel:
        """Return the model of a kind, which does not ask its own siblings."""
        if kind not in self._known:
            self._known[kind] = DurationModel(_usual(kind), seen)
        return self._known[kind]


def _usual(kind: Kind) -> Guess:
    return Guess(USUAL_CLIP_SECONDS if kind.is_video else USUAL_IMAGE_SECONDS)


class TrackedGeneration(Struct):
    """The one active generation of an account, as this process observes it. All moments are monotonic seconds."""

    attempt_id: int
    kind: Kind
    began_at: float
    durations: DurationModel
    running_at: float  # when the last poll was sent that found it running
    _next_read: tuple[float, float] | None = None  # the last touch, and the best moment for the read after it

    def next_read_at(self, last_touched_at: float, interval_seconds: float) -> float:
        """Return the best moment for the next read, at least an interval after the last (Service rule 4.4).

        It stays what it is until that read: what other accounts learn meanwhile does not wake this one.
        """
        if self._next_read is None or self._next_read[0] != last_touched_at:
            elapsed = max(0.0, last_touched_at - self.began_at)
            seconds = self.durations.next_read_seconds(elapsed_seconds=elapsed, interval_seconds=interval_seconds)
            self._next_read = last_touched_at, self.began_at + seconds
        return self._next_read[1]

    def is_running(self, sent_at: float) -> None:
        """Record that a poll sent at `sent_at` found the generation still running."""
        self.running_at = max(self.running_at, sent_at)

    def ended(self, seen_at: float) -> Observation:
        """Return the observed duration of a generation whose success a poll at `seen_at` found."""
        ended = max(_LEAST_SECONDS, seen_at - self.began_at)
        return Observation(min(max(0.0, self.running_at - self.began_at), ended), ended)


class _UnchangedReads(Struct, frozen=True):
    """The unchanged content of consecutive reads since `since` (monotonic seconds), and their number."""

    word: str
    outputs_count: int
    since: float
    reads: int = 1


class UnnamedResults(Struct):
    """Counts the reads of active generations whose status word is unknown. A new run starts at zero.

    A result under such a word is downloaded once it has stayed the same for some minutes (Law 3).
    """

    _unchanged: dict[int, _UnchangedReads] = field(default_factory=dict)

    def read(self, attempt_id: int, record: GenerationRecord, now: float) -> GenerationRecord:
        """Return the record, as a success if its unknown word and its outputs have stayed the same for long enough.

        An unknown word alone counts as not ended (contract, section 8). `now` is in monotonic seconds.
        """
        if record.status is not GenerationStatus.UNKNOWN or not record.outputs:
            self.forget(attempt_id)
            return record
        known, outputs_count = self._unchanged.get(attempt_id), len(record.outputs)
        if known is None or (known.word, known.outputs_count) != (record.status_word, outputs_count):
            self._unchanged[attempt_id] = _UnchangedReads(record.status_word, outputs_count, now)
            return record
        self._unchanged[attempt_id] = replace(known, reads=known.reads + 1)
        if known.reads + 1 < UNNAMED_READS or now - known.since < UNNAMED_SECONDS:
            return record
        return replace(record, status=GenerationStatus.SUCCESS)

    def forget(self, attempt_id: int) -> None:
        """Forget the reads of an attempt."""
        self._unchanged.pop(attempt_id, None)


class PollTiming(Struct):
    """The poll times of one account's generation. All moments are monotonic seconds."""

    models: DurationModels
    _tracked: TrackedGeneration | None = None
    _touched_at: dict[int, float] = field(default_factory=dict)  # by attempt: when its last request was over
    _recorded: dict[int, tuple[GenerationStatus, str, int | None]] = field(default_factory=dict)  # by attempt
    unnamed: UnnamedResults = field(default_factory=UnnamedResults)

    def touch(self, attempt_id: int, at: float) -> None:
        """Record when a request about an attempt ended."""
        self._touched_at[attempt_id] = at

    def touched_at(self, attempt_id: int, last_read_at: datetime | None, now: ClockReading) -> float | None:
        """Return when the last request about an attempt ended; for an earlier run, the latest possible moment.

        The duration of that request is unknown, but this process began after it. It counts as ended when this process
        first read the attempt, or when it was sent if that is longer ago than any poll interval.
        """
        if attempt_id not in self._touched_at and last_read_at is not None:
            sent_at = now.monotonic_of(last_read_at)
            is_recent = now.monotonic - sent_at < 2 * self.models.interval_seconds
            self._touched_at[attempt_id] = now.monotonic if is_recent else min(sent_at, now.monotonic)
        return self._touched_at.get(attempt_id)

    def worth_at(self, attempt: Attempt, kind: Kind, touched_at: float, now: ClockReading) -> float:
        """Return the best moment to read the active generation, from the durations of similar generations."""
        if attempt.generation_created_at is None:
            return -inf
        if self._tracked is None or self._tracked.attempt_id != attempt.id:
            began_at = min(touched_at, now.monotonic_of(attempt.generation_created_at))
            self._tracked = TrackedGeneration(attempt.id, kind, began_at, self.models.of(kind), began_at)
        return self._tracked.next_read_at(touched_at, self.models.interval_seconds)

    def observe(
        self, attempt: Attempt, status: GenerationStatus, *, sent_at: float, seen_at: float
    ) -> Observation | None:
        """Record the status that a poll found. If it is a success, add its duration to the models and return it."""
        tracked = self._tracked
        if tracked is None or tracked.attempt_id != attempt.id:
            return None
        if not status.is_ended:
            tracked.is_running(sent_at)
        elif status is GenerationStatus.SUCCESS and self.models.interval_seconds:
            observation = tracked.ended(seen_at)
            self.models.add(tracked.kind, observation)
            return observation
        return None

    # --- what polls said ---

    def is_news(self, attempt_id: int, record: GenerationRecord) -> bool:
        """Return whether a record differs from the last one that was recorded for an active generation."""
        return _compared_fields(record) != self._recorded.get(attempt_id)

    def recorded(self, attempt_id: int, record: GenerationRecord) -> None:
        """Keep a record that is now in the queue, to compare the next one with it."""
        self._recorded[attempt_id] = _compared_fields(record)

    def denied(self, attempt_id: int) -> None:
        """Forget the last record after the service denied the id, so that the next good read is recorded."""
        self._recorded.pop(attempt_id, None)

    def ended(self, attempt_id: int) -> None:
        """Forget the polls of a generation that ended."""
        self._recorded.pop(attempt_id, None)
        self.unnamed.forget(attempt_id)

    def forget(self, attempt_id: int) -> None:
        """Forget an attempt that needs no further requests."""
        self.ended(attempt_id)
        self._touched_at.pop(attempt_id, None)


def _compared_fields(record: GenerationRecord) -> tuple[GenerationStatus, str, int | None]:
    """Return the part of a record whose change is worth recording."""
    return record.status, record.status_word, record.cost_credits
