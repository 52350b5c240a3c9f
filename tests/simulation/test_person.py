"""What only a person can end: an item in doubt whose upload has expired, so that its replay is refused."""

from collections.abc import Callable
from itertools import count
from typing import Final

from batchkiln.service import LocalService

from .plan import Outage, Plan
from .playing import play
from .quiet import silence

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


def test_an_item_in_doubt_whose_upload_has_expired_is_ended_by_a_person() -> None:
    """The program cannot know that it was never made, and holds it; a person looks, and it is made and paid once."""
    plan = Plan(
        manifests={"pictures.yaml": MANIFEST},
        pictures=("owl.png",),
        outages=(Outage(HOUR, 1.0),),
        prepare=_reset_creates_after_the_first(),
        kills=(MIDNIGHT + 60.0,),
        calm_at=MIDNIGHT + HOUR,
        rests=(13.5 * 24 * HOUR,),
    )

    with silence():
        outcome = play(plan, tells=True)

    told = "\n".join(outcome.story)
    assert outcome.violations == ()
    assert "pictures/tomorrow refused_in_doubt -> held code=asset_expired" in told
    assert "finds that 1 items were never made" in told
    assert outcome.generations == 2


def _reset_creates_after_the_first() -> Callable[[LocalService], None]:
    """Return what makes the service's second life drop the connection before it looks at a create."""
    lives = count(1)

    def prepare(service: LocalService) -> None:
        if next(lives) > 1:
            service.faults.add("reset_before", "create", times=None)

    return prepare
