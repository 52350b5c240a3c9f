"""Learns the expected durations of a kind from earlier ones: their mean, their spread, and the error of the mean.

Two things make the sum of coming durations uncertain. Each of them varies, which evens out over many items. And the
mean of few observations is wrong by the same amount for every item, which does not. Both are kept apart.
"""

from collections.abc import Iterable, Sequence
from math import erfc, exp, hypot, log, pi, sqrt
from typing import Final

from msgspec import Struct

from batchkiln.core.polling import Kind

_GUESSED_SPREAD: Final = 0.3  # standard deviation of a duration, as a share of the mean, before any was seen
_GUESS_ERROR: Final = 0.8  # of the guessed mean, likewise
_GUESS_WEIGHT: Final = 2  # the guessed spread counts as so many observations
_SIMILAR_SPREAD: Final = 0.2  # of the logarithm of the means of similar kinds, before two of them were seen
_SMALL_SAMPLE: Final = 1.2  # widens what few observations tell, as Student's distribution does
_LEAST_SECONDS: Final = 0.001  # of a local service that answers at once
_SHORTEST_LOOK: Final = 8  # observations
_CHANGE: Final = 3.5  # standard errors between two means beyond which the service has changed its pace
_MOST_OVERDUE: Final = 2.0  # standard deviations: durations have a longer tail than the normal distribution
_LEAST_CHANGE: Final = 0.02  # as a share of the mean
_FEWEST_FOR_A_MEDIAN: Final = 5  # observations
_LONGEST: Final = 10  # medians: a longer duration includes time when nobody looked
_LEAST_UNWATCHED: Final = 60.0  # seconds: of a local service that answers at once, ten medians are nothing


class Expected(Struct, frozen=True):
    """The expected duration of a kind of item, in seconds.

    `deviation` is the standard deviation of one duration from the mean, and `error` that of the mean itself.
    """

    seconds: float
    deviation: float = 0.0
    error: float = 0.0

    def times(self, factor: float) -> "Expected":
        """Return the expectation of durations that are longer by a factor."""
        return Expected(self.seconds * factor, self.deviation * factor, self.error * factor)

    def after(self, age: float) -> "Expected":
        """Return the expectation of the rest of a duration that has already lasted `age` seconds.

        It is the part above `age` of a normal distribution. An overdue duration is still expected to take a while.
        """
        whole = hypot(self.deviation, self.error)
        if not whole:
            return Expected(max(0.0, self.seconds - age))
        passed = min((age - self.seconds) / whole, _MOST_OVERDUE)
        hazard = sqrt(2 / pi) * exp(-(passed**2) / 2) / erfc(passed / sqrt(2))
        factor = sqrt(1 + passed * hazard - hazard**2)
        seconds = min(self.seconds, whole * (hazard - passed))
        return Expected(seconds, self.deviation * factor, self.error * factor)


class Durations:
    """The observed durations of a service's items, by kind."""

    def __init__(self, seen: Iterable[tuple[Kind, float]] = ()) -> None:
        """Take the durations in seconds, the oldest first."""
        self._seen: dict[Kind, list[float]] = {}
        for kind, seconds in seen:
            self._seen.setdefault(kind, []).append(seconds)
        self._models: dict[tuple[str, bool], list[Kind]] = {}
        for kind in self._seen:
            self._models.setdefault(kind.of_model, []).append(kind)
        self._alone: dict[tuple[tuple[str, bool], float], list[tuple[Kind, Expected]]] = {}
        self._known: dict[tuple[Kind, float], Expected] = {}

    def expected(self, kind: Kind, usual_seconds: float) -> Expected:
        """Return the expected duration of the next items of a kind, in seconds of service time.

        `usual_seconds`, in the same unit, counts as long as nothing is known.
        """
        key = kind, usual_seconds
        if key not in self._known:
            self._known[key] = self._expected(kind, usual_seconds)
        return self._known[key]

    def _expected(self, kind: Kind, usual_seconds: float) -> Expected:
        usual = Expected(usual_seconds, _GUESSED_SPREAD * usual_seconds, _GUESS_ERROR * usual_seconds)
        similar = [
            each.times(factor)
            for other, each in self._of_model(kind.of_model, usual)
            if other != kind and (factor := kind.relative_length(other)) is not None
        ]
        return expected(self._seen.get(kind, ()), from_similar(similar) if similar else usual)

    def _of_model(self, model: tuple[str, bool], usual: Expected) -> Sequence[tuple[Kind, Expected]]:
        """Return the seen kinds of a model, and what is expected of each without regard to the others."""
        key = model, usual.seconds
        if key not in self._alone:
            self._alone[key] = [(kind, expected(self._seen[kind], usual)) for kind in self._models.get(model, ())]
        return self._alone[key]

    def has_seen(self, kind: Kind) -> bool:
        """Return whether an item of a kind was observed."""
        return kind in self._seen


def from_similar(similar: Sequence[Expected]) -> Expected:
    """Return the expectation of an unseen kind, from those of one or more similar kinds.

    The variance of their means counts together with two assumed kinds, as for the choice of poll times.
    """
    logs = [log(each.seconds) for each in similar]
    middle = _mean(logs)
    between = (sum((each - middle) ** 2 for each in logs) + 2 * _SIMILAR_SPREAD**2) / (len(logs) + 1)
    seconds = exp(middle)
    spread = _mean([each.deviation / each.seconds for each in similar])
    return Expected(seconds, spread * seconds, seconds * sqrt(between * (1 + 1 / len(logs))))


def expected(seen: Sequence[float], before: Expected) -> Expected:
    """Return the expectation after observed durations (seconds, oldest first), from the expectation `before` them."""
    alike = _newest_alike([max(each, _LEAST_SECONDS) for each in _watched(seen)])
    count = len(alike)
    if not count:
        return before
    mean = _mean(alike)
    guessed_variance = (mean * before.deviation / before.seconds) ** 2
    freedom = count - 1 + _GUESS_WEIGHT
    variance = (_squares(alike, mean) + _GUESS_WEIGHT * guessed_variance) / freedom
    variance *= (1 + _SMALL_SAMPLE / freedom) ** 2
    doubt = before.error**2 + (mean - before.seconds) ** 2  # a guess that is far off tells little
    weight = variance / doubt if before.error else 0.0  # of what was expected before, in observations
    seconds = (weight * before.seconds + count * mean) / (weight + count)
    half = count // 2
    change = (_mean(alike[half:]) - _mean(alike[:half])) / 2 if count >= _SHORTEST_LOOK else 0.0  # it may go on
    return Expected(seconds, sqrt(variance), sqrt(variance / (weight + count) + change**2))


def _watched(seen: Sequence[float]) -> Sequence[float]:
    """Return the durations without those that are probably the length of a crash, an outage or a suspended machine.

    A generation's end is known only once the program looks for it. The median is that of the newest durations, so that
    a service that becomes much slower is believed soon.
    """
    if len(seen) < _FEWEST_FOR_A_MEDIAN:
        return seen
    newest = sorted(seen[-2 * _SHORTEST_LOOK :])
    longest = max(_LONGEST * newest[len(newest) // 2], _LEAST_UNWATCHED)
    return [each for each in seen if each <= longest]


def _newest_alike(seen: Sequence[float]) -> Sequence[float]:
    """Return the newest durations, as many as have one mean: none from before the service changed its pace.

    The look back is doubled for as long as the older half has the mean of the newer one. How much durations vary is
    taken from twice as many as both halves: ends are seen at the polls, so that eight in a row are often equal.
    """
    size = _SHORTEST_LOOK
    while size < len(seen):
        newer, older, around = seen[-size:], seen[-2 * size : -size], seen[-4 * size :]
        means = _mean(newer), _mean(older)
        variance = _squares(around, _mean(around)) / (len(around) - 1)
        error = sqrt(variance * (1 / len(newer) + 1 / len(older)))
        if abs(means[0] - means[1]) > max(_CHANGE * error, _LEAST_CHANGE * means[0]):
            return newer
        size *= 2
    return seen


def _mean(seen: Sequence[float]) -> float:
    return sum(seen) / len(seen)


def _squares(seen: Sequence[float], mean: float) -> float:
    return sum((each - mean) ** 2 for each in seen)
