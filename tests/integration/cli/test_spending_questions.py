"""What `redo`, `retry` and `unpause` ask on a terminal before they may spend credits: the question of `run`."""

import pytest

from integration.cli.workspace import HURRIED, Workspace, on_a_terminal

ASKING = f"confirm_above_credits: 3\n{HURRIED}"
QUESTION = "This may spend about 4 credits"  # "over 2 service days" just before midnight


def states(workspace: Workspace) -> list[str]:
    return [row["state"] for row in workspace.call("items", "foxes", "--json").lines]


@pytest.mark.parametrize(("answer", "state"), [("n", "done"), ("y", "queued")])
def test_a_redo_above_the_bound_is_asked_about(workspace: Workspace, answer: str, state: str) -> None:
    """Two named items are few, and cost more than `confirm_above_credits`."""
    workspace.call("run", workspace.manifest())
    workspace.configure(ASKING)

    exit_status, shown = on_a_terminal(workspace, "redo", "foxes", "fox-1", "fox-2", answer=answer)

    assert (exit_status, QUESTION in shown) == (0, True)
    assert ("Nothing was changed." in shown) == (answer == "n")
    assert states(workspace) == [state, state]


def test_a_retry_above_the_bound_is_asked_about(workspace: Workspace) -> None:
    """Items that were canceled are named, and their quotes known."""
    manifest = workspace.manifest()
    workspace.call("run", manifest, "--max-credits", "0")
    workspace.call("cancel", "foxes", "--yes")
    workspace.configure(ASKING)

    _, shown = on_a_terminal(workspace, "retry", "foxes", "fox-1", "fox-2", answer="n")

    assert QUESTION in shown
    assert states(workspace) == ["canceled", "canceled"]


def test_an_unpause_above_the_bound_is_asked_about(workspace: Workspace) -> None:
    """A no leaves the job paused; --yes asks nothing; a job that is not paused costs nothing to unpause."""
    workspace.call("run", workspace.manifest(), "--max-credits", "0")
    workspace.call("pause", "foxes")
    workspace.configure(ASKING)

    _, refused = on_a_terminal(workspace, "unpause", "foxes", answer="n")
    _, agreed = on_a_terminal(workspace, "unpause", "foxes", "--yes", answer="n")
    _, again = on_a_terminal(workspace, "unpause", "foxes", answer="n")

    assert QUESTION in refused
    assert "Nothing was changed." in refused
    assert "foxes is no longer paused" in agreed
    assert "Continue?" not in agreed + again


@pytest.mark.parametrize("options", [("--yes",), ("--no-input",)])
def test_nobody_is_asked_with_an_option(workspace: Workspace, options: tuple[str, ...]) -> None:
    """As for `run`."""
    workspace.call("run", workspace.manifest())
    workspace.configure(ASKING)

    _, shown = on_a_terminal(workspace, "redo", "foxes", "fox-1", "fox-2", *options, answer="n")

    assert "Continue?" not in shown
    assert states(workspace) == ["queued", "queued"]


def test_question_names_the_money(workspace: Workspace) -> None:
    """With a price of a credit, `run` and `redo` name the amount."""
    workspace.configure(f"{ASKING}    credit_price: 0.02 EUR\n")
    question = "This may spend about 4 credits (0.08 EUR). Continue?"

    _, run = on_a_terminal(workspace, "run", workspace.manifest(), answer="y")
    _, redo = on_a_terminal(workspace, "redo", "foxes", "fox-1", "fox-2", answer="n")

    assert question in run
    assert question in redo


def test_nobody_is_asked_without_a_terminal_or_below_the_bound(workspace: Workspace) -> None:
    """A script goes on; one item costs 2 credits."""
    workspace.call("run", workspace.manifest())
    workspace.configure(ASKING)

    _, cheap = on_a_terminal(workspace, "redo", "foxes", "fox-1", answer="n")
    script = workspace.call("redo", "foxes", "fox-2")

    assert "Continue?" not in cheap + script.err
    assert states(workspace) == ["queued", "queued"]
