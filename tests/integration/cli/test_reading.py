"""Commands that only read, on a job that is done (contract, section 4)."""

import hashlib
import json
import zipfile
from pathlib import Path

from integration.cli.workspace import Workspace, finished, interrupt, until_line


def test_status_of_a_job_has_the_promised_names(done: Workspace) -> None:
    """job, items with a total, credits, finished."""
    document = done.call("status", "foxes", "--json").document

    assert document["job"] == "foxes"
    assert document["items"]["done"] == document["items"]["total"] == 2
    assert document["credits"] == {"reserved": 0, "charged": 4, "refunded": 0}
    assert document["finished"] is True


def test_status_without_a_job_shows_jobs_accounts_and_driver(done: Workspace) -> None:
    """The output shows today's usage of each limit, and that no process runs the queue."""
    document = done.call("status", "--json").document

    assert [job["job"] for job in document["jobs"]] == ["foxes"]
    assert document["accounts"][0]["today"]["credits"] == 4
    assert document["accounts"][0]["today"]["credits_limit"] == 2000
    assert document["driver"] is None


def test_status_for_people_shows_what_was_spent(done: Workspace) -> None:
    """A table of the jobs, and a paragraph for one of them."""
    assert "foxes" in done.call("status").out
    assert "4 spent" in done.call("status", "foxes").out


def test_an_unknown_job_is_reported_with_the_one_that_is_near(done: Workspace) -> None:
    """A mistyped job: exit 2, one message, no traceback."""
    result = done.call("status", "foxen")

    assert (result.exit, result.out) == (2, "")
    assert "foxes" in result.err
    assert "Traceback" not in result.err


def test_items_are_lines_of_json_with_the_promised_names(done: Workspace) -> None:
    """Each item with its file as it is on the disk."""
    items = done.call("items", "foxes", "--json").lines

    assert [item["item"] for item in items] == ["fox-1", "fox-2"]
    (output,) = items[0]["outputs"]
    content = Path(output["path"]).read_bytes()
    assert (output["bytes"], output["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    promised = {
        "item",
        "index",
        "state",
        "prompt",
        "attempts",
        "generation_id",
        "credits",
        "outputs",
        "error",
        "metadata",
    }
    assert set(items[0]) >= promised


def test_items_can_be_chosen_by_state_and_number(done: Workspace) -> None:
    """--state, more than once, and --limit."""
    chosen = done.call("items", "foxes", "--json", "--state", "failed", "--state", "done", "--limit", "1")

    assert [item["item"] for item in chosen.lines] == ["fox-1"]
    assert done.call("items", "foxes", "--json", "--state", "failed").out == ""


def test_items_for_people_name_the_files(done: Workspace) -> None:
    """A line an item."""
    lines = done.call("items", "foxes").out.splitlines()

    assert len(lines) == 3
    assert lines[1].endswith("fox-1.png")


def test_items_say_whose_file_is_gone(workspace: Workspace) -> None:
    """A run that has nothing to do names the command that downloads it again."""
    manifest = workspace.manifest()
    workspace.call("run", manifest)
    next((workspace.folder / "out").rglob("fox-1.png")).unlink()

    assert workspace.call("items", "foxes").out.count("(gone)") == 1
    assert "`batchkiln fetch foxes` downloads lost ones again" in workspace.call("run", manifest).out


def test_show_shows_the_whole_history(done: Workspace) -> None:
    """From the attempt to the file, with what to do next."""
    told = done.call("show", "foxes", "fox-1").out
    document = done.call("show", "foxes", "fox-1", "--json").document

    assert "attempt 1: succeeded" in told
    assert "All files are saved -> done" in told
    assert document["next"]
    assert [event["event"] for event in document["events"]][-1] == "files_saved"


def test_the_queue_may_be_named_before_the_command_and_by_the_environment(done: Workspace, tmp_path: Path) -> None:
    """--queue before the command, after it, and BATCHKILN_QUEUE: the one after it wins."""
    queue, none = str(done.folder / ".batchkiln/queue.db"), str(tmp_path / "none.db")
    elsewhere = Workspace(tmp_path)

    assert elsewhere.call("--queue", queue, "status", "foxes").exit == 0
    assert elsewhere.call("status", "foxes", BATCHKILN_QUEUE=queue).exit == 0
    assert elsewhere.call("--queue", queue, "status", "--queue", none).exit == 2


def test_a_queue_that_is_not_there_is_a_mistake_and_is_not_made(workspace: Workspace) -> None:
    """Reading or changing a mistyped queue makes no new one."""
    for command in (("status",), ("items", "foxes"), ("retry", "foxes"), ("pause", "foxes")):
        result = workspace.call(*command, "--queue", "none.db")
        assert result.exit == 2
        assert "the queue does not exist" in result.err

    assert not (workspace.folder / "none.db").exists()


def test_a_pipe_that_is_closed_early_ends_without_a_traceback(done: Workspace) -> None:
    """`batchkiln items … | head` is no error to look at."""
    process = done.starting_anew().start("items", "foxes", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    process.wait(30)

    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def test_a_bundle_for_the_support_holds_no_key(done: Workspace, tmp_path: Path) -> None:
    """One zip, with the request that was sent, and neither the key nor a folder of this machine. Law 8."""
    path = tmp_path / "support.zip"

    document = done.call("show", "foxes", "fox-1", "--bundle", str(path), "--json").document
    again = done.call("show", "foxes", "fox-1", "--bundle", str(path))

    keys = [key.read_bytes().strip() for key in (done.folder / ".batchkiln").rglob("key-*")]
    with zipfile.ZipFile(path) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
        assert json.loads(archive.read("request-1.json"))["prompt"] == "fox 1"
    assert document["bundle"] == {"path": str(path), "bytes": path.stat().st_size}
    assert document["charged"] == "2 credits"
    assert (again.exit, again.out) == (2, "")
    assert keys
    assert [secret for secret in (*keys, bytes(done.folder)) if secret in content] == []


def test_status_that_watches_ends_when_all_jobs_have_ended(done: Workspace) -> None:
    """One JSON line for each change, as `status --json` prints it; the text where nobody redraws it."""
    (line,) = done.call("status", "--watch", "--json").lines

    assert line["jobs"] == done.call("status", "--json").document["jobs"]
    assert "foxes" in done.call("status", "foxes", "--watch").out


def test_events_are_those_of_the_run(done: Workspace) -> None:
    """All events of a job in their order, or the last few of the queue."""
    lines = done.call("events", "foxes", "--json").lines

    assert [line["event"] for line in lines][:1] == ["job_created"]
    assert [(line["item"], line["state"]) for line in lines if line["event"] == "files_saved"] == [
        ("fox-1", "done"),
        ("fox-2", "done"),
    ]
    assert done.call("events", "--last", "2", "--json").lines == lines[-2:]
    assert "foxes/fox-2 -> done  All files are saved" in done.call("events").out


def test_events_of_an_unknown_job_are_an_error(done: Workspace) -> None:
    """A mistyped job is not an empty history."""
    assert done.call("events", "foxen").exit == 2


def test_events_go_on_with_what_happens(workspace: Workspace) -> None:
    """`--follow` prints what another process does, until a signal."""
    workspace.call("enqueue", workspace.manifest())
    follower = workspace.start("events", "--follow", "--json")
    workspace.call("work")

    assert '"item":"fox-1"' in until_line(follower, "files_saved")
    interrupt(follower)
    assert finished(follower).exit == 130


def test_times_are_those_of_the_person(done: Workspace) -> None:
    """Text is in the machine's time zone and names it; JSON stays in UTC."""
    indian = done.starting_anew()

    assert "history, times in IST" in indian.call("show", "foxes", "fox-1", TZ="Asia/Kolkata").out
    assert indian.call("events", "--json", TZ="Asia/Kolkata").lines == done.call("events", "--json").lines


def test_times_of_a_faster_clock_are_named_as_such(done: Workspace) -> None:
    """A time of the local service may lie in the future; what is made for programs stays as it is."""
    shown, events = done.call("show", "foxes", "fox-1"), done.call("events")

    note = "of the local service's clock (600 times as fast)"
    assert sum(note in line for line in shown.out.splitlines() if "history, times in" in line) == 1
    assert events.err.splitlines() == [f"Times of the profile local are those {note}."]
    assert note not in events.out
    assert not done.call("events", "--json").err


def test_an_error_is_json_where_json_was_asked_for(done: Workspace) -> None:
    """A program reads the message and the mistakes with their places; a person reads the same on standard error."""
    wrong = done.call("plan", "gone.yaml", "--json")
    unknown = done.call("status", "--json", "--nonsense")

    assert (wrong.document["exit"], unknown.document["exit"]) == (2, 2)
    assert wrong.document["mistakes"][0]["file"] == "gone.yaml"
    assert "--nonsense" in unknown.document["error"]
    assert "gone.yaml" in wrong.err
