"""How long an ended generation goes unseen: fixed reads, learned ones, and the best that knows the distribution.

The policy alone, without the program around it: many runs of images whose durations are log-normal, each begun with
nothing learned. Prints a table, the figure of docs/performance.md, and what becomes of it when the service changes its
pace after 150 generations: with a distribution drawn by the square of its likelihood, as batchkiln does, with one drawn
by its likelihood itself, and with the middle one.

    python benchmarks/reading.py [--items 500] [--runs 16]
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

from bounds import POLL_SECONDS, best_detection, log_normal

from batchkiln.core.polling import DurationModel, LogNormal, Observation, next_read_seconds

MEANS = (15.0, 20.0, 30.0, 60.0)
CVS = (0.05, 0.1, 0.2, 0.5)
FIGURE_CV = 0.05
USUAL_SECONDS = 20.0
LEARNING = 3
CHANGES = ((15.0, 15.0), (30.0, 15.0), (28.0, 22.0), (15.0, 30.0), (40.0, 25.0), (17.0, 13.0))
BEFORE, AFTER = 150, 250


@dataclass
class Lost:
    """Seconds that passed unseen, and reads, on average."""

    seconds: float = 0.0
    reads: float = 0.0


def drawn(mean: float, cv: float, items: int, seed: int) -> list[float]:
    """Return durations."""
    seconds = log_normal(mean, cv, seed)
    return [seconds() for _ in range(items)]


def fixed(durations: list[float]) -> Lost:
    """Read every ten seconds."""
    return _lost(durations, lambda at: at + POLL_SECONDS)


def best(durations: list[float], mean: float, cv: float) -> Lost:
    """Read as one who knows the distribution."""
    detection = best_detection(mean, cv)
    return Lost(sum(map(detection.idle_after, durations)) / len(durations))


def learned(durations: list[float], draw: Callable[[], float]) -> Lost:
    """Read as batchkiln does; `draw` is uniform from 0 to 1, or always a half for the middle distribution."""
    known, lost = DurationModel(USUAL_SECONDS), Lost()
    for duration in durations:
        shape = known.drawn(draw()) if known.seen >= LEARNING else None
        going, at = 0.0, _next(shape, 0.0)
        lost.reads += 1
        while at < duration:
            going, at = at, _next(shape, at)
            lost.reads += 1
        known.add(Observation(going, at))
        lost.seconds += at - duration
    return Lost(lost.seconds / len(durations), lost.reads / len(durations))


def _next(shape: LogNormal | None, at: float) -> float:
    if shape is None:
        return at + POLL_SECONDS
    return next_read_seconds(shape, elapsed_seconds=at, interval_seconds=POLL_SECONDS)


def _lost(durations: list[float], following: Callable[[float], float]) -> Lost:
    lost = Lost()
    for duration in durations:
        at = 0.0
        while at < duration:
            at = following(at)
            lost.reads += 1
        lost.seconds += at - duration
    return Lost(lost.seconds / len(durations), lost.reads / len(durations))


def _through(parts: list[tuple[list[float], list[float]]], *, draws: bool = True) -> float:
    """Return the seconds lost where the service changes its pace, learning from the first to the last."""
    lost = [
        learned([*old, *new], random.Random(seed).random if draws else lambda: 0.5)
        for seed, (old, new) in enumerate(parts)
    ]
    return _mean(lost).seconds


def _mean(each: list[Lost]) -> Lost:
    return Lost(sum(one.seconds for one in each) / len(each), sum(one.reads for one in each) / len(each))


def main() -> None:
    """Print the table, then the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--runs", type=int, default=16)
    args = parser.parse_args()
    print("| durations | every 10 s | learned | known | reads, every 10 s | learned |\n|---|---|---|---|---|---|")
    figure: list[tuple[float, float, float]] = []
    for mean in MEANS:
        for cv in CVS:
            runs = [drawn(mean, cv, args.items, seed) for seed in range(args.runs)]
            always = _mean([fixed(run) for run in runs])
            ours = _mean([learned(run, random.Random(seed).random) for seed, run in enumerate(runs)])
            known = _mean([best(run, mean, cv) for run in runs])
            name = f"mean {mean:.0f} s, CV {cv}"
            seconds = f"{always.seconds:.2f} s | {ours.seconds:.2f} s | {known.seconds:.2f} s"
            print(f"| {name} | {seconds} | {always.reads:.2f} | {ours.reads:.2f} |", flush=True)
            if cv == FIGURE_CV:
                figure.append((always.seconds, ours.seconds, known.seconds))
    print(f'\n```mermaid\nxychart-beta\n    title "Seconds an ended generation goes unseen (CV {FIGURE_CV})"')
    print(f'    x-axis "mean duration in seconds" [{", ".join(f"{mean:.0f}" for mean in MEANS)}]')
    print('    y-axis "seconds" 0 --> 6')
    for line in zip(*figure, strict=True):
        print(f"    line [{', '.join(f'{seconds:.2f}' for seconds in line)}]")
    print("```\n\n| mean, first and then | drawn | as likely | middle | known |\n|---|---|---|---|---|")
    for first, then in CHANGES:
        print(f"| {first:.0f} s, {then:.0f} s | {_change(first, then, args.runs)} |", flush=True)


def _change(first: float, then: float, runs: int) -> str:
    """Tell what is lost where the service changes its pace: as batchkiln does, in two other ways, and knowing it."""
    parts = [
        (drawn(first, FIGURE_CV, BEFORE, seed), drawn(then, FIGURE_CV, AFTER, seed + runs)) for seed in range(runs)
    ]
    ours = _through(parts)
    with mock.patch("batchkiln.core.polling._SHARPNESS", 1.0):
        plain = _through(parts)
    middle = _through(parts, draws=False)
    known_olds = _mean([best(old, first, FIGURE_CV) for old, _ in parts]).seconds * BEFORE
    known_news = _mean([best(new, then, FIGURE_CV) for _, new in parts]).seconds * AFTER
    known = (known_olds + known_news) / (BEFORE + AFTER)
    return f"{ours:.2f} s | {plain:.2f} s | {middle:.2f} s | {known:.2f} s"


if __name__ == "__main__":
    main()
