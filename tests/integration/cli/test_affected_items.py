"""`plan` names each item that would be rejected, with its place, and its rows add up."""

from itertools import chain
from typing import Any

from integration.cli.workspace import Workspace

MANIFEST = """\
version: 1
job: foxes
budget: {credits: 3}
defaults: {model: MODEL, mode: text-to-image, parameters: {resolution: 512x512}}
items:
  - {id: paid, prompt: A fox}
  - {id: capped, prompt: A fox in snow, max_cost_credits: 1}
  - {id: last, prompt: A fox asleep}
  - {id: dear, prompt: A fox at dusk, parameters: {resolution: 2048x2048}}
"""


def named(groups: list[dict[str, Any]]) -> list[list[tuple[str, int]]]:
    return [[(item["name"], item["line"]) for item in group["named"]] for group in groups]


def test_items_that_can_never_be_paid_are_named_with_their_places(workspace: Workspace) -> None:
    """The one over its cap, the last one that the budget no longer covers, and the one that it never covers."""
    (workspace.folder / "foxes.yaml").write_text(MANIFEST.replace("MODEL", "epsilon-2"))

    plan = workspace.call("plan", "foxes.yaml", "--json")
    text = workspace.call("plan", "foxes.yaml")

    (job,) = plan.document["jobs"]
    found = sorted(chain.from_iterable(named(job["unpayable"])))
    assert found == [("capped", 7), ("dear", 9), ("last", 8)]
    assert "capped (foxes.yaml:7)" in text.out + text.err
    said = " ".join(text.out.split())
    assert "raise max_cost_credits to 2, or request less" in said
    assert f"raise budget.credits to {job['sufficient_budget']} to generate all of them" in said
    costs = {each["code"]: each["cost_credits"] for each in job["unpayable"]}
    assert job["sufficient_budget"] == 2 + 2 + costs["over_job_budget"]
    assert "  + paid  epsilon-2 text-to-image\n" in text.out
    assert "  x capped  epsilon-2 text-to-image, would be rejected (over_cap)\n" in text.out
    assert {change["item"]: change["rejected"] for change in job["changes"]} == {
        "paid": None,
        "capped": "over_cap",
        "last": "over_job_budget",
        "dear": "over_job_budget",
    }
    models = plan.document["cost"]["models"]
    assert sum(model["credits"] for model in models) == plan.document["cost"]["credits"] == 2
    assert sum(model["items"] for model in models) == 1


def test_items_that_the_service_refuses_are_named_with_their_places(workspace: Workspace) -> None:
    """Equal requests are one group, whatever their caps."""
    (workspace.folder / "foxes.yaml").write_text(MANIFEST.replace("MODEL", "epsilon2"))

    plan = workspace.call("plan", "foxes.yaml", "--json", "--no-catalogue")

    (job,) = plan.document["jobs"]
    assert named(job["refused"]) == [[("paid", 6), ("capped", 7), ("last", 8)], [("dear", 9)]]


def test_items_that_have_ended_are_not_named(workspace: Workspace) -> None:
    """What was made before is not among those that a smaller budget rejects."""
    first = MANIFEST.replace("MODEL", "epsilon-2").replace("{credits: 3}", "{credits: 2}")
    (workspace.folder / "foxes.yaml").write_text("".join(first.splitlines(keepends=True)[:6]))
    assert workspace.call("run", "foxes.yaml").exit == 0
    (workspace.folder / "foxes.yaml").write_text(first)

    plan = workspace.call("plan", "foxes.yaml", "--json")

    (job,) = plan.document["jobs"]
    assert sorted(chain.from_iterable(named(job["unpayable"]))) == [("capped", 7), ("dear", 9), ("last", 8)]
