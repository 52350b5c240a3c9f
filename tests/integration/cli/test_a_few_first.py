"""A few items first: `--only`, `--limit` and `--sample` of `run`, `work` and `plan`, and `plan --show`."""

import signal
from pathlib import Path

import pytest

from .workspace import HURRIED, Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    made.configure(HURRIED)
    return made


def done(place: Workspace, job: str = "foxes") -> list[str]:
    return [line["item"] for line in place.call("items", job, "--json").lines if line["state"] == "done"]


def test_a_run_begins_only_what_was_selected(place: Workspace) -> None:
    """All items are enqueued, the rest stays queued and is told, and the exit status is 5."""
    result = place.call("run", place.manifest(items=5), "--yes", "--limit", "2")

    assert result.exit == 5
    assert done(place) == ["fox-1", "fox-2"]
    assert (
        "3 items of foxes were not selected for this run, and are still queued. To make them: `batchkiln work foxes`"
        in result.err
    )
    assert "To resume" not in result.err


def test_the_same_command_makes_no_more(place: Workspace) -> None:
    """A selection counts what was made, so that repeating the command resumes it and nothing else."""
    manifest = place.manifest(items=4)
    place.call("run", manifest, "--yes", "--limit", "2")

    again = place.call("run", manifest, "--yes", "--limit", "2")

    assert again.exit == 5
    assert done(place) == ["fox-1", "fox-2"]


def test_without_the_options_the_rest_is_made(place: Workspace) -> None:
    """The queue keeps nothing of an earlier selection."""
    manifest = place.manifest(items=3)
    place.call("run", manifest, "--yes", "--only", "fox-3")

    result = place.call("run", manifest, "--yes")

    assert result.exit == 0
    assert done(place) == ["fox-1", "fox-2", "fox-3"]


def test_a_selection_of_all_ends_as_any_run(place: Workspace) -> None:
    """Nothing is left, so that the exit status is 0."""
    result = place.call("run", place.manifest(items=2), "--yes", "--sample", "2", "--seed", "7", "--json")

    assert result.exit == 0
    assert result.lines[-1]["unselected"] == 0


def test_work_takes_jobs_and_a_selection(place: Workspace) -> None:
    """Other jobs are left alone."""
    for job in ("foxes", "owls"):
        place.call("enqueue", place.manifest(job, items=3))

    result = place.call("work", "owls", "--only", "*-1", "--only", "*-3", "--json")

    assert result.exit == 5
    assert (done(place, "foxes"), done(place, "owls")) == ([], ["fox-1", "fox-3"])
    assert result.lines[-1]["unselected"] == 1


def test_a_killed_run_resumes_its_selection(place: Workspace) -> None:
    """A crash leaves no selection behind, and the same command selects the same items."""
    manifest = place.manifest(items=6)
    process = place.starting_anew().start("run", manifest, "--yes", "--sample", "3", "--seed", "2", "--json")
    assert process.stdout is not None
    for line in process.stdout:
        if '"files_saved"' in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()

    result = place.call("run", manifest, "--yes", "--sample", "3", "--seed", "2")

    assert result.exit == 5
    assert len(done(place)) == 3
    spent = place.call("status", "foxes", "--json").document["credits"]
    assert (spent["charged"], spent["reserved"]) == (6, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("work", "--forever", "--limit", "1"),
        ("work", "nothing"),
        ("run", "m.yaml", "--only", ""),
        ("work", "--limit", "0"),
    ],
)
def test_selections_that_make_no_sense_are_refused(place: Workspace, arguments: tuple[str, ...]) -> None:
    """With exit status 2, before anything is sent."""
    assert place.call(*arguments).exit == 2


def test_patterns_that_match_nothing_are_refused(place: Workspace) -> None:
    """Also by `work`, for jobs that are named: it would end with work left, as if a budget were spent."""
    place.call("enqueue", place.manifest(items=2))

    refused = place.call("work", "foxes", "--only", "zzz*")

    assert refused.exit == 2
    assert "no item has an id that matches 'zzz*'; nothing was sent" in refused.err


def test_a_plan_prices_the_selection(place: Workspace) -> None:
    """Cost and days are those of the selected items, and the others are counted."""
    manifest = place.manifest(items=5)
    place.call("run", manifest, "--yes", "--only", "fox-1")

    plan = place.call("plan", manifest, "--limit", "3", "--json").document

    assert (plan["jobs"][0]["to_send"], plan["jobs"][0]["unselected"]) == (2, 2)
    assert plan["cost"]["credits"] == 4
    text = place.call("plan", manifest, "--limit", "3").out
    assert "2 more items would be queued and not begun" in text
    assert "  selected: fox-2, fox-3; all changes of the manifest:" in text


def test_a_plan_shows_whole_requests(place: Workspace) -> None:
    """Expanded prompts, and the bodies as they would be sent, with the quotes."""
    manifest = place.manifest(items=5)

    document = place.call("plan", manifest, "--show", "2", "--json").document
    text = place.call("plan", manifest, "--show", "2", "--sample", "1").out

    assert [request["item"] for request in document["jobs"][0]["requests"]] == ["fox-1", "fox-2"]
    assert document["jobs"][0]["requests"][0]["path"] == "/images"
    assert document["jobs"][0]["requests"][0]["body"] == {
        "model": "epsilon-2",
        "mode": "text-to-image",
        "prompt": "fox 1",
        "parameters": {"resolution": "512x512", "aspect_ratio": "1:1"},
        "max_cost_credits": 2,
    }
    assert text.count("POST /images") == 1


def test_a_pattern_that_matches_nothing_is_told_before_anything_is_enqueued(place: Workspace) -> None:
    """A misspelt pattern would enqueue everything and make nothing; `plan` says the same."""
    manifest = place.manifest(items=2)

    planned, result = place.call("plan", manifest, "--only", "zzz*"), place.call("run", manifest, "--only", "zzz*")

    assert (planned.exit, result.exit) == (2, 2)
    assert "no item has an id that matches 'zzz*'; nothing was enqueued" in result.err
    assert "the ids of its items are fox-1, fox-2, …" in result.err
    assert "The queue is empty." in place.call("status").out


def test_the_progress_of_a_selection_is_that_of_its_items(place: Workspace) -> None:
    """The counts speak of what the run makes, and not of all items of the job."""
    place.configure("profiles:\n  local:\n    time_scale: 30\n")  # slow enough for a line
    result = place.call("run", place.manifest(items=9), "--yes", "--limit", "2")

    told = [line for line in result.err.splitlines() if " left" in line and "problem" in line]
    assert told
    assert all(" of 2 done" in line for line in told), told


def test_a_run_that_reached_its_cap_says_so(place: Workspace) -> None:
    """What it spent, and that the command to resume may spend as much again."""
    result = place.call("run", place.manifest(items=5), "--yes", "--max-credits", "5")

    assert result.exit == 5
    assert "This run may spend at most 5 credits: it spent 4, and the next item costs more than the rest." in result.err
    assert "may spend as much again" in result.err
