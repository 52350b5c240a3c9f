"""The standard run: a few items with an upload, quotes, a lost reply, a verified failure, downloads, and a chain.

Then a person makes one item again, and uses its first version.
"""

from collections.abc import Sequence
from typing import Final

from batchkiln_service import LocalService

from .object_points import PLACE_OF_OBJECTS
from .plan import HookBounds, Intervention, Plan
from .power_cuts import Cut

MANIFEST: Final = """
version: 1
job: standard
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items:
  - {id: picture, prompt: A red fox}
  - {id: changed, prompt: An owl in ink, mode: image-to-image, inputs: [owl.png]}
  - {id: again, prompt: "A heron [fail-once]"}
  - {id: made, prompt: The fox in ink, mode: image-to-image, inputs: [{item: picture}]}
"""

OBJECTS: Final = f"output: {{dir: '{PLACE_OF_OBJECTS}', sidecar: json}}\n"


def plan(
    deaths: Sequence[int] = (),
    *,
    cuts_power: Cut | None = None,
    counts_statements: bool = False,
    cut_seed: int = 0,
    has_objects: bool = False,
) -> Plan:
    """Return the standard run with its deaths; with `has_objects`, its outputs go to a URL."""
    return Plan(
        has_objects=has_objects,
        cut_seed=cut_seed,
        counts_statements=counts_statements,
        manifests={"standard.yaml": MANIFEST + OBJECTS if has_objects else MANIFEST},
        pictures=("owl.png",),
        deaths=tuple(deaths),
        cuts_power=cuts_power,
        made_again=("standard", "picture"),
        prepare=_lose_a_reply,
    )


CHOICES: Final = """
version: 1
job: choices
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items:
  - {id: owl, prompt: An owl, variants: 2, choose: 1}
  - {id: fox, prompt: A fox, review: true}
  - {id: ink, prompt: The owl in ink, mode: image-to-image, inputs: [{item: owl}]}
  - {id: snow, prompt: The fox in snow, mode: image-to-image, inputs: [{item: fox}]}
"""
CHOICES_SEED: Final = 3
"""With it, the hook keeps, drops and redoes, and all of it ends in one life."""

REVIEWS: Final = (12.0, 23.0, 34.0, 45.0, 56.0, 67.0)


def choices(
    deaths: Sequence[int] = (), *, cuts_power: Cut | None = None, counts_statements: bool = False, cut_seed: int = 0
) -> Plan:
    """Return a run with a group, reviews while it goes on, and a hook that keeps, drops and redoes, with its deaths."""
    return Plan(
        seed=CHOICES_SEED,
        cut_seed=cut_seed,
        counts_statements=counts_statements,
        manifests={"choices.yaml": CHOICES},
        deaths=tuple(deaths),
        cuts_power=cuts_power,
        hook=HookBounds(redos=1, redo_credits=4),
        interventions=tuple(Intervention(moment, "review") for moment in REVIEWS),
    )


def _lose_a_reply(service: LocalService) -> None:
    service.faults.add("reply_lost", "create", times=1)
