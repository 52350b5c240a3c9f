"""`rehearse` as a person runs it (contract, section 4)."""

import re
import signal

import pytest

from integration.cli.workspace import Workspace, finished


def test_a_rehearsal_shows_the_bill_and_leaves_nothing(workspace: Workspace) -> None:
    """The bill, the time and the verdict are told; no queue and no output is made."""
    result = workspace.call("rehearse", workspace.manifest(), "--faults", "mild")

    assert result.exit == 0, result.err
    assert "2 done" in result.out
    assert "4 credits" in result.out
    assert "No prompt was charged twice" in result.out
    assert "s of service time, about 0 s of a run, whose clock goes 600 times as fast" in result.out
    assert sorted(path.name for path in workspace.folder.iterdir()) == ["batchkiln.yaml", "foxes.yaml"]


def test_the_document_is_one_and_has_what_the_manual_says(workspace: Workspace) -> None:
    """--json: one document on standard output."""
    text = (workspace.folder / workspace.manifest()).read_text()

    document = workspace.call("rehearse", "-", "--json", "--seed", "4", stdin=text).document

    assert document["jobs"][0]["items"]["done"] == 2
    assert document["bill"] == {"credits": 4, "refunded": 0}
    assert (document["seed"], document["charged_twice"], document["sound"]) == (4, 0, True)


def test_the_options_of_a_run_without_the_catalogue_can_be_rehearsed(workspace: Workspace) -> None:
    """A rehearsal reads no catalogue in any case, so the result is the same."""
    name = workspace.manifest()

    plain = workspace.call("rehearse", name, "--json").document
    unchecked = workspace.call("rehearse", name, "--json", "--no-catalogue").document

    assert (unchecked["jobs"][0]["items"], unchecked["bill"]) == (plain["jobs"][0]["items"], plain["bill"])


def test_a_rehearsal_of_failures_is_three(workspace: Workspace) -> None:
    """What would not be done makes the exit status that `run` would have."""
    name = workspace.manifest()
    path = workspace.folder / name
    path.write_text(path.read_text().replace("fox {{ n }}", "fox {{ n }} [fail]"))

    result = workspace.call("rehearse", name)

    assert result.exit == 3
    assert "2 failed" in result.out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_nothing(number: signal.Signals, status: int, workspace: Workspace) -> None:
    """It stops at once, says nothing of what was under way, and its temporary folder is gone."""
    temporary = workspace.folder / "tmp"
    temporary.mkdir()
    name = workspace.manifest()
    path = workspace.folder / name
    path.write_text(path.read_text().replace("fox {{ n }}", "fox {{ n }} [stay-pending]"))  # it never ends
    process, terminal = workspace.start_at_terminal("rehearse", name, TMPDIR=str(temporary))
    terminal.until("2 items left")  # it is under way, and would go on for ever
    assert len(list(temporary.glob("batchkiln-rehearsal-*"))) == 1

    process.send_signal(number)
    shown = terminal.rest()
    result = finished(process)

    assert (result.exit, result.out) == (status, "")
    assert re.sub(r"\r\x1b\[K[^\r\n]* left", "", shown).strip() in {"", "Stopped; all recorded data is safe."}
    assert list(temporary.glob("batchkiln-rehearsal-*")) == []


def test_a_wrong_manifest_is_two(workspace: Workspace) -> None:
    """Mistakes are told as `run` tells them."""
    (workspace.folder / "wrong.yaml").write_text("version: 1\njob: wrong\nitmes: []\n")

    result = workspace.call("rehearse", "wrong.yaml")

    assert result.exit == 2
    assert "wrong.yaml:3" in result.err
