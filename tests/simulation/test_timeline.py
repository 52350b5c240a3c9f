"""A finding is reported as the smallest world that has it, with its events."""

from dataclasses import replace

from batchkiln_service.faults.fault_rules import KINDS

from .log_silencing import silence
from .plan import Outage, Plan
from .plan_runner import play
from .scenarios import FAULTS
from .shrinking import shrunken
from .standard_run import plan as standard_plan

ITEMS = "".join(f"  - {{id: i{number}, prompt: picture {number}}}\n" for number in range(16))
PLAN = Plan(
    manifests={name: f"version: 1\njob: {name}\nitems:\n{ITEMS}" for name in ("one", "two")},
    kills=(10.0, 20.0, 30.0),
    outages=(Outage(5.0, 5.0),),
    service={"faults": [{"kind": kind} for kind in ("slow", "throttle", "html")], "duration_scale": 0.3},
    cuts_power="all",
)


def breaks(plan: Plan) -> tuple[str, ...]:
    """Play a world that breaks a promise when two things come together, and names what changes with them."""
    has_item = any("{id: i11," in text for text in plan.manifests.values())
    has_fault = {"kind": "throttle"} in plan.service["faults"]  # type: ignore[operator]  # a list
    kills = len(plan.kills)
    return (f"item i{kills} was paid {kills + 2} times",) if has_item and has_fault and 20.0 in plan.kills else ()


def test_what_has_no_part_in_a_finding_is_left_out() -> None:
    """Shrinking leaves one item, one kill and one fault."""
    smallest = shrunken(PLAN, breaks)

    assert [text.count("{id:") for text in smallest.manifests.values()] == [1]
    assert (smallest.kills, smallest.outages, smallest.cuts_power) == ((20.0,), (), None)
    assert smallest.service == {"faults": [{"kind": "throttle"}], "duration_scale": 0.3}


def test_another_promise_is_another_finding() -> None:
    """A smaller world that breaks something else does not explain this finding."""

    def breaks_another(plan: Plan) -> tuple[str, ...]:
        return breaks(plan) if plan.cuts_power else ("a file is not what was paid for",)

    assert shrunken(PLAN, breaks_another).cuts_power


def test_shrinking_ends() -> None:
    """Shrinking ends after a bounded number of tries."""
    played = []

    def counted(plan: Plan) -> tuple[str, ...]:
        played.append(plan)
        return breaks(plan)

    shrunken(PLAN, counted, tries=5)

    assert len(played) == 6


def test_a_story_tells_of_both_sides() -> None:
    """The story merges the service's requests and the queue's events in order of time."""
    with silence():
        story = play(replace(standard_plan(), kills=(20.0,)), tells=True).story

    assert [line[:14] for line in story] == sorted(line[:14] for line in story)
    assert any("program" in line and "dies at a moment" in line for line in story)
    assert any("service/main" in line and "create /api/v1/images" in line for line in story)
    assert any("queue" in line and "standard/again attempt_recorded -> submitting" in line for line in story)


def test_every_misbehaviour_of_the_service_may_be_drawn() -> None:
    """The simulation draws every kind of fault that the service has."""
    assert {kind for kind, _ in FAULTS} == set(KINDS)
