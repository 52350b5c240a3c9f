"""Wrong prices, days and times in replies leave the queue in agreement with the service's books."""

from typing import Final

import pytest

from .log_silencing import silence
from .plan import Plan
from .plan_runner import play

MANIFEST: Final = """
version: 1
job: pictures
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items:
  - {id: first, prompt: A red fox}
  - {id: second, prompt: A heron in reeds}
  - {id: third, prompt: An owl in ink}
  - {id: fourth, prompt: A hare at dusk}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "wrong_cost", "endpoint": "any"},
        {"kind": "wrong_creation", "endpoint": "create", "times": 2},  # what is struck excuses a refusal of its own
        {"kind": "wrong_creation", "endpoint": "create", "times": 2, "seconds": 50_400},
        {"kind": "wrong_date", "endpoint": "any", "every": 2},
        {"kind": "wrong_date", "endpoint": "any", "every": 3, "seconds": 90_000},
    ],
    ids=["a cost of zero", "a month ago", "fourteen hours ago", "a year ahead", "a day ahead"],
)
def test_no_single_reply_is_believed(fault: dict[str, object]) -> None:
    """Laws 5 and 6: one wrong reply does not raise the day's limit of two pictures."""
    plan = Plan(
        manifests={"pictures.yaml": MANIFEST},
        limits={"credits_per_day": 4},
        service={"faults": [{"times": None} | fault]},
        ends_by=4 * 86_400.0,
    )
    with silence():
        outcome = play(plan)

    assert outcome.violations == ()
    assert outcome.generations == 4
    assert outcome.account_days >= 2
