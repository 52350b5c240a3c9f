"""The program keeps its promises when it dies in the standard run: some points here, all by `crash_points.py`."""

from typing import get_args

import pytest

from .crash_points import How, broken, every_turn, pairs, plan_of, play_quietly
from .log_silencing import silence
from .plan_runner import play
from .standard_run import plan

# Every how many points that make a difference. `sweep.py --short`, a part of CI, plays five times as many.
SHARE = 160


def test_standard_run_holds_by_itself() -> None:
    """Without a death no promise is broken, and the run has hundreds of points."""
    outcome = play_quietly(())

    assert outcome.violations == ()
    assert outcome.points > 500
    assert outcome.generations == 6  # four items, one of which fails once, and one is made again


def test_same_run_passes_the_same_points() -> None:
    """A point has the same number in every run, so that a finding can be played again."""
    assert play_quietly((100,)) == play_quietly((100,))


def test_run_with_choices_holds_by_itself() -> None:
    """Its hook keeps, drops and redoes, and its points are those of one life."""
    with silence():
        outcome = play(plan_of((), "choices"), tells=True)

    told = "\n".join(outcome.story)
    assert outcome.violations == ()
    assert outcome.points > 1300
    assert all(word in told for word in ("hook_redo", "dropped by=on_saved", "kept by=on_saved", "kept by=a person"))


@pytest.mark.long
@pytest.mark.parametrize("how", get_args(How))
def test_death_at_any_point_breaks_no_promise(how: How) -> None:
    """Laws 1, 2, 3, 4, 5, 7 and 9, whatever was on the disk when it happened."""
    deaths = every_turn(how, share=SHARE, offset=SHARE // 4 * get_args(How).index(how))

    assert list(broken(deaths, how=how, processes=2)) == []


@pytest.mark.long
def test_dying_twice_breaks_no_promise() -> None:
    """A second death soon after a restart breaks no promise either."""
    assert list(broken(pairs(3, seed=3, processes=2), how="power", processes=2)) == []


@pytest.mark.long
def test_points_that_are_no_turns_make_no_difference() -> None:
    """They need not be played: a death there leads to the same events as a death at the point before."""
    turns = set(play_quietly(()).turns)
    others = [point for point in range(1, max(turns)) if point not in turns]

    for point in others[::200]:
        before = max(turn for turn in turns if turn < point)
        assert told((point,)) == told((before,))


def told(deaths: tuple[int, ...]) -> list[str]:
    """Return the story without the name of the point."""
    with silence():
        story = play(plan(deaths), tells=True).story
    return [line for line in story if " dies at " not in line]
