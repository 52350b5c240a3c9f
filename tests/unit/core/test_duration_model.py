"""What is learned of durations from reads that found a generation going on, and then ended."""

from math import ceil, log, sin
from random import Random

import pytest

from batchkiln.core.duration_model import DurationModel, Guess, guess_from
from batchkiln.core.polling import Observation

INTERVAL = 10.0
USUAL = Guess(20.0)


def sightings_of(seconds: list[float], *, gap: float = INTERVAL, offset: float = 0.0) -> list[Observation]:
    """Return what reads at every `gap` seconds would have seen."""
    found = []
    for duration in seconds:
        ended = offset + gap * max(1, ceil((duration - offset) / gap))
        found.append(Observation(max(0.0, ended - gap), ended))
    return found


def seconds_of(median: float, spread: float, count: int, seed: int = 7) -> list[float]:
    chance = Random(seed)
    return [chance.lognormvariate(log(median), spread) for _ in range(count)]


def idle_after(model: DurationModel, seconds: float) -> tuple[float, Observation]:
    """Return the time from an end to the read that sees it, and what the reads saw."""
    going, at = 0.0, model.next_read_seconds(elapsed_seconds=0.0, interval_seconds=INTERVAL)
    while at < seconds:
        going, at = at, model.next_read_seconds(elapsed_seconds=at, interval_seconds=INTERVAL)
    return at - seconds, Observation(going, at)


def idle_of(durations: list[float], *, last: int | None = None) -> tuple[float, float]:
    """Return the average idle time of a learning model, and of a read every interval, for the last durations."""
    model, ours, fixed = DurationModel(USUAL), list[float](), list[float]()
    for seconds in durations:
        idle, seen = idle_after(model, seconds)
        model.add(seen)
        ours.append(idle)
        fixed.append(-seconds % INTERVAL)
    counted = slice(None if last is None else -last, None)
    return sum(ours[counted]) / len(ours[counted]), sum(fixed[counted]) / len(fixed[counted])


def first_reads(model: DurationModel, count: int) -> list[float]:
    moments = [0.0]
    for _ in range(count):
        moments.append(model.next_read_seconds(elapsed_seconds=moments[-1], interval_seconds=INTERVAL))
    return moments[1:]


def test_the_first_generation_of_all_is_read_every_interval() -> None:
    """Nothing is known of this service."""
    assert first_reads(DurationModel(USUAL), 5) == [10.0, 20.0, 30.0, 40.0, 50.0]


@pytest.mark.parametrize("median", [12.0, 15.0, 47.0, 60.0])
@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_median_is_learned_from_intervals(median: float, spread: float) -> None:
    """Reads tell it only to ten seconds each, together they tell more; far from the guess as well."""
    seconds = seconds_of(median, spread, 64)

    known = DurationModel(USUAL, [*sightings_of(seconds[::2]), *sightings_of(seconds[1::2], offset=5.0)])

    assert known.median_seconds == pytest.approx(sorted(seconds)[32], rel=0.12)


def test_odd_ones_move_little() -> None:
    """A service that was down for an hour has told nothing about the next generation."""
    seen = sightings_of(seconds_of(15.0, 0.05, 60), gap=2.0)
    usual = first_reads(DurationModel(USUAL, seen), 1)[0]
    seen[50:50] = [Observation(3000.0, 3600.0), Observation(0.0, 0.5)]

    assert first_reads(DurationModel(USUAL, seen), 1)[0] == pytest.approx(usual, abs=1.0)


def test_a_service_that_has_changed_is_learned_within_a_dozen() -> None:
    """Another machine there, and everything takes another time: the next two dozen are seen soon."""
    ours, fixed = idle_of([*seconds_of(15.0, 0.05, 64), *seconds_of(22.0, 0.05, 36)], last=24)

    assert ours < 0.7 * fixed


def test_steady_durations_are_seen_far_sooner_than_with_a_read_every_interval() -> None:
    """From the beginning, nothing known."""
    ours, fixed = idle_of(seconds_of(15.0, 0.05, 100))

    assert ours < fixed / 2


def two_servers(fast: float, slow: float, count: int, seed: int, slow_share: float = 0.5) -> list[float]:
    """Return durations of two servers of this median each; the slow one gets a share of the generations."""
    pairs = zip(seconds_of(fast, 0.05, count, seed), seconds_of(slow, 0.05, count, seed + 100), strict=True)
    chance = Random(seed + 200)
    return [two if chance.random() < slow_share else one for one, two in pairs]


def idle_of_runs(runs: list[list[float]], *, last: int) -> tuple[float, float]:
    """Return the average idle time of both ways of reading over several runs."""
    found = [idle_of(durations, last=last) for durations in runs]
    return sum(ours for ours, _ in found) / len(found), sum(fixed for _, fixed in found) / len(found)


def test_two_servers_are_told_apart() -> None:
    """Two modes, one 1.6 times the other: no single distribution fits, the mixture does."""
    fast, slow, chance = seconds_of(15.0, 0.05, 200), seconds_of(24.0, 0.05, 200), Random(3)

    ours, fixed = idle_of([chance.choice(pair) for pair in zip(fast, slow, strict=True)], last=100)

    assert ours < 0.8 * fixed


def test_two_servers_are_told_apart_within_a_hundred_whatever_is_drawn() -> None:
    """On average over eight draws."""
    ours, fixed = idle_of_runs([two_servers(15.0, 24.0, 150, seed) for seed in range(8)], last=100)

    assert ours < fixed


def test_two_servers_are_told_apart_after_both_have_changed() -> None:
    """The mixture is of the newest observations."""
    runs = [two_servers(15.0, 24.0, 250, seed) + two_servers(22.0, 35.0, 200, seed + 50) for seed in range(4)]

    ours, fixed = idle_of_runs(runs, last=120)

    assert ours < 0.8 * fixed


def test_a_rare_slow_server_is_not_taken_for_wide_durations() -> None:
    """Polls at the same moments would show the same as of one server whose durations vary much."""
    ours, fixed = idle_of_runs([two_servers(15.0, 24.0, 300, seed, slow_share=0.2) for seed in range(8)], last=150)

    assert ours < 0.8 * fixed


def firsts_of(model: DurationModel, durations: list[float]) -> list[float]:
    """Return when each generation is first read, as the model learns."""
    found = []
    for seconds in durations:
        found.append(model.next_read_seconds(elapsed_seconds=0.0, interval_seconds=INTERVAL))
        model.add(idle_after(model, seconds)[1])
    return found


def late_ones(firsts: list[float]) -> dict[int, float]:
    """Return the first reads that are later than the interval; until the tenth, an uncertain model tries moments."""
    return {number: at for number, at in enumerate(firsts) if number > 10 and at > INTERVAL}


def test_some_first_reads_are_later_ever_fewer_where_much_idle_time_is_left() -> None:
    """Wide durations: these reads are spread over the interval."""
    late = late_ones(firsts_of(DurationModel(USUAL), seconds_of(60.0, 0.2, 120)))

    assert list(late) == [15, 21, 28, 36, 45, 55, 66, 78, 91, 105]
    assert len(set(late.values())) >= 8


def test_a_later_run_goes_on_with_later_reads_at_other_parts() -> None:
    """It begins with the newest observations; those of an earlier run are others."""
    seconds, parts = seconds_of(60.0, 0.2, 200), set[float]()
    for begin in (0, 30, 60, 90):
        model = DurationModel(USUAL, sightings_of(seconds[begin : begin + 64]))
        late = late_ones([0.0] * 64 + firsts_of(model, seconds[begin + 64 : begin + 78]))
        assert list(late) == [66]
        parts |= set(late.values())

    assert len(parts) == 4


def test_one_first_read_is_later_however_many_generations_begin_before_the_next_success() -> None:
    """Many accounts, or generations that fail: the number of observations stands still meanwhile."""
    model = DurationModel(USUAL, sightings_of(seconds_of(60.0, 0.2, 21)))

    firsts = [first_reads(model, 1)[0] for _ in range(2)]
    model.add(Observation(50.0, 60.0))
    model.add(Observation(50.0, 60.0))
    for _ in range(5):
        model.add(Observation(60.0, 70.0))
    firsts += [first_reads(model, 1)[0] for _ in range(4)]

    assert firsts[:2] == [INTERVAL, INTERVAL]
    assert firsts[2] > INTERVAL
    assert firsts[3:] == [INTERVAL] * 3


def test_a_later_first_read_is_an_interval_after_a_slow_create() -> None:
    """Service rule 4.4 counts from the create's reply, which may have taken nearly an interval, and then from polls."""
    seen = sightings_of(seconds_of(60.0, 0.2, 40))
    for count in range(15, 40):
        for elapsed in (9.9, 30.0):
            model = DurationModel(USUAL, seen[:14])
            for each in seen[14:count]:
                model.add(each)
            moment = model.next_read_seconds(elapsed_seconds=elapsed, interval_seconds=INTERVAL)
            assert elapsed + INTERVAL <= moment < elapsed + 1.1 * INTERVAL


def test_no_first_read_is_later_where_the_best_moment_is_known() -> None:
    """Steady durations: the moment hardly moves."""
    firsts = firsts_of(DurationModel(USUAL), seconds_of(15.0, 0.03, 60))

    assert all(14.5 < at < 16.6 for at in firsts[12:])


def test_a_first_poll_is_not_later_where_many_have_ended_by_then() -> None:
    """Generations of three seconds: all have ended at the first moment that the service permits."""
    model, first = DurationModel(USUAL), list[float]()
    for seconds in seconds_of(3.0, 0.2, 40):
        idle, seen = idle_after(model, seconds)
        first.append(idle + seconds)
        model.add(seen)

    assert set(first[3:]) == {INTERVAL}


def test_drift_is_followed() -> None:
    """A mean that goes up and down by a quarter within a hundred generations."""
    steady = seconds_of(20.0, 0.05, 300)

    ours, fixed = idle_of([seconds * (1 + 0.25 * sin(number / 16)) for number, seconds in enumerate(steady)])

    assert ours < 0.9 * fixed


def test_reads_at_one_moment_lead_to_earlier_ones() -> None:
    """All had ended by 20 s, says nothing of when: another moment is tried, not the same for ever."""
    known = DurationModel(USUAL, [Observation(0.0, 20.0)] * 30)

    assert first_reads(known, 1)[0] < 18.0


def similar_at(median: float) -> tuple[DurationModel, float]:
    return DurationModel(USUAL, sightings_of(seconds_of(median, 0.05, 20), gap=2.0)), 1.0


def test_a_first_generation_is_read_by_what_similar_kinds_tell() -> None:
    """Siblings at 15 s: the first read is not at 10 s, where it would seldom find an end."""
    model = DurationModel(guess_from([similar_at(median) for median in (15.0, 14.0, 16.0, 15.0)]))

    assert 14.0 < first_reads(model, 1)[0] < 20.0


def test_similar_kinds_that_differ_tell_less() -> None:
    """The guess is as wide as they are."""
    apart, alike = guess_from([similar_at(10.0), similar_at(40.0)]), guess_from([similar_at(20.0), similar_at(20.0)])

    assert apart.spread > alike.spread
    assert apart.median_seconds == pytest.approx(20.0, rel=0.1)


def test_a_similar_clip_counts_by_its_length() -> None:
    """Eight seconds of output take twice as long as four."""
    model, _ = similar_at(20.0)

    assert guess_from([(model, 2.0)]).median_seconds == pytest.approx(40.0, rel=0.1)


def test_the_same_observations_give_the_same_moments() -> None:
    """Nothing is drawn."""
    seen = sightings_of(seconds_of(17.0, 0.1, 20))

    assert first_reads(DurationModel(USUAL, seen), 5) == first_reads(DurationModel(USUAL, seen), 5)
