"""The program dies at points of the standard run and keeps its promises: a share here, all of them by the command."""

from typing import get_args

import pytest

from .crash_points import How, broken, every_point, pairs, play_quietly

SHARE = 12  # every how many points; `crash_points.py` plays all


def test_standard_run_holds_by_itself() -> None:
    """Without a death nothing is wrong; and a run is long enough to have hundreds of points."""
    outcome = play_quietly(())

    assert outcome.violations == ()
    assert outcome.points > 500
    assert outcome.generations == 4  # three items, one of which fails once


def test_same_run_passes_the_same_points() -> None:
    """A point's number means the same in every run, so that a finding can be looked at again."""
    assert play_quietly((100,)) == play_quietly((100,))


@pytest.mark.parametrize("how", get_args(How))
def test_death_at_any_point_breaks_no_promise(how: How) -> None:
    """Laws 1, 2, 3, 4, 5, 7 and 9, whatever was on the disk when it happened."""
    deaths = every_point(share=SHARE, offset=SHARE // 3 * get_args(How).index(how))

    assert list(broken(deaths, how=how, processes=2)) == []


def test_dying_twice_breaks_no_promise() -> None:
    """The first thing a second life does is no safer than any other."""
    assert list(broken(pairs(30, seed=3), how="power", processes=2)) == []
