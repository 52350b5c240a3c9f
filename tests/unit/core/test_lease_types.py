"""How many accounts an address carries, and which of them a worker takes and hands over."""

import pytest

from batchkiln.core.lease_types import Choice, Roster, Sender, accounts_carried, choose_accounts
from batchkiln.core.rate_limits import Limits


def roster(free: set[int], **senders: tuple[set[int], set[int]]) -> Roster:
    """Return workers by name: the accounts that each has keys of, and those that it drives."""
    found = tuple(Sender(name, frozenset(able), frozenset(driven)) for name, (able, driven) in senders.items())
    return Roster(found, frozenset(free))


@pytest.mark.parametrize(
    ("limits", "carried"),
    [
        (Limits(), 17),  # six polls a minute, and one request more
        (Limits(poll_interval_seconds=30.0), 40),
        (Limits(requests_per_minute_per_ip=5), 1),
    ],
)
def test_address_carries_as_many_accounts_as_its_minute_allows(limits: Limits, carried: int) -> None:
    """Service section 8: 120 requests a minute for all accounts of an address."""
    assert accounts_carried(limits) == carried


def test_lonely_worker_takes_all_that_its_address_carries() -> None:
    """What is left waits for another machine."""
    alone = roster(set(range(20)), a=(set(range(20)), set()))

    assert len(choose_accounts("a", alone, set(range(20)), at_most=17).take) == 17


def test_worker_takes_its_share() -> None:
    """Three accounts and two workers: the first takes two, and leaves one to the other."""
    both = {1, 2, 3}

    assert choose_accounts("a", roster(both, a=(both, set()), b=(both, set())), both, at_most=17).take == (1, 3)
    assert choose_accounts("b", roster({2}, a=(both, {1, 3}), b=(both, set())), both, at_most=17).take == (2,)


@pytest.mark.parametrize("count", [2, 3, 7, 10, 13])
@pytest.mark.parametrize("workers", ["ab", "abc"])
def test_workers_that_choose_at_the_same_moment_choose_different_accounts(count: int, workers: str) -> None:
    """After another worker's end, all see the same free accounts. Two may want the same one only at the very end."""
    free = set(range(count))
    fleet = roster(free, **{name: (free, set[int]()) for name in workers})

    taken = [choose_accounts(name, fleet, free, at_most=17).take for name in workers]

    assert {account_id for each in taken for account_id in each} == free
    assert sum(len(each) for each in taken) < count + len(workers)


def test_account_whose_key_a_machine_lacks_is_never_taken() -> None:
    """A driver without the key would hold somebody else's items for a person."""
    lacking = roster({1, 2}, a=({1}, set()), b=({1, 2}, set()))

    assert choose_accounts("a", lacking, {1, 2}, at_most=17).take == (1,)


def test_account_that_nobody_else_can_drive_is_taken_beyond_the_share() -> None:
    """Better two on one machine than one without a driver."""
    lacking = roster({2}, a=({1, 2}, {1}), b=({1}, set()))

    assert choose_accounts("a", lacking, {1, 2}, at_most=17).take == (2,)


@pytest.mark.parametrize(
    ("driven", "given"), [(({1, 2}, set[int]()), (2,)), (({1, 2}, {3}), ()), (({1, 2, 3}, {4}), (3,))]
)
def test_account_is_handed_over_only_to_a_worker_two_behind(
    driven: tuple[set[int], set[int]], given: tuple[int, ...]
) -> None:
    """One behind, it would only change hands, and begin by reading again."""
    everything = driven[0] | driven[1]
    both = roster(set(), a=(everything, driven[0]), b=(everything, driven[1]))

    assert choose_accounts("a", both, everything, at_most=17) == Choice(give=given)


def test_account_is_not_handed_over_to_a_machine_without_its_key() -> None:
    """No other worker could take it, and its worker would lease it again at each renewal."""
    both = roster(set(), a=({1, 2}, {1, 2}), b=(set(), set()))

    assert choose_accounts("a", both, {1, 2}, at_most=17) == Choice()


@pytest.mark.parametrize(
    ("others_able", "others_driven", "given"),
    [
        ({1, 2}, {4}, (2,)),  # it may take one more
        ({1, 2}, set[int](), (2,)),
        ({1, 2}, {4, 5}, ()),  # it is full as well
        ({1, 2, 3}, {4}, ()),  # it takes the free one itself
        (set[int](), {4}, ()),
    ],
)
def test_full_worker_hands_over_to_make_room_for_an_account_that_only_it_can_drive(
    others_able: set[int], others_driven: set[int], given: tuple[int, ...]
) -> None:
    """Account 3 would stand still for ever otherwise, whatever is paid for on it."""
    fleet = roster({3}, a=({1, 2, 3}, {1, 2}), b=(others_able | others_driven, others_driven))

    assert choose_accounts("a", fleet, {1, 2, 3, 4, 5}, at_most=2) == Choice(give=given)


def test_account_that_only_this_worker_can_drive_is_taken_before_one_that_was_handed_over() -> None:
    """Otherwise the worker would take back what it had just made room with."""
    fleet = roster({2, 3}, a=({1, 2, 3}, {1}), b=({2, 4}, {4}))

    assert choose_accounts("a", fleet, {1, 2, 3, 4}, at_most=2).take == (3,)


def test_account_with_work_under_way_is_taken_first() -> None:
    """What was sent on it is read, even if its last worker will never be back."""
    alone = roster({1, 2, 3}, a=({1, 2, 3}, set()))

    assert choose_accounts("a", alone, {1, 2, 3}, at_most=2, under_way={3}).take == (3, 1)


@pytest.mark.parametrize(
    ("under_way", "choice"),
    [
        ({3}, Choice(give=(2,))),
        ({2, 3}, Choice(give=(1,))),
        ({1, 2, 3}, Choice(wind_down=(2,))),  # it begins nothing new, and is idle after its generation
        ({1}, Choice()),  # an idle account for another one would change hands without an end
        ({1, 2}, Choice()),
    ],
)
def test_full_worker_releases_an_account_for_one_with_work_under_way(under_way: set[int], choice: Choice) -> None:
    """Nobody else can take account 3: its machine is gone, and this address carries two accounts."""
    alone = roster({3}, a=({1, 2, 3}, {1, 2}))

    assert choose_accounts("a", alone, {1, 2, 3}, at_most=2, under_way=under_way) == choice


def test_worker_without_its_address_chooses_nothing() -> None:
    """It is a standby."""
    assert choose_accounts("c", roster({1}, a=({1}, set())), {1}, at_most=17) == Choice()
