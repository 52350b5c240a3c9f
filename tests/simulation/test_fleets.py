"""Several workers on one queue in virtual time: a small share; `sweep.py --part fleet` plays more."""

import pytest

from batchkiln.core.lease_types import LEASE_SECONDS

from .fleet_plan import FleetPlan, Machine, Misadventure, draw_fleet, draw_restored_fleet
from .fleets import play_fleet
from .log_silencing import silence
from .plan import Plan

TAKEOVER_SECONDS = LEASE_SECONDS + 1.0
LONGEST_GENERATION_SECONDS = 120.0  # with the download
MANIFEST = """
version: 1
job: clips
accounts: [a0, a1]
defaults: {model: alpha-2.5-lite, mode: text-to-video, parameters: {resolution: 480p, duration_seconds: 5}}
"""


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 4, 6])
def test_fleet_keeps_all_promises(seed: int) -> None:
    """Each charge is for one attempt, each minute of account and address is kept, and nothing is lost."""
    with silence():
        outcome = play_fleet(draw_fleet(seed))

    assert outcome.violations == ()
    assert outcome.counts["leases"]


@pytest.mark.long
def test_account_of_a_worker_that_stood_still_while_it_asked_for_the_time_is_read_in_time() -> None:
    """Service rule 4.4: it knew the time by half a minute only, and another worker goes on from its record."""
    with silence():
        outcome = play_fleet(draw_fleet(20261128000276))

    assert outcome.violations == ()


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 4, 7])
def test_restored_database_pays_nothing_twice(seed: int) -> None:
    """Law 2: nobody drives it before each machine's journals were compared with it."""
    with silence():
        outcome = play_fleet(draw_restored_fleet(seed))

    assert outcome.violations == ()
    assert outcome.counts["restores"] == 2


def two(*misadventures: Misadventure) -> FleetPlan:
    """Return two workers with addresses of their own, two accounts and a dozen clips."""
    items = "\n".join(f"  - {{id: i{n}, prompt: clip {n}}}" for n in range(12))
    text = MANIFEST + f"items:\n{items}\n"
    plan = Plan(accounts=("a0", "a1"), manifests={"clips.yaml": text}, service={"duration_scale": 1.0})
    machines = tuple(Machine(egress, accounts=plan.accounts) for egress in ("fra-1", "fra-2"))
    return FleetPlan(world=plan, machines=machines, misadventures=misadventures)


@pytest.mark.long
def test_accounts_of_a_killed_worker_are_driven_again_within_a_lease_and_a_second() -> None:
    """Nobody has to notice."""
    with silence():
        outcome = play_fleet(two(Misadventure(40.0, 0, "kill", seconds=200.0)))

    assert outcome.violations == ()
    assert outcome.takeovers
    assert max(outcome.takeovers) <= TAKEOVER_SECONDS


@pytest.mark.long
def test_machine_whose_journal_is_full_tries_less_and_less_often() -> None:
    """Law 1: an attempt without a line is not sent, but its create is counted at each try; another machine makes it."""
    with silence():
        outcome = play_fleet(two(Misadventure(40.0, 0, "fill journal", seconds=600.0)))

    assert outcome.violations == ()
    assert 1 <= outcome.counts["JournalNotWritable"] <= 6  # of the 10 minutes, where 40 tries would fit


@pytest.mark.long
def test_paid_work_of_a_lost_machine_does_not_wait_for_the_end_of_the_queue() -> None:
    """Results vanish: a worker that has work for weeks finishes one account's generation, and reads the other's."""
    plan = two(Misadventure(40.0, 0, "kill", seconds=6_000.0))
    plan.world.limits["requests_per_minute_per_ip"] = 8  # an address carries one account
    with silence():
        outcome = play_fleet(plan)

    assert outcome.violations == ()
    assert outcome.takeovers
    assert max(outcome.takeovers) <= TAKEOVER_SECONDS + LONGEST_GENERATION_SECONDS


@pytest.mark.long
def test_a_worker_whose_disk_is_full_gives_its_accounts_back_and_continues() -> None:
    """The other one drives them meanwhile, and no work is ended by it."""
    with silence():
        outcome = play_fleet(two(Misadventure(30.0, 0, "fill", seconds=600.0)))

    assert outcome.violations == ()
    assert outcome.counts["OutputDirNotWritable"]
