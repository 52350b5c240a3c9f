"""The range of a forecast: it holds the end nine times of ten, and is no wider than it has to be."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil, log, sqrt
from random import Random
from statistics import median

import pytest

from batchkiln.core.durations import Durations, Expected
from batchkiln.core.forecast import EndRange, ItemClass, JobLoad, forecast
from batchkiln.core.polling import Kind
from batchkiln.core.rate_limits import DayUsage, Limits, ServiceDay

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2030, 1, 2, tzinfo=UTC)
IMAGE = Kind("image", is_video=False, model="sigma")
LARGER = Kind("larger", is_video=False, model="sigma")
USUAL = 25.0
POLL = 10.0
ITEMS = 120
RUNS = 100

Law = Callable[[Random], float]


def end_range(
    *classes: ItemClass, usage: DayUsage | None = None, accounts: int = 1, creates_per_minute: int = 10
) -> EndRange:
    told = forecast(
        [JobLoad("birds", classes)],
        now=NOON,
        day=ServiceDay(),
        limits=Limits(creates_per_minute=creates_per_minute, creates_per_day=10**6, reads_per_day=10**6),
        usage=usage or DayUsage(),
        accounts=accounts,
        has_range=True,
    )
    assert told.ranges["birds"].earliest_at <= told.ends["birds"] <= told.ranges["birds"].latest_at
    return told.ranges["birds"]


def log_normal(chance: Random, *, mean: float, cv: float) -> float:
    """Draw a duration as it is seen by a read every ten seconds."""
    deviation = sqrt(log(1 + cv * cv))
    return ceil(chance.lognormvariate(log(mean) - deviation**2 / 2, deviation) / POLL) * POLL


def two_servers(chance: Random) -> float:
    return log_normal(chance, mean=chance.choice((25.0, 60.0)), cv=0.1)


@pytest.mark.parametrize(
    ("law", "widest"),
    [
        (partial(log_normal, mean=45.0, cv=0.05), 0.1),
        (partial(log_normal, mean=45.0, cv=0.3), 0.4),
        (partial(log_normal, mean=45.0, cv=0.7), 0.8),
        (two_servers, 0.5),
    ],
    ids=["steady", "spread", "wide", "two servers"],
)
def test_the_end_is_in_the_range_nine_times_of_ten(law: Law, widest: float) -> None:
    """A tenth, a half and nine tenths of the way, with fixed seeds; half of the ranges are narrower than `widest`."""
    held, widths = list[bool](), list[float]()
    for seed in range(RUNS):
        chance = Random(seed)
        seconds = [law(chance) for _ in range(ITEMS)]
        for done in (ITEMS // 10, ITEMS // 2, ITEMS * 9 // 10):
            each = Durations((IMAGE, one) for one in seconds[:done]).expected(IMAGE, USUAL)
            found = end_range(ItemClass(ITEMS - done, 0, each))
            left = sum(seconds[done:])
            held.append(found.earliest_at <= NOON + timedelta(seconds=left) <= found.latest_at)
            widths.append((found.latest_at - found.earliest_at).total_seconds() / left)

    assert sum(held) >= 0.9 * len(held)
    assert median(widths) < widest


def test_nothing_seen_gives_a_wide_range() -> None:
    """A service may be several times as fast or slow as the usual one."""
    found = end_range(ItemClass(60, 0, Durations().expected(IMAGE, USUAL)))

    assert found.earliest_at < NOON + timedelta(seconds=60 * USUAL / 2)
    assert found.latest_at > NOON + timedelta(seconds=60 * USUAL * 2)


def test_a_reset_is_not_uncertain() -> None:
    """A day's credits buy 200 items of 10: the last one begins at midnight on any course. Service section 8."""
    found = end_range(ItemClass(201, 10, Expected(30, 15, error=3)))

    assert MIDNIGHT < found.earliest_at < MIDNIGHT + timedelta(seconds=30)
    assert MIDNIGHT + timedelta(seconds=30) < found.latest_at < MIDNIGHT + timedelta(seconds=90)


def test_a_range_may_cross_midnight() -> None:
    """Twelve hours of work left at noon end today or tomorrow."""
    found = end_range(ItemClass(1440, 0, Expected(30, 15, error=2)))

    assert found.earliest_at < MIDNIGHT - timedelta(hours=1)
    assert found.latest_at > MIDNIGHT + timedelta(hours=1)


@pytest.mark.parametrize("accounts", [1, 2])
def test_no_course_is_faster_than_the_creates_per_minute(accounts: int) -> None:
    """Three a minute let an account start 500 items in 10,000 seconds at best. Service section 8."""
    unseen = ItemClass(500, 0, Durations().expected(IMAGE, USUAL))
    found = end_range(unseen, accounts=accounts, creates_per_minute=3)

    assert found.earliest_at >= NOON + timedelta(seconds=500 * 60 / 3 / accounts)


def test_a_slow_day_leaves_items_for_the_next_one() -> None:
    """What does not begin before midnight has credits of its own on the next day, and needs no other one."""
    slow = end_range(ItemClass(200, 10, Expected(200, 100, error=40)))

    assert slow.latest_at - MIDNIGHT < timedelta(hours=8)


def test_what_is_known_exactly_has_no_range() -> None:
    """Without any uncertainty, both ends of the range are the estimate."""
    assert end_range(ItemClass(10, 0, Expected(30))) == EndRange(
        NOON + timedelta(seconds=300), NOON + timedelta(seconds=300)
    )


@pytest.mark.parametrize(("age", "earliest", "latest"), [(1, 590, 610), (590, 3, 20), (650, 0, 5), (43_200, 0, 5)])
def test_an_item_under_way_takes_the_rest_of_its_time(age: float, earliest: float, latest: float) -> None:
    """Of an item of 600 s, give or take three, ten are left after 590; an overdue one is about to end."""
    began_at = NOON - timedelta(seconds=age)
    found = end_range(ItemClass(1, 0, Expected(600, 3, 0.5), is_under_way=True, began_at=began_at))

    assert NOON + timedelta(seconds=earliest) < found.earliest_at < found.latest_at < NOON + timedelta(seconds=latest)


def test_an_item_that_begins_now_takes_its_whole_time() -> None:
    """Nothing is left of an exact duration that is over."""
    each = Expected(25, 8, 20)

    assert each.after(0).seconds == 25
    assert (Expected(25).after(10), Expected(25).after(30)) == (Expected(15), Expected(0))


def test_the_averages_of_two_kinds_are_wrong_independently() -> None:
    """One kind may be slower than expected while the other is faster; of one kind, all items are."""
    one = end_range(*[ItemClass(50, cost, Expected(30, error=3), kind="a") for cost in (0, 1)])
    two = end_range(*[ItemClass(50, cost, Expected(30, error=3), kind=f"{cost}") for cost in (0, 1)])

    assert two.latest_at - two.earliest_at < 0.75 * (one.latest_at - one.earliest_at)


def test_the_last_items_of_several_accounts_do_not_share_the_others() -> None:
    """Three items on eight accounts take as long as one of them."""
    found = end_range(ItemClass(3, 0, Expected(80, 8)), accounts=8)

    assert NOON + timedelta(seconds=60) < found.earliest_at < found.latest_at < NOON + timedelta(seconds=200)


def test_a_change_of_pace_makes_older_durations_useless() -> None:
    """What the service did before it became twice as fast says nothing about today."""
    each = expected([*[40.0, 41.0] * 50, *[20.0, 21.0] * 10])

    assert each.seconds == pytest.approx(20.5, rel=0.02)


@pytest.mark.parametrize("at", [0, 20, 40])
def test_time_when_nobody_looked_is_no_duration(at: int) -> None:
    """The machine slept for a night while an item was under way: its end was seen the next morning."""
    seen = [20.0 + number % 3 for number in range(40)]

    assert expected([*seen[:at], 43_200.0, *seen[at:]]) == expected(seen)


def test_a_rare_long_duration_is_not_forgotten_when_the_poll_times_move() -> None:
    """Ends are seen at the polls: eight that are equal, and half a second from those before, are no other pace."""
    seen = [*[16.0, 26.0, *[16.5] * 14] * 2, *[16.0] * 8]

    assert expected(seen).seconds == pytest.approx(sum(seen) / len(seen), rel=0.01)


def test_a_guess_that_is_far_off_is_forgotten() -> None:
    """After 40 durations of ten minutes, the next one is expected to take as long, whatever is usual elsewhere."""
    assert expected([600.0 + number % 7 - 3 for number in range(40)]).seconds == pytest.approx(600, rel=0.01)


def test_a_service_that_becomes_much_slower_is_believed() -> None:
    """One duration of twelve times the others may be an outage; ten in a row are not."""
    assert expected([*[20.0, 21.0] * 50, *[240.0, 250.0] * 5]).seconds > 150


def test_a_similar_kind_tells_more_than_the_usual_duration() -> None:
    """The other kinds of a model are likely to take about as long."""
    seen = Durations((LARGER, 60.0 + number % 3) for number in range(20))
    known = seen.expected(IMAGE, USUAL)

    assert known.seconds == pytest.approx(61, rel=0.02)
    assert known.error < Durations().expected(IMAGE, USUAL).error
    assert seen.expected(Kind("image", is_video=False, model="tau"), USUAL).seconds == USUAL


def test_what_is_known_of_a_kind_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live display asks up to four times a second for every class; kinds of other models are not looked at."""
    seen = Durations((Kind(f"{number}", is_video=False, model=f"{number % 40}"), 20.0) for number in range(400))
    compared = list[Kind]()

    def relative_length(_: Kind, other: Kind) -> float:
        compared.append(other)
        return 1.0

    monkeypatch.setattr(Kind, "relative_length", relative_length)
    kind = Kind("0", is_video=False, model="0")

    assert [seen.expected(kind, USUAL).seconds for _ in range(10)] == [pytest.approx(20, rel=0.1)] * 10
    assert len(compared) == 9


def test_a_service_that_answers_at_once_is_no_special_case() -> None:
    """A local service may take no time at all."""
    assert expected([0.0] * 20).seconds < 0.01


def expected(seen: Sequence[float]) -> Expected:
    return Durations((IMAGE, each) for each in seen).expected(IMAGE, USUAL)
