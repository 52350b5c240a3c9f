"""A still and the clip that is made from it, in one manifest, against the local service."""

import pytest
from PIL import Image

from integration.cli.workspace import Workspace

MANIFEST = """\
version: 1
job: owls
defaults:
  parameters: {resolution: 720p, aspect_ratio: "16:9"}
items:
  - id: owl-clip
    model: alpha-2.5-lite
    mode: image-to-video
    prompt: The owl turns its head
    inputs: [{item: owl-still}]
    parameters: {duration_seconds: 5, image_mode: first-frame}
  - id: owl-still
    model: epsilon-2
    mode: text-to-image
    prompt: An owl on a branch
    parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}
"""


@pytest.fixture
def manifest(workspace: Workspace) -> str:
    (workspace.folder / "owls.yaml").write_text(MANIFEST, "utf-8")
    return "owls.yaml"


def items(workspace: Workspace) -> dict[str, dict[str, object]]:
    return {item["item"]: item for item in workspace.call("items", "owls", "--json").lines}


def test_plan_prices_the_clip_before_its_still_is_there(workspace: Workspace, manifest: str) -> None:
    """It spends nothing, and says that an image is still to be made."""
    plan = workspace.call("plan", manifest, "--json").document

    (job,) = plan["jobs"]
    assert job["items"]["new"] == 2
    assert plan["cost"]["credits"] == 55
    assert job["to_make"] == {"items": 1, "unpriced": 0, "to_choose": 0}
    assert "1 item is made from an image that is not there yet" in workspace.call("plan", manifest).out


def test_price_of_the_clip_is_told_while_it_waits_for_a_choice_and_at_the_choice(
    workspace: Workspace, manifest: str
) -> None:
    """The dearest item must not lose its price between the plan and the key that lets it begin."""
    (workspace.folder / manifest).write_text(f"{MANIFEST}    variants: 2\n    choose: 1\n", "utf-8")
    workspace.call("run", manifest)

    plan = workspace.call("plan", manifest, "--json").document
    assert plan["cost"]["credits"] == 50
    assert plan["jobs"][0]["to_make"]["unpriced"] == 0
    kept = workspace.call("review", "owls", "--keep", "owl-still-2")
    assert "owl-clip can begin now (about 50 credits)." in kept.out
    assert "`batchkiln work owls` makes them now" in kept.err
    assert "owl-still-1 is used, and not owl-still-2" in workspace.call("review", "owls", "--keep", "owl-still-1").out


@pytest.mark.parametrize("choice", ["review: true", "variants: 2\n    choose: 1"])
def test_plan_names_the_choice_that_its_end_does_not_count(workspace: Workspace, manifest: str, choice: str) -> None:
    """Nobody knows when a person reviews. The clip waits before and after the still is made, until one is kept."""
    (workspace.folder / manifest).write_text(f"{MANIFEST}    {choice}\n", "utf-8")

    def to_choose() -> int:
        return int(workspace.call("plan", manifest, "--json").document["jobs"][0]["to_make"]["to_choose"])

    told = workspace.call("plan", manifest).out
    assert ", not counting the time until somebody reviews what 1 item is made from\n" in told
    assert to_choose() == 1
    workspace.call("run", manifest)
    assert to_choose() == 1
    still = next(name for name in items(workspace) if name.startswith("owl-still"))
    workspace.call("review", "owls", "--keep", still)
    assert to_choose() == 0


def test_plan_of_a_clip_that_the_service_would_reject_waits_for_no_price(workspace: Workspace, manifest: str) -> None:
    """A refused request is told as such; it is neither made nor without a price."""
    wrong = (
        MANIFEST
        + """\
  - id: owl-edit
    model: epsilon-2
    mode: image-to-image
    prompt: The owl in snow
    inputs: [{item: owl-still}]
    parameters: {resolution: 512x512, aspect_ratio: "16:9"}
"""
    )
    (workspace.folder / manifest).write_text(wrong, "utf-8")

    plan = workspace.call("plan", manifest, "--json").document

    (job,) = plan["jobs"]
    assert [refused["item"] for refused in job["refused"]] == ["owl-edit"]
    assert job["to_make"] == {"items": 1, "unpriced": 0, "to_choose": 0}
    told = workspace.call("plan", manifest).out
    assert "1 item is made from an image that is not there yet; its price is the local service's" in told


def test_shown_request_names_the_item_that_its_image_comes_from(workspace: Workspace, manifest: str) -> None:
    """Whether the item is new or known, and beside an image that is a file."""
    Image.new("RGB", (300, 300)).save(workspace.folder / "owl.png")
    more = """\
  - id: both
    model: epsilon-2
    mode: image-to-image
    prompt: The owl in snow
    inputs: [owl.png, {item: owl-still}]
    parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}
"""
    (workspace.folder / manifest).write_text(MANIFEST + more, "utf-8")

    def images() -> dict[str, list[str]]:
        requests = workspace.call("plan", manifest, "--show", "9", "--json").document["jobs"][0]["requests"]
        return {each["item"]: [image["url"] for image in each["body"].get("inputs", [])] for each in requests}

    shown = images()
    assert shown["owl-clip"] == ["the URL of the file of owl-still"]
    assert shown["both"] == [f"the URL of the uploaded {workspace.folder}/owl.png", "the URL of the file of owl-still"]
    workspace.call("enqueue", manifest)
    (workspace.folder / manifest).write_text(MANIFEST.replace("turns its head", "turns away"), "utf-8")
    later = images()
    assert later["owl-clip"] == ["the URL of the file of owl-still"]


@pytest.mark.long
def test_clip_is_made_from_the_still_of_the_same_manifest(workspace: Workspace, manifest: str) -> None:
    """The same command again finds nothing to do."""
    assert workspace.call("run", manifest).exit == 0

    found = items(workspace)
    assert [found[name]["state"] for name in ("owl-still", "owl-clip")] == ["done", "done"]
    shown = workspace.call("show", "owls", "owl-clip", "--json").document
    outputs = found["owl-still"]["outputs"]
    assert isinstance(outputs, list)
    assert [each["sha256"] for each in shown["request"]["inputs"]] == [outputs[0]["sha256"]]
    assert shown["made_from"][0]["item"] == "owl-still"
    assert not shown["made_from"][0]["stale"]
    again = workspace.call("run", manifest, "--json")
    assert again.exit == 0
    assert "Nothing to do" in workspace.call("run", manifest).out


@pytest.mark.long
def test_clip_waits_for_a_still_that_was_canceled_until_it_is_retried(workspace: Workspace, manifest: str) -> None:
    """Everything names what it waits for, and the command that goes on."""
    workspace.call("enqueue", manifest)
    waiting = items(workspace)["owl-clip"]
    assert waiting["waits_for"] == [{"job": "owls", "item": "owl-still", "state": "queued"}]
    assert "it waits for owl-still" in workspace.call("items", "owls").out

    canceled = workspace.call("cancel", "owls", "owl-still")

    assert "another queued item waits in vain" in canceled.err
    ended = workspace.call("run", manifest)
    assert ended.exit == 3
    assert "1 waits for owl-still, which was canceled: `batchkiln retry owls owl-still`" in ended.err
    status = workspace.call("status", "owls", "--json").document
    assert status["finished"]
    assert status["items"]["queued"] == 1
    assert status["waiting"] == {
        "items": 1,
        "stuck": 1,
        "for": [{"job": "owls", "item": "owl-still", "group": None, "state": "canceled", "items": 1}],
    }
    shown = workspace.call("show", "owls", "owl-clip").out
    assert "it waits for owl-still, which was canceled" in shown
    assert "next: `batchkiln retry owls owl-still` makes its input again, and it continues. Then: no process" in shown

    workspace.call("retry", "owls", "owl-still")

    assert workspace.call("run", manifest).exit == 0
    assert {item["state"] for item in items(workspace).values()} == {"done"}


def test_mistakes_are_told_with_their_places(workspace: Workspace, manifest: str) -> None:
    """Before anything is enqueued."""
    text = MANIFEST.replace("{item: owl-still}", "{item: owl-still}, {item: x, itm: y}, {item: owl-still, output: 0}")
    (workspace.folder / manifest).write_text(text, "utf-8")

    found = workspace.call("enqueue", manifest)

    assert found.exit == 2
    assert "owls.yaml:10:43: unknown field `inputs[2].itm`" in found.err
    assert "did you mean `item`?" in found.err
    assert "`inputs[3].output` cannot be `0`" in found.err
    (workspace.folder / manifest).write_text(MANIFEST.replace("{item: owl-still}", "{item: owl-stil}"), "utf-8")
    found = workspace.call("enqueue", manifest)
    assert "owls.yaml:10:21: the item 'owl-clip' is made from 'owl-stil'" in found.err
    assert "did you mean 'owl-still'?" in found.err


@pytest.mark.long
def test_a_selected_clip_brings_its_still_along(workspace: Workspace, manifest: str) -> None:
    """The sources that selected items need are priced, named and made; what else there is stays queued."""
    path = workspace.folder / manifest
    path.write_text(MANIFEST + MANIFEST[MANIFEST.index("  - id: owl-still") :].replace("owl-still", "other"), "utf-8")

    plan = workspace.call("plan", manifest, "--only", "owl-clip", "--json").document
    text = workspace.call("plan", manifest, "--only", "owl-clip").out
    result = workspace.call("run", manifest, "--yes", "--only", "owl-clip", "--json")

    (job,) = plan["jobs"]
    assert (job["needed_sources"], job["unselected"]) == (1, 1)
    assert "1 item and 1 source that it needs to send" in text
    assert result.exit == 5
    assert result.lines[-1]["unselected"] == 1
    assert {name: item["state"] for name, item in items(workspace).items()} == {
        "owl-clip": "done",
        "owl-still": "done",
        "other": "queued",
    }


@pytest.mark.long
def test_version_in_use_says_what_it_was_made_from(workspace: Workspace, manifest: str) -> None:
    """With the still's current version it is stale or not, whatever the newest clip was made from."""
    assert workspace.call("run", manifest).exit == 0
    for name in ("owl-still", "owl-clip"):
        workspace.call("redo", "owls", name, "--yes")
        assert workspace.call("work").exit == 0
    assert items(workspace)["owl-clip"]["stale"] is False

    workspace.call("use-version", "owls", "owl-clip", "1")

    shown = workspace.call("show", "owls", "owl-clip", "--json").document
    assert shown["request"]["inputs"][0]["path"].endswith("owl-still.png")
    assert shown["request"]["inputs"] == shown["versions"][0]["inputs"] != shown["versions"][1]["inputs"]
    (source,) = shown["made_from"]
    assert (source["version"], source["stale"], items(workspace)["owl-clip"]["stale"]) == (1, True, True)
    text = workspace.call("show", "owls", "owl-clip").out
    assert "stale: it was made from another version of owl-still" in text
    assert "input 1 is made by owl-still: stale: another version of it is current now" in text
    assert "1 item was made from a file that is no longer current" in workspace.call("plan", manifest).out

    workspace.call("use-version", "owls", "owl-still", "1")
    assert items(workspace)["owl-clip"]["stale"] is False


@pytest.mark.long
def test_redo_beyond_the_rest_of_the_budget_changes_nothing_and_names_the_figure(
    workspace: Workspace, manifest: str
) -> None:
    """The item would be rejected: it is done, and must not lose that for a redo that cannot be paid."""
    text = MANIFEST.replace("defaults:", "budget: {credits: 60}\ndefaults:")
    (workspace.folder / manifest).write_text(text, "utf-8")
    workspace.call("run", manifest)

    refused = workspace.call("redo", "owls", "owl-clip")

    assert "owls: 0 items queued again." in refused.out
    assert "owl-clip: the job's budget.credits has 5 of 60 credits left, and this may cost 50" in refused.out
    assert "raise it to 105 in the manifest" in refused.out
    assert items(workspace)["owl-clip"]["state"] == "done"
    (workspace.folder / manifest).write_text(text.replace("60", "105"), "utf-8")
    workspace.call("enqueue", manifest)
    assert "1 item queued again" in workspace.call("redo", "owls", "owl-clip").out


@pytest.mark.long
def test_changed_request_is_made_again_under_the_rules_of_redo(workspace: Workspace, manifest: str) -> None:
    """The plan names what becomes stale, and a budget that does not pay is an error that names one that does."""
    text = MANIFEST.replace("defaults:", "budget: {credits: 57}\ndefaults:")
    path = workspace.folder / manifest
    path.write_text(text, "utf-8")
    workspace.call("run", manifest)
    path.write_text(text.replace("An owl", "A better owl"), "utf-8")

    plan = workspace.call("plan", manifest, "--on-change", "redo")
    document = workspace.call("plan", manifest, "--on-change", "redo", "--json").document
    refused = workspace.call("enqueue", manifest, "--on-change", "redo")

    assert "owl-clip was made from what is made again and becomes stale" in plan.out.replace("\n", " ")
    assert plan.exit == refused.exit == 2
    assert document["jobs"][0]["redo"]["effects"]["outdated"]["may_cost"] == 50
    assert {"redo_over_budget", "redo_effects"} <= {each["code"] for each in document["warnings"]}
    assert "raise it to 60 in the manifest, or pass `--on-change keep`" in refused.err
    assert items(workspace)["owl-still"]["state"] == "done"
    path.write_text(path.read_text("utf-8").replace("57", "60"), "utf-8")
    applied = workspace.call("enqueue", manifest, "--on-change", "redo")
    assert "owl-clip was made from what is made again and becomes stale" in applied.out


def test_retry_beyond_the_rest_of_the_budget_says_so_first(workspace: Workspace, manifest: str) -> None:
    """What was rejected for the budget is rejected again, unless it is raised."""
    text = MANIFEST.replace("defaults:", "budget: {credits: 52}\ndefaults:")
    (workspace.folder / manifest).write_text(text, "utf-8")
    workspace.call("run", manifest)

    status = workspace.call("status", "owls")
    document = workspace.call("status", "owls", "--json").document
    retried = workspace.call("retry", "owls")

    assert "raise budget.credits to 55 in the manifest, then" in status.out.replace("\n", " ")
    assert document["budget"]["sufficient"] == 55
    assert "The job's budget.credits has 47 of 52 credits left: what does not fit is rejected." in retried.err
    assert "Raise it to 55 in " in retried.err


@pytest.mark.long
def test_redo_stale_makes_again_what_was_made_from_an_earlier_version(workspace: Workspace, manifest: str) -> None:
    """The run and `status` name the command; a second use finds nothing."""
    workspace.call("run", manifest)
    workspace.call("redo", "owls", "owl-still")
    ended = workspace.call("work", "owls")
    command = "`batchkiln redo --stale owls`"
    again = workspace.call("run", manifest)

    assert command in ended.err
    assert "Nothing to do." in again.out
    assert f"owls: 1 item is stale, because what it was made from is no longer current: {command}" in again.err
    assert command in workspace.call("status").out.replace("\n", " ")
    assert command in workspace.call("status", "owls").out.replace("\n", " ")
    assert command in workspace.call("status", "--watch").out.replace("\n", " ")
    assert workspace.call("status", "owls", "--json").document["stale"] == 1
    (end,) = [line for line in workspace.call("run", manifest, "--json").lines if line["event"] == "run_ended"]
    assert end["jobs"][0]["stale"] == 1
    redone = workspace.call("redo", "owls", "--stale")
    assert "may cost 50 credits" in redone.err
    assert "owls: 1 item queued again." in redone.out
    workspace.call("work", "owls")
    assert workspace.call("redo", "owls", "--stale").err == "No item of owls is stale. Nothing was changed.\n"
    assert workspace.call("redo", "owls", "owl-clip", "--stale").exit == 2


@pytest.mark.long
def test_a_clip_whose_choice_is_made_again_says_that_its_source_is_withdrawn(
    workspace: Workspace, manifest: str
) -> None:
    """No file is in use that it could be made from: it is stale once another is chosen."""
    (workspace.folder / manifest).write_text(f"{MANIFEST}    review: true\n", "utf-8")
    workspace.call("run", manifest)
    workspace.call("review", "owls", "--keep", "owl-still")
    workspace.call("work", "owls")
    workspace.call("redo", "owls", "owl-still")
    workspace.call("work", "owls")

    assert "(source withdrawn)" in workspace.call("items", "owls").out
    assert "source withdrawn: it was made from owl-still" in workspace.call("show", "owls", "owl-clip").out
    none = workspace.call("redo", "owls", "--stale").err
    assert "No item of owls is stale. What waits for a review may make some so: `batchkiln review owls`." in none
    assert "owl-still, and owl-still offers no file now" in workspace.call("show", "owls", "owl-clip").out
    workspace.call("review", "owls", "--keep", "owl-still")
    assert "(stale)" in workspace.call("items", "owls").out
