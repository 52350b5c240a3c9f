"""When jobs end under all limits (contract, section 7)."""

from datetime import UTC, datetime, timedelta
from typing import Any

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.durations import Expected
from batchkiln.core.forecast import CalendarDay, Forecast, ItemClass, JobLoad, Unpayable, Unpriced, forecast
from batchkiln.core.rate_limits import DayUsage, Limits, ServiceDay

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2030, 1, 2, tzinfo=UTC)


def foretell(
    *classes: ItemClass,
    limits: Limits | None = None,
    usage: DayUsage | None = None,
    accounts: int = 1,
    credits_per_day: int | None = None,
    credits_taken: int = 0,
    credits_left: int | None = None,
) -> Forecast:
    load = JobLoad("birds", classes, credits_per_day, credits_taken, credits_left)
    return forecast(
        [load],
        now=NOON,
        day=ServiceDay(),
        limits=limits or Limits(),
        usage=usage or DayUsage(),
        accounts=accounts,
    )


def end(*classes: ItemClass, **settings: Any) -> datetime | None:  # noqa: ANN401  those of `foretell`
    return foretell(*classes, **settings).ends.get("birds")


def test_items_that_fit_into_the_day_end_after_their_durations() -> None:
    """Without a limit in the way, a job takes as long as its items one after the other."""
    assert end(ItemClass(10, 5, Expected(30))) == NOON + timedelta(seconds=300)


def test_nothing_left_ends_now() -> None:
    """A job without items to come is over at once."""
    assert end() == NOON


def test_credits_of_a_day_push_the_rest_behind_the_reset() -> None:
    """Two thousand credits a day buy 200 items of 10: the 201st begins at midnight. Service section 8."""
    assert end(ItemClass(201, 10, Expected(30))) == MIDNIGHT + timedelta(seconds=30)


def test_credits_used_earlier_today_are_not_spent_again() -> None:
    """What the account has used today leaves less for the job."""
    assert end(ItemClass(2, 10, Expected(30)), usage=DayUsage(credits=1990)) == MIDNIGHT + timedelta(seconds=30)


def test_many_days_are_filled_one_after_the_other() -> None:
    """A job of 1,000 items at 10 credits takes the rest of today and four more days."""
    assert end(ItemClass(1000, 10, Expected(30))) == MIDNIGHT + timedelta(days=3, seconds=200 * 30)


def test_a_job_of_its_own_daily_budget_takes_more_days() -> None:
    """The job's budget a day binds before the account's (Law 6)."""
    assert end(ItemClass(3, 10, Expected(30)), credits_per_day=10) == MIDNIGHT + timedelta(days=1, seconds=30)


def test_what_a_job_took_of_its_day_counts() -> None:
    """A job that has spent its budget of today goes on tomorrow."""
    finished_at = end(ItemClass(1, 10, Expected(30)), credits_per_day=10, credits_taken=10)

    assert finished_at == MIDNIGHT + timedelta(seconds=30)


def test_an_item_that_does_not_fit_lets_a_smaller_one_go_first() -> None:
    """What is left of the day goes to the smaller item; the larger one is first after the reset."""
    assert end(
        ItemClass(1, 100, Expected(30)), ItemClass(1, 10, Expected(30)), usage=DayUsage(credits=1950)
    ) == MIDNIGHT + timedelta(seconds=30)


def test_creates_of_a_day_bind() -> None:
    """Cheap items are bounded by the requests of a day. Service section 8."""
    assert end(ItemClass(3, 0, Expected(30)), limits=Limits(creates_per_day=2)) == MIDNIGHT + timedelta(seconds=30)


def test_reads_of_a_day_bind() -> None:
    """Polling a long generation uses up the reads of a day. Service section 8."""
    assert end(ItemClass(2, 0, Expected(100)), limits=Limits(reads_per_day=15)) == MIDNIGHT + timedelta(seconds=100)


def test_the_minute_window_bounds_fast_items() -> None:
    """Ten creates a minute let no more than one begin every six seconds."""
    assert end(ItemClass(100, 0, Expected(1))) == NOON + timedelta(seconds=600)


def test_a_day_that_is_over_in_time_is_not_overfilled() -> None:
    """Items that take longer than what is left of the day go on after it without a gap."""
    many = Limits(creates_per_day=10**6)

    assert end(ItemClass(2000, 0, Expected(60)), limits=many) == NOON + timedelta(seconds=2000 * 60)


def test_two_accounts_are_twice_as_fast() -> None:
    """A job spread over accounts uses both their slots and both their credits."""
    assert end(ItemClass(400, 10, Expected(30)), accounts=2) == NOON + timedelta(seconds=400 * 15)


def test_an_item_that_can_never_be_paid_is_no_obstacle() -> None:
    """An item above a whole day's credits is rejected at once, and the others continue."""
    assert end(ItemClass(1, 5000, Expected(30)), ItemClass(1, 10, Expected(30))) == NOON + timedelta(seconds=30)


def test_without_any_price_only_the_earliest_end_is_known() -> None:
    """Items without a quote take their time; what they cost, and so the number of days, is not known."""
    told = foretell(ItemClass(5, None, Expected(30), model="omega"))

    assert told.ends == {}
    assert told.not_before == {"birds": NOON + timedelta(seconds=150)}
    assert told.unpriced == (Unpriced("birds", "omega", 5),)
    assert told.days == ()


def test_a_price_that_cannot_fill_the_day_delays_nothing() -> None:
    """A cap bounds what is paid, so five items of at most 20 credits end today at any price."""
    assert end(ItemClass(5, None, Expected(30), cap=20)) == NOON + timedelta(seconds=150)


def test_the_jobs_budget_bounds_unknown_prices() -> None:
    """A job never spends more than its budget, however many of its items have no price."""
    assert end(ItemClass(50, None, Expected(30)), credits_left=100) == NOON + timedelta(seconds=1500)


def test_unknown_prices_may_fill_a_jobs_day() -> None:
    """Six items of at most 20 credits may not fit into 100 credits a day; five do."""
    assert end(ItemClass(5, None, Expected(30), cap=20), credits_per_day=100) == NOON + timedelta(seconds=150)
    assert end(ItemClass(6, None, Expected(30), cap=20), credits_per_day=100) is None


def test_items_without_a_price_are_not_taken_to_cost_what_others_cost() -> None:
    """Another model's price says nothing: the days hold what is priced, and the job has only an earliest end."""
    told = foretell(ItemClass(100, 10, Expected(30)), ItemClass(101, None, Expected(30)))

    assert told.ends == {}
    assert told.not_before == {"birds": NOON + timedelta(seconds=201 * 30)}
    assert [(day.items, day.credits) for day in told.days] == [(100, 1000)]


def _three_jobs(unpriced: ItemClass, *, has_range: bool = False) -> Forecast:
    priced = (ItemClass(1, 10, Expected(30, 5, 5)),)
    loads = [JobLoad("first", priced), JobLoad("unpriced", (unpriced,)), JobLoad("last", priced)]
    return forecast(loads, now=NOON, day=ServiceDay(), limits=Limits(), usage=DayUsage(), has_range=has_range)


def test_a_job_behind_an_unknown_price_keeps_its_earliest_end() -> None:
    """The price may use up the day's credits, so the job may end later; the job before it has its end."""
    told = _three_jobs(ItemClass(1, None, Expected(30)))

    assert told.ends == {"first": NOON + timedelta(seconds=30)}
    assert told.not_before == {"unpriced": NOON + timedelta(seconds=60), "last": NOON + timedelta(seconds=90)}


def test_a_job_behind_a_bounded_price_has_its_end() -> None:
    """Whatever the capped item costs, today's credits cover the job behind it."""
    assert _three_jobs(ItemClass(1, None, Expected(30), cap=50)).ends["last"] == NOON + timedelta(seconds=90)


def test_an_earliest_end_is_that_of_the_fast_course() -> None:
    """With ranges, a job has either an end with its range, or the earliest end of nine out of ten."""
    told = _three_jobs(ItemClass(1, None, Expected(30)), has_range=True)

    assert set(told.ends) == set(told.ranges) == {"first"}
    assert set(told.not_before) == {"unpriced", "last"}
    assert told.not_before["last"] < NOON + timedelta(seconds=90)


def test_what_takes_longer_than_fifty_years_has_no_forecast() -> None:
    """The look ahead is bounded, so that a hopeless job costs no time."""
    assert end(ItemClass(10**9, 2000, Expected(30))) is None


def test_a_job_waits_for_those_before_it() -> None:
    """Jobs of one account go one after the other."""
    loads = [JobLoad("first", (ItemClass(2, 0, Expected(30)),)), JobLoad("second", (ItemClass(1, 0, Expected(30)),))]

    ends = forecast(loads, now=NOON, day=ServiceDay(), limits=Limits(), usage=DayUsage()).ends

    assert ends == {"first": NOON + timedelta(seconds=60), "second": NOON + timedelta(seconds=90)}


def test_the_calendar_shows_items_credits_and_slot_time_of_each_day() -> None:
    """Two thousand credits a day: 200 items of 10 today, the other one after the reset."""
    today, tomorrow = foretell(ItemClass(201, 10, Expected(30))).days

    assert today == CalendarDay(datetime(2030, 1, 1, tzinfo=UTC), 200, 2000, timedelta(seconds=200 * 30))
    assert tomorrow == CalendarDay(MIDNIGHT, 1, 10, timedelta(seconds=30))


def test_a_day_holds_no_more_slot_time_than_it_has() -> None:
    """An item that goes on after the reset takes its time of both days."""
    minute = timedelta(minutes=1)
    days = foretell(ItemClass(2, 0, Expected(12 * 3600 + 60))).days

    assert [(day.items, day.busy) for day in days] == [(1, timedelta(hours=12)), (1, timedelta(hours=12) + 2 * minute)]


def test_two_accounts_have_twice_the_slot_time() -> None:
    """Each of two accounts works on its own item."""
    (today,) = foretell(ItemClass(2, 10, Expected(30)), accounts=2).days

    assert today.busy == timedelta(seconds=60)


def test_a_day_that_is_spent_is_not_in_the_calendar() -> None:
    """If nothing can begin today any more, the calendar begins with the next day."""
    days = foretell(ItemClass(1, 10, Expected(30)), usage=DayUsage(credits=2000)).days

    assert [day.starts_at for day in days] == [MIDNIGHT]


def test_what_is_under_way_takes_time_and_no_credits() -> None:
    """It is already paid, and does not count in the coming days."""
    told = foretell(ItemClass(1, 10, Expected(30), is_under_way=True), usage=DayUsage(credits=2000, creates=1000))

    assert told.ends["birds"] == NOON + timedelta(seconds=30)
    assert [(day.items, day.credits) for day in told.days] == [(0, 0)]


def test_a_cap_below_the_quote_is_reported() -> None:
    """Such items are rejected at once, and take no time (contract, section 7)."""
    told = foretell(ItemClass(3, 12, Expected(30), cap=10))

    assert told.unpayable == (Unpayable("birds", BudgetLimit.OVER_CAP, 3, 12, 10),)
    assert told.ends["birds"] == NOON


def test_a_price_above_a_daily_budget_is_reported() -> None:
    """The account's day and the job's own day both bound a single item."""
    over_day = foretell(ItemClass(1, 2001, Expected(30))).unpayable
    over_job_day = foretell(ItemClass(1, 12, Expected(30)), credits_per_day=10).unpayable

    assert over_day == (Unpayable("birds", BudgetLimit.OVER_DAY, 1, 2001, 2000),)
    assert over_job_day == (Unpayable("birds", BudgetLimit.OVER_JOB_DAY, 1, 12, 10),)


def test_what_the_jobs_budget_no_longer_covers_is_reported() -> None:
    """The first items use the budget up; the others are rejected (Law 6)."""
    told = foretell(ItemClass(5, 10, Expected(30)), credits_left=25)

    assert told.unpayable == (Unpayable("birds", BudgetLimit.OVER_JOB_BUDGET, 3, 10, 5),)
    assert [(day.items, day.credits) for day in told.days] == [(2, 20)]


def test_an_unknown_price_is_no_reason_to_reject() -> None:
    """An item without a quote may still cost less than its cap."""
    told = foretell(ItemClass(1, 100, Expected(30)), ItemClass(1, None, Expected(30), cap=10))

    assert told.unpayable == ()
    assert sum(day.items for day in told.days) == 1


def test_a_job_whose_items_are_all_rejected_takes_no_time_on_several_accounts() -> None:
    """Its budget is spent, so nothing of it is sent."""
    assert end(ItemClass(5, 10, Expected(25)), credits_left=0, accounts=3) == NOON
