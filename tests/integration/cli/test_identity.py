"""Manifests under other names, and items under other ids: nothing is paid again unasked."""

from pathlib import Path
from typing import Final

import pytest

from .workspace import HURRIED, Workspace, on_a_terminal

MANIFEST: Final = """\
version: 1
job: foxes
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512, aspect_ratio: "1:1"}}
output: {dir: out}
items: [a red fox, a grey fox]
"""


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    """A folder in which a manifest without ids was run to its end."""
    place = Workspace(tmp_path)
    place.configure(HURRIED)
    (tmp_path / "foxes.yaml").write_text(MANIFEST, "utf-8")
    assert place.call("run", "foxes.yaml", "--yes").exit == 0
    return place


def charged(place: Workspace) -> int:
    return int(place.call("status", "foxes", "--json").document["credits"]["charged"])


def test_a_copied_or_piped_manifest_makes_nothing_again(made: Workspace) -> None:
    """Default ids hold no file name (contract, section 10)."""
    (made.folder / "copy.yaml").write_text(MANIFEST, "utf-8")
    before = charged(made)

    copied = made.call("run", "copy.yaml", "--yes")
    piped = made.call("run", "-", stdin=MANIFEST)

    assert (copied.exit, piped.exit) == (0, 0)
    assert "Nothing to do" in copied.out
    assert charged(made) == before
    assert [line["item"] for line in made.call("items", "foxes", "--json").lines] == ["item-1", "item-2"]


def renamed(place: Workspace) -> str:
    text = MANIFEST.replace("[a red fox, a grey fox]", "[{id: red, prompt: a red fox}]")
    (place.folder / "foxes.yaml").write_text(text, "utf-8")
    return "foxes.yaml"


@pytest.mark.parametrize("command", ["run", "enqueue"])
def test_paying_again_under_a_new_id_needs_more_than_yes(made: Workspace, command: str) -> None:
    """The refusal names the place, the old id and both ways on; nothing is enqueued."""
    before = charged(made)

    result = made.call(command, renamed(made), *(("--yes",) if command == "run" else ()))

    assert result.exit == 2
    assert "foxes.yaml:5:" in result.err
    assert "the new item 'red' asks for the same as 'item-1', which is done and paid for" in result.err
    assert "--allow-duplicates" in result.err
    assert charged(made) == before
    assert len(made.call("items", "foxes", "--json").lines) == 2


def test_allowed_duplicates_are_paid_again(made: Workspace) -> None:
    """It is what the option says."""
    before = charged(made)

    result = made.call("run", renamed(made), "--yes", "--allow-duplicates")

    assert result.exit == 0
    assert charged(made) == before * 3 // 2


@pytest.mark.parametrize(("answer", "exit_status", "items"), [("n", 2, 2), ("y", 0, 3)])
def test_a_terminal_is_asked_before_paying_again(made: Workspace, answer: str, exit_status: int, items: int) -> None:
    """The question comes after the plan, which names the ids."""
    ended, shown = on_a_terminal(made, "run", renamed(made), question="Pay again?", answer=answer)

    assert ended == exit_status
    assert "1 new item would pay again for what the job has under other ids" in shown
    assert "red as item-1" in shown
    assert len(made.call("items", "foxes", "--json").lines) == items


def test_a_plan_tells_equal_requests(made: Workspace) -> None:
    """Those of the job, and those within the manifest."""
    text = MANIFEST.replace("[a red fox, a grey fox]", "[{id: red, prompt: a red fox}, {id: b, prompt: x}, x]")
    (made.folder / "foxes.yaml").write_text(text, "utf-8")

    warnings = made.call("plan", "foxes.yaml", "--json").document["warnings"]

    assert {warning["code"] for warning in warnings} >= {"paid_before", "duplicate_requests"}
    assert any("(item-3 as b): each is paid for by itself" in warning["message"] for warning in warnings)
