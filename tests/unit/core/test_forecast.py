"""When jobs end under all limits (contract, section 7)."""

from datetime import UTC, datetime, timedelta

from batchkiln.core.forecast import ItemClass, JobLoad, days_ahead, finishing_times
from batchkiln.core.windows import DayUsage, Limits, ServiceDay

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2030, 1, 2, tzinfo=UTC)


def end(
    *classes: ItemClass,
    limits: Limits | None = None,
    usage: DayUsage | None = None,
    accounts: int = 1,
    credits_per_day: int | None = None,
    credits_taken: int = 0,
) -> datetime | None:
    load = JobLoad("birds", classes, credits_per_day, credits_taken)
    ends = finishing_times(
        [load],
        now=NOON,
        day=ServiceDay(),
        limits=limits or Limits(),
        usage=usage or DayUsage(),
        accounts=accounts,
    )
    return ends.get("birds")


def test_items_that_fit_into_the_day_end_after_their_durations() -> None:
    """Without a limit in the way, a job takes as long as its items one after the other."""
    assert end(ItemClass(10, 5, 30)) == NOON + timedelta(seconds=300)


def test_nothing_left_ends_now() -> None:
    """A job without items to come is over at once."""
    assert end() == NOON


def test_credits_of_a_day_push_the_rest_behind_the_reset() -> None:
    """Two thousand credits a day buy 200 items of 10: the 201st begins at midnight. Service section 8."""
    assert end(ItemClass(201, 10, 30)) == MIDNIGHT + timedelta(seconds=30)


def test_credits_used_earlier_today_are_not_spent_again() -> None:
    """What the account has used today leaves less for the job."""
    assert end(ItemClass(2, 10, 30), usage=DayUsage(credits=1990)) == MIDNIGHT + timedelta(seconds=30)


def test_many_days_are_filled_one_after_the_other() -> None:
    """A job of 1,000 items at 10 credits takes the rest of today and four more days."""
    assert end(ItemClass(1000, 10, 30)) == MIDNIGHT + timedelta(days=3, seconds=200 * 30)


def test_a_job_of_its_own_daily_budget_takes_more_days() -> None:
    """The job's budget a day binds before the account's (Law 6)."""
    assert end(ItemClass(3, 10, 30), credits_per_day=10) == MIDNIGHT + timedelta(days=1, seconds=30)


def test_what_a_job_took_of_its_day_counts() -> None:
    """A job that has spent its budget of today goes on tomorrow."""
    finished_at = end(ItemClass(1, 10, 30), credits_per_day=10, credits_taken=10)

    assert finished_at == MIDNIGHT + timedelta(seconds=30)


def test_an_item_that_does_not_fit_lets_a_smaller_one_go_first() -> None:
    """What is left of the day goes to the smaller item; the larger one is first after the reset."""
    assert end(ItemClass(1, 100, 30), ItemClass(1, 10, 30), usage=DayUsage(credits=1950)) == MIDNIGHT + timedelta(
        seconds=30
    )


def test_creates_of_a_day_bind() -> None:
    """Cheap items are bounded by the requests of a day. Service section 8."""
    assert end(ItemClass(3, 0, 30), limits=Limits(creates_per_day=2)) == MIDNIGHT + timedelta(seconds=30)


def test_reads_of_a_day_bind() -> None:
    """Polling a long generation uses up the reads of a day. Service section 8."""
    assert end(ItemClass(2, 0, 100), limits=Limits(reads_per_day=15)) == MIDNIGHT + timedelta(seconds=100)


def test_the_minute_window_bounds_fast_items() -> None:
    """Ten creates a minute let no more than one begin every six seconds."""
    assert end(ItemClass(100, 0, 1)) == NOON + timedelta(seconds=600)


def test_a_day_that_is_over_in_time_is_not_overfilled() -> None:
    """Items that take longer than what is left of the day go on after it without a gap."""
    many = Limits(creates_per_day=10**6)

    assert end(ItemClass(2000, 0, 60), limits=many) == NOON + timedelta(seconds=2000 * 60)


def test_two_accounts_are_twice_as_fast() -> None:
    """A job spread over accounts uses both their slots and both their credits."""
    assert end(ItemClass(400, 10, 30), accounts=2) == NOON + timedelta(seconds=400 * 15)


def test_an_item_that_can_never_be_paid_is_no_obstacle() -> None:
    """What exceeds a whole day's credits is rejected at once, and the rest goes on."""
    assert end(ItemClass(1, 5000, 30), ItemClass(1, 10, 30)) == NOON + timedelta(seconds=30)


def test_without_any_price_there_is_no_forecast() -> None:
    """Nothing is foretold while no item has a quote."""
    assert end(ItemClass(5, None, 30)) is None


def test_items_without_a_price_count_with_the_mean_of_the_others() -> None:
    """A recipe that is not quoted yet is taken to cost as much as the rest."""
    assert end(ItemClass(100, 10, 30), ItemClass(101, None, 30)) == MIDNIGHT + timedelta(seconds=30)


def test_what_takes_longer_than_fifty_years_has_no_forecast() -> None:
    """The look ahead is bounded, so that a hopeless job costs no time."""
    assert end(ItemClass(10**9, 2000, 30)) is None


def test_a_job_waits_for_those_before_it() -> None:
    """Jobs of one account go one after the other."""
    loads = [JobLoad("first", (ItemClass(2, 0, 30),)), JobLoad("second", (ItemClass(1, 0, 30),))]

    ends = finishing_times(loads, now=NOON, day=ServiceDay(), limits=Limits(), usage=DayUsage())

    assert ends == {"first": NOON + timedelta(seconds=60), "second": NOON + timedelta(seconds=90)}


def test_the_days_ahead_are_those_that_the_end_is_reckoned_by() -> None:
    """Their items and credits add up to the job's, and the last of them is the day of its end."""
    load = JobLoad("birds", (ItemClass(1000, 10, 30),))

    days = days_ahead([load], now=NOON, day=ServiceDay(), limits=Limits(), usage=DayUsage(credits=500), most=50)

    assert [day.credits for day in days] == [1500, 2000, 2000, 2000, 2000, 500]
    assert sum(day.items for day in days) == 1000
    assert days[0].starts_at == NOON.replace(hour=0)
    assert days[-1].starts_at == MIDNIGHT + timedelta(days=4)


def test_no_more_days_are_given_than_asked_for() -> None:
    """A job of years is a page of days."""
    load = JobLoad("birds", (ItemClass(1_000_000, 10, 30),))

    assert len(days_ahead([load], now=NOON, day=ServiceDay(), limits=Limits(), usage=DayUsage(), most=7)) == 7
