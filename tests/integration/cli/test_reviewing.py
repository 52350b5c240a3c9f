"""`review` and the options that choose items: from prompts with variants to the kept files, on the local service."""

import json
from pathlib import Path

import pytest

from integration.cli.workspace import Workspace, on_a_terminal

MANIFEST = """
version: 1
job: owls
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {resolution: 512x512, aspect_ratio: "1:1"}
items:
  - matrix: {kind: [barn, snowy, eagle]}
    id: "{{ kind }}"
    prompt: "A {{ kind }} owl"
    metadata: [kind]
    variants: 4
    choose: 1
"""


@pytest.fixture
def owls(workspace: Workspace) -> Workspace:
    """Give a workspace in which three prompts were made in four variants each."""
    (workspace.folder / "owls.yaml").write_text(MANIFEST, encoding="utf-8")
    result = workspace.call("run", "owls.yaml")
    assert result.exit == 3, result.err
    assert "3 groups wait for a choice: `batchkiln review owls`." in result.err
    return workspace


def verdicts(workspace: Workspace) -> dict[str, str]:
    lines = workspace.call("items", "owls", "--json").lines
    return {line["item"]: line["verdict"] for line in lines if line["verdict"]}


def test_a_group_is_shown_by_its_name(owls: Workspace) -> None:
    """Its items with their verdicts, and what to type next; commands for items say that it is none."""
    assert owls.call("review", "owls", "--keep", "barn-2").exit == 0
    barn, snowy = owls.call("show", "owls", "barn"), owls.call("show", "owls", "snowy")
    refused = owls.call("redo", "owls", "barn", "snow")

    assert barn.out.startswith("barn (4 variants): choose 1, 1 kept\n")
    assert "  barn-2: kept: " in barn.out
    assert "chooses among them" not in barn.out
    assert "  next: `batchkiln review owls` chooses among them\n" in snowy.out
    assert snowy.out.endswith("  `batchkiln show owls snowy-1` shows one of them\n")
    assert owls.call("show", "owls", "barn", "--json").document["kept"] == 1
    assert refused.exit == 2
    assert "'barn' is a group of variants of the job 'owls', and no item\n    name its items: barn-1 " in refused.err
    assert "the job 'owls' has no item 'snow'\n    did you mean 'snowy-" in refused.err


def test_prompts_with_variants_are_chosen_and_exported(owls: Workspace) -> None:
    """Twelve files are made; the three that are kept make the dataset, and nothing is left to do."""
    kept = ("barn-2", "snowy-1", "eagle-4")
    listed = owls.call("review", "owls", "--json").lines
    assert [(step["group"], step["choose"], len(step["items"])) for step in listed] == [
        ("barn", 1, 4),
        ("snowy", 1, 4),
        ("eagle", 1, 4),
    ]
    assert len({item["outputs"][0]["path"] for step in listed for item in step["items"]}) == 12

    result = owls.call("review", "owls", *(word for item in kept for word in ("--keep", item)), "--drop", "barn-1")
    assert result.exit == 0
    assert "3 items kept, 1 item dropped" in result.out
    assert verdicts(owls) == dict.fromkeys(kept, "kept") | {"barn-1": "dropped"}
    assert owls.call("show", "owls", "barn-1").out.startswith("owls/barn-1: done, dropped\n")
    assert owls.call("review", "owls").out == "owls: nothing waits for a review.\n"
    assert owls.call("run", "owls.yaml").exit == 0

    exported = owls.call("export", "owls", "--kept", "--to", "kept", "--json").document
    rows = [json.loads(line) for line in (owls.folder / "kept" / "train.jsonl").read_text("utf-8").splitlines()]
    assert exported["items"] == 3
    assert [row["item"] for row in rows] == ["barn-2", "snowy-1", "eagle-4"]


def test_options_choose_items_by_verdict_and_metadata(owls: Workspace) -> None:
    """Items, reports and redo take the same options; a redo makes only what they choose."""
    owls.call("review", "owls", "--drop", "barn-1", "--drop", "snowy-3", "--keep", "eagle-1")

    dropped = owls.call("items", "owls", "--dropped", "--where", "metadata.kind=barn", "--json").lines
    unreviewed = owls.call("items", "owls", "--unreviewed", "--json").lines
    report = owls.call("report", "owls", "--kept", "--json").document
    again = owls.call("redo", "owls", "--dropped", "--yes", "--json").document

    assert [(line["item"], line["group"], line["version"]) for line in dropped] == [("barn-1", "barn", 1)]
    assert len(unreviewed) == 9
    assert report["items"]["total"] == 1
    assert again["redone"] == 2
    queued = owls.call("items", "owls", "--state", "queued", "--json").lines
    assert [line["item"] for line in queued] == ["barn-1", "snowy-3"]


def test_options_that_choose_nothing_change_nothing(owls: Workspace) -> None:
    """Above all, a retry without a match does not retry everything."""
    for command in (("retry", "owls", "--code", "never_seen"), ("redo", "owls", "--kept")):
        result = owls.call(*command)
        assert (result.exit, result.err) == (0, "owls has no such items. Nothing was changed.\n")

    assert owls.call("redo", "owls").exit == 2
    assert owls.call("redo", "owls", "barn-1", "--kept").exit == 2
    assert owls.call("items", "owls", "--where", "kind=barn").exit == 2
    both = owls.call("redo", "owls", "--where", "metadata.kind=barn", "--where", "metadata.kind=eagle", "--yes")
    assert (both.exit, "no item matches, because metadata.kind=barn must hold as well" in both.err) == (2, True)


def test_conditions_on_metadata_must_all_hold(owls: Workspace) -> None:
    """`--where` can be repeated; the same condition twice is one."""
    kind, colour = ("--where", "metadata.kind=barn"), ("--where", "metadata.colour=white")

    assert len(owls.call("items", "owls", *kind, *kind, "--json").lines) == 4
    assert owls.call("items", "owls", *kind, *colour, "--json").lines == []
    assert owls.call("redo", "owls", *kind, *colour, "--yes").err == "owls has no such items. Nothing was changed.\n"
    assert owls.call("report", "owls", *kind, *kind, "--json").document["items"]["total"] == 4


def test_a_program_reads_what_a_verdict_lets_begin(workspace: Workspace) -> None:
    """The text and the document tell the same, before and after something was sent with another choice."""
    still = "items:\n  - {id: owl, prompt: An owl, variants: 2, choose: 1}\n"
    head = MANIFEST.partition("items:")[0]
    fly = "  - {id: fly, prompt: It flies, mode: image-to-image, inputs: [{item: owl}]}\n"
    (workspace.folder / "fly.yaml").write_text(head + still + fly, encoding="utf-8")
    workspace.call("run", "fly.yaml")

    first = workspace.call("review", "owls", "--keep", "owl-1", "--json").document["effects"]
    assert workspace.call("run", "fly.yaml").exit == 0
    workspace.call("review", "owls", "--drop", "owl-1")
    second = workspace.call("review", "owls", "--keep", "owl-2", "--json").document["effects"]

    assert first == {"ready": ["fly"], "may_cost": 2, "unquoted": 0, "begun": [], "outdated": []}
    (outdated,) = second["outdated"]
    assert (outdated["item"], outdated["made_from"], outdated["done"]) == ("fly", "owl-1", True)
    assert outdated["credits"] > 0
    assert second["ready"] == []


def test_unknown_name_and_double_verdict_change_nothing(owls: Workspace) -> None:
    """One mistake in a command line takes back all of it."""
    assert owls.call("review", "owls", "--keep", "barn-1", "--drop", "wolf").exit == 2
    assert owls.call("review", "owls", "--keep", "barn-1", "--drop", "barn-1").exit == 2

    assert verdicts(owls) == {}


def test_keys_decide_in_a_terminal(owls: Workspace) -> None:
    """Drop, keep (which ends the group), an undo that goes back, and the way out."""
    exit_status, shown = on_a_terminal(owls, "review", "owls", answer="dkuknq", question="q quit")

    assert exit_status == 0
    assert verdicts(owls) == {"barn-1": "dropped", "barn-2": "kept"}
    assert "barn-1  1 of 4, choose 1, 0 kept  (no verdict; 3 left)" in shown
    assert "owls: 2 decided. 2 groups wait for a choice" in shown


def test_options_choose_what_is_reviewed(owls: Workspace) -> None:
    """Only groups with a matching item are shown; verdicts go through what was decided as well."""
    owls.call("review", "owls", "--keep", "snowy-1", "--drop", "barn-2")

    def groups(*options: str) -> list[str]:
        return [step["group"] for step in owls.call("review", "owls", *options, "--json").lines]

    assert groups("--where", "metadata.kind=eagle") == ["eagle"]
    assert groups("--where", "metadata.kind=snowy") == []
    assert groups("--where", "metadata.kind=snowy", "--all") == ["snowy"]
    assert groups("--kept") == ["snowy"]
    assert groups("--dropped", "--where", "metadata.kind=barn") == ["barn"]
    assert groups("--unreviewed") == ["barn", "snowy", "eagle"]
    assert owls.call("review", "owls", "--dropped", "--where", "metadata.kind=eagle").out == (
        "owls: nothing that the options choose is done.\n"
    )
    assert owls.call("review", "owls", "--dropped", "--keep", "barn-2").exit == 2


def test_keys_decide_about_what_the_options_choose(owls: Workspace) -> None:
    """The dropped item of a group is shown first, and kept after all, at the second try; then nothing matches."""
    owls.call("review", "owls", "--drop", "barn-3", "--drop", "eagle-2")

    options = ("--dropped", "--where", "metadata.kind=barn")
    exit_status, shown = on_a_terminal(owls, "review", "owls", *options, answer="kuk", question="q quit")

    assert exit_status == 0
    assert verdicts(owls) == {"barn-3": "kept", "eagle-2": "dropped"}
    assert "barn-3  3 of 4, choose 1, 0 kept  (dropped; 1 left)" in shown
    assert "barn-3 is undecided again." in shown
    assert shown.count("barn-3 is kept.") == 2
    assert "That was the last one: u takes the last decision back, any other key ends." in shown


def test_status_and_history_tell_of_reviews(owls: Workspace) -> None:
    """What waits, with the command; and who decided."""
    document = owls.call("status", "owls", "--json").document
    owls.call("review", "owls", "--keep", "barn-1")

    assert (document["to_review"], document["to_choose"]) == (0, 3)
    assert "2 groups wait for a choice: `batchkiln review owls`" in owls.call("status", "owls").out
    shown = owls.call("show", "owls", "barn-1").out
    assert "Version 1 kept by " in shown


def test_file_that_a_person_reviews_is_named(owls: Workspace) -> None:
    """Without a terminal, the command lists the files."""
    lines = owls.call("review", "owls").out.splitlines()

    assert lines[0] == "barn (4 variants): choose 1, 0 kept"
    assert lines[1].startswith("  barn-1: to review: ")
    assert Path(lines[1].rpartition(": ")[2]).is_file()
