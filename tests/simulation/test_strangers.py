"""Services with unknown dialects: a dozen here, thousands by `strangers.py`."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from batchkiln_service.dialects import TRAITS, Dialect

from . import strangers
from .log_silencing import silence
from .plan_runner import seeded_secrets
from .simulated_world import World
from .strange_worlds import CREATES_MAX, Books, Verdict, draw_plan
from .strangers import Tally, Way, meet, shrunken

SEEDS = (11, 42, 137, 256, 512, 2001)  # the sweep draws others anew
WAY = Way()


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Keep logs and finalisers of killed processes out of the test's output."""
    with silence():
        yield


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_no_dialect_is_paid_twice_or_has_its_results_lost(seed: int) -> None:
    """Whatever reply is not understood, each paid result is saved or still to come. Laws 2, 3 and 9."""
    verdict = meet(seed)

    assert (verdict.double_charges, verdict.lost_results, verdict.credits_beyond) == (0, 0, 0)
    assert verdict.creates_in_vain <= CREATES_MAX


def test_account_that_runs_out_of_credits_completes_once_more_are_bought() -> None:
    """An item refused for lack of credits is not lost, and no item is paid twice. Laws 2 and 9."""
    purses = ((seed, draw_plan(seed)) for seed in range(100))
    seed = next(seed for seed, plan in purses if "accounts" in plan.service and "faults" in plan.service)

    assert meet(seed, Way(without=tuple(TRAITS))).wrong == ()


def test_plain_dialect_completes() -> None:
    """A service without strange traits completes the whole job under the same faults."""
    verdicts = [meet(seed, Way(without=tuple(TRAITS))) for seed in SEEDS[:3]]

    assert [verdict.wrong for verdict in verdicts] == [(), (), ()]


def test_same_seed_is_the_same_finding() -> None:
    """A seed can be played again with the same result."""
    first, second = (meet(SEEDS[0]) for _ in range(2))

    assert first == second


def test_finding_is_shrunk_to_the_traits_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """If two traits together cause a failure, shrinking keeps exactly these two."""
    dialect = Dialect.draw(SEEDS[0])
    guilty = {dialect.unlike_plain[2], dialect.unlike_plain[-1]}

    def met(seed: int, way: Way = WAY) -> Verdict:
        is_wrong = guilty.isdisjoint(way.without)
        return Verdict(seed, is_complete=not is_wrong, reasons=("lost",) if is_wrong else ())

    monkeypatch.setattr(strangers, "meet", met)

    assert set(shrunken(SEEDS[0])) == {f"{trait}={dialect[trait]}" for trait in guilty}


def test_missing_second_output_is_a_lost_result(tmp_path: Path) -> None:
    """The check counts an item with one of its two files as lost."""
    seed = next(seed for seed in range(1000) if Dialect.draw(seed)["outputs"] == "two")
    plain = tuple(trait for trait in TRAITS if trait != "outputs")
    with seeded_secrets(seed):
        World(tmp_path, draw_plan(seed, without=plain, is_fair=True)).play()
    whole = Books(tmp_path, seed, plain).verdict([])
    with closing(sqlite3.connect(tmp_path / "program" / "queue.db")) as queue, queue:
        queue.execute("DELETE FROM output WHERE id = (SELECT max(id) FROM output WHERE number = 2)")
    halved = Books(tmp_path, seed, plain).verdict([])

    assert (whole.lost_results, halved.lost_results) == (0, 1)


def test_figures_are_added_up() -> None:
    """The command's figures are the sums of its verdicts."""
    tally = Tally()
    for seed in SEEDS[:2]:
        tally.add(meet(seed))

    assert tally.count == 2
    assert tally.told()[0].startswith(f"2 dialects, {tally.complete} complete without help")
    assert tally.is_money_safe == (not tally.broken)
