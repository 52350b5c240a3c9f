"""`watch` as a pipeline uses it: files go in, answers and results come out (docs/pipelines.md)."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from integration.cli.workspace import HURRIED, UNHURRIED, Workspace, finished, interrupt


@pytest.fixture
def inbox(workspace: Workspace) -> Path:
    folder = workspace.folder / "inbox"
    folder.mkdir()
    return folder


def put(workspace: Workspace, inbox: Path, job: str) -> None:
    (workspace.folder / workspace.manifest(job)).rename(inbox / f"{job}.yaml")


def watching(workspace: Workspace) -> subprocess.Popen[str]:
    """Begin to watch, and wait until it does."""
    process = workspace.start("watch", "inbox", "-v")
    until_logged(process, "folder_watched")
    return process


def until_logged(process: subprocess.Popen[str], event: str, *, file: str = "") -> None:
    """Read the process's log up to an event, of a file where one is given. Answers are written before it is told."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if event in line and file in line:
            return
    raise AssertionError(f"{event!r} never came: {''.join(lines)}")


def answer_to(inbox: Path, job: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((inbox / f"{job}.result.json").read_text())
    return document


def test_once_runs_all_manifests_in_the_folder(workspace: Workspace, inbox: Path) -> None:
    """All items done and each answered: exit 0; a second run finds nothing to do."""
    put(workspace, inbox, "foxes")

    result = workspace.call("watch", "inbox", "--once")

    assert result.exit == 0, result.err
    answer = json.loads((inbox / "foxes.result.json").read_text())
    assert (answer["status"], answer["exit"], answer["items"]["done"]) == ("ended", 0, 2)
    assert workspace.call("watch", "inbox", "--once").exit == 0
    assert workspace.call("status", "foxes", "--json").document["credits"]["charged"] == 4


def test_no_key_is_in_an_answer(workspace: Workspace, inbox: Path) -> None:
    """Answers are read by other programs: neither the API key nor a signed link is in one (Law 8)."""
    put(workspace, inbox, "foxes")

    result = workspace.call("watch", "inbox", "--once", "-vv")

    key = (workspace.folder / ".batchkiln" / "embedded" / "local" / "key-main").read_text().strip()
    told = result.out + result.err + "".join(path.read_text() for path in inbox.glob("*.result.json"))
    assert "foxes" in told
    assert key not in told
    assert "signature=" not in told


def test_once_with_a_broken_manifest_is_two_and_runs_the_others(workspace: Workspace, inbox: Path) -> None:
    """The mistakes are in the answer, with their places."""
    put(workspace, inbox, "foxes")
    (inbox / "wrong.yaml").write_text("version: 1\njob: wrong\nitmes: []\n")

    result = workspace.call("watch", "inbox", "--once")

    assert result.exit == 2
    places = [
        (error["line"], error["column"]) for error in json.loads((inbox / "wrong.result.json").read_text())["errors"]
    ]
    assert (3, 1) in places
    assert json.loads((inbox / "foxes.result.json").read_text())["exit"] == 0


def test_manifest_that_the_catalogue_contradicts_is_refused(workspace: Workspace, inbox: Path) -> None:
    """As by `enqueue`: nothing of it is queued, unless the check was turned off; then the service rejects its items."""
    put(workspace, inbox, "foxes")
    text = (inbox / "foxes.yaml").read_text()
    (inbox / "foxes.yaml").write_text(text.replace("epsilon-2", "epsilon2"))

    refused = workspace.call("watch", "inbox", "--once")
    answer = answer_to(inbox, "foxes")
    unchecked = workspace.call("watch", "inbox", "--once", "--no-catalogue")

    assert (refused.exit, answer["status"]) == (2, "refused")
    assert "did you mean `epsilon-2`?" in answer["errors"][0]["remedy"]
    assert (unchecked.exit, answer_to(inbox, "foxes")["items"]["rejected"]) == (3, 2)


def test_a_watch_says_what_it_takes_and_what_has_ended(workspace: Workspace, inbox: Path) -> None:
    """Without -v as well; an idle watch says what it waits for."""
    process = workspace.start("watch", "inbox")
    until_logged(process, "nothing to do; waiting for manifests in inbox, until a signal")
    put(workspace, inbox, "foxes")

    until_logged(process, "inbox/foxes.yaml: accepted; foxes: 2 items (2 new, 0 known), profile local")
    until_logged(process, "foxes has ended. foxes: 2 of 2 items done; 4 credits charged.")

    assert process.poll() is None


def test_manifests_that_come_later_are_taken(workspace: Workspace, inbox: Path) -> None:
    """Moved in while it watches an empty queue: enqueued, driven, answered twice; a signal ends it."""
    process = watching(workspace)
    put(workspace, inbox, "foxes")
    until_logged(process, "job_ended", file="foxes.yaml")
    put(workspace, inbox, "owls")
    until_logged(process, "job_ended", file="owls.yaml")
    ended = answer_to(inbox, "owls")

    interrupt(process, signal.SIGTERM)
    result = finished(process)

    assert ended["items"]["done"] == 2
    assert result.exit == 143
    assert len(list((workspace.folder / "out").rglob("*.png"))) == 4


def test_a_kill_costs_nothing(workspace: Workspace, inbox: Path) -> None:
    """Killed in the middle of a job, a restart takes nothing again, finishes, and answers (Laws 2 and 9)."""
    workspace.configure(UNHURRIED)
    process = watching(workspace)
    put(workspace, inbox, "foxes")
    until_logged(process, "manifest_accepted")
    assert answer_to(inbox, "foxes")["status"] == "accepted"
    process.kill()
    finished(process)
    workspace.configure(HURRIED)

    result = workspace.call("watch", "inbox", "--once")

    answer = json.loads((inbox / "foxes.result.json").read_text())
    assert result.exit == 0, result.err
    assert (answer["status"], answer["credits"]["charged"]) == ("ended", 4)


def test_manifest_without_a_key_holds_up_nobody(workspace: Workspace, inbox: Path) -> None:
    """A job whose profile lacks its key is postponed, and the next one runs: the watch does not end."""
    workspace.configure(
        "profiles:\n  local: {time_scale: 600}\n  studio:\n    base_url: https://example.invalid/api/v1\n"
        "    accounts: [{name: main, keys: [{env: MISSING_KEY}]}]\n"
    )
    process = watching(workspace)
    (inbox / "studio.yaml").write_text(
        "version: 1\njob: studio\nprofile: studio\ndefaults: {model: epsilon-2, mode: text-to-image}\n"
        "items: [{id: a, prompt: a}]\n"
    )
    until_logged(process, "manifest_accepted", file="studio.yaml")
    put(workspace, inbox, "foxes")

    until_logged(process, "job_ended", file="foxes.yaml")

    assert process.poll() is None


def test_manifest_whose_results_could_not_be_written_is_refused(workspace: Workspace, inbox: Path) -> None:
    """It would be paid, and its download would end the drive for everybody."""
    put(workspace, inbox, "foxes")
    text = (inbox / "foxes.yaml").read_text()
    (inbox / "foxes.yaml").write_text(text.replace("dir: out", "dir: batchkiln.yaml/out"))

    result = workspace.call("watch", "inbox", "--once")

    assert result.exit == 2
    (error,) = json.loads((inbox / "foxes.result.json").read_text())["errors"]
    assert "is not writable" in error["message"]


def test_one_queue_has_one_driver(workspace: Workspace, inbox: Path) -> None:
    """A second watch of the same queue is told who drives it."""
    process = watching(workspace)

    assert workspace.call("watch", inbox.name).exit == 6
    assert process.poll() is None


def test_folder_that_is_not_there_is_two(workspace: Workspace) -> None:
    """A mistyped folder is told, and none is made."""
    assert workspace.call("watch", "inbux").exit == 2
    assert not (workspace.folder / "inbux").exists()


def configured(workspace: Workspace) -> Path:
    """Configure an account of a service that nobody is to ask, and return the file of its API key."""
    (workspace.folder / "batchkiln.yaml").write_text(
        "default_profile: studio\nprofiles:\n  studio:\n    base_url: http://127.0.0.1:9/api/v1\n"
        "    accounts:\n      - {name: anna, keys: [{file: anna.key}]}\n"
    )
    return workspace.folder / "anna.key"


@pytest.mark.parametrize("command", [("watch", "inbox"), ("work", "--forever")])
def test_missing_key_ends_the_start_before_there_is_work(workspace: Workspace, command: tuple[str, ...]) -> None:
    """A process that waits for work would otherwise find out at night."""
    configured(workspace)
    (workspace.folder / "inbox").mkdir()

    result = workspace.call(*command)

    assert result.exit == 2
    assert "account anna: no API key found in the file anna.key" in result.err


def test_key_that_has_gone_since_the_start_needs_a_person(workspace: Workspace, inbox: Path) -> None:
    """The process stays, because the key may come back; whoever looks at the queue is told."""
    configured(workspace).write_text("a-key-of-anna")
    watcher = watching(workspace)
    try:
        (workspace.folder / "anna.key").unlink()
        put(workspace, inbox, "foxes")
        until_logged(watcher, "account_postponed")

        status, shown = workspace.call("status").out, workspace.call("show", "foxes", "fox-1").out
        accounts = workspace.call("status", "--json").document["accounts"]
    finally:
        interrupt(watcher)

    assert "the account studio/anna cannot work: it has no API key: none was found in the file anna.key" in " ".join(
        status.split()
    )
    assert [each["key_missing"] for each in accounts if each["account"] == "anna"] == ["the file anna.key"]
    assert "ends in" not in status
    assert "the account has no API key" in shown
    assert "continues by itself" not in shown
