"""Items that only a person can end, such as one in doubt whose upload has expired."""

from collections.abc import Callable
from itertools import count
from typing import Final

import pytest

from batchkiln.store.sql import query
from batchkiln_service import LocalService
from batchkiln_service.faults.fault_rules import Misbehaviour

from .log_silencing import silence
from .plan import Outage, Plan
from .plan_runner import Outcome, play

HOUR: Final = 3600.0
MIDNIGHT: Final = 14.5 * HOUR  # the worlds begin at half past nine
MANIFEST: Final = """
version: 1
job: pictures
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
budget: {credits_per_day: 2}
items:
  - {id: today, prompt: A red fox}
  - {id: tomorrow, prompt: An owl in ink, mode: image-to-image, inputs: [owl.png]}
"""

ONE: Final = """
version: 1
job: pictures
items:
  - {id: fox, prompt: A red fox, model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
"""


def away(fault: Misbehaviour) -> Outcome:
    """Play a world whose second create meets only this fault, until the program dies and stays away for a fortnight."""
    plan = Plan(
        manifests={"pictures.yaml": MANIFEST},
        pictures=("owl.png",),
        outages=(Outage(HOUR, 1.0),),
        prepare=_in_the_second_life(fault),
        kills=(MIDNIGHT + 60.0,),
        calm_at=MIDNIGHT + HOUR,
        rests=(13.5 * 24 * HOUR,),
    )
    with silence():
        return play(plan, tells=True)


def test_an_item_in_doubt_whose_upload_has_expired_is_ended_by_a_person() -> None:
    """The item is held, since it may have been made; after a person's decision it is made and paid once."""
    outcome = away("reset_before")

    told = "\n".join(outcome.story)
    assert outcome.violations == ()
    assert "pictures/tomorrow refused_in_doubt -> held code=asset_expired" in told
    assert "ends 1 doubts" in told
    assert outcome.generations == 2


def test_an_item_that_was_answered_each_time_needs_nobody() -> None:
    """It was refused for a while, each time in words: its upload is made again."""
    outcome = away("throttle")

    assert outcome.violations == ()
    assert "refused_in_doubt" not in "\n".join(outcome.story)
    assert outcome.generations == 2


def test_outputs_that_cannot_be_had_are_fetched_again_for_nothing() -> None:
    """After hours of error pages the run reports the storage and ends; a person has the file fetched later."""
    plan = Plan(
        manifests={"pictures.yaml": ONE},
        prepare=lambda service: (service.faults.add("html", "download", times=8), None)[1],
    )
    with silence():
        outcome = play(plan, tells=True)

    told = "\n".join(outcome.story)
    assert outcome.violations == ()
    assert "pictures/fox outputs_unusable -> held code=output_unusable" in told
    assert "has the outputs of 1 items fetched again" in told
    assert "pictures/fox files_saved -> done" in told
    assert outcome.generations == 1


def test_a_needless_doubt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated person does not end a hold without a real doubt, so the check reports it."""

    def without_counting(name: str) -> str:
        return query(name).replace("answers + :answered", "answers") if name == "count_answer" else query(name)

    monkeypatch.setattr("batchkiln.store.commit.query", without_counting)

    outcome = away("throttle")

    assert outcome.violations[0] == "item tomorrow is held, not as it should be: key_forgotten"


def _in_the_second_life(fault: Misbehaviour) -> Callable[[LocalService], None]:
    """Return what makes the service treat each create so, from its second life on."""
    lives = count(1)

    def prepare(service: LocalService) -> None:
        if next(lives) > 1:
            service.faults.add(fault, "create", times=None)

    return prepare
