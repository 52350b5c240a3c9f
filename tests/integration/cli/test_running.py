"""`run`, `enqueue` and `work` against the embedded local service: output, exit codes, signals (contract, section 4)."""

import json
import signal
import time

import pytest
from filelock import FileLock

from integration.cli.workspace import UNHURRIED, Workspace, finished, interrupt, until_line

OLD_KEY = "lk_an-old-key-0123456789"


def test_a_run_ends_with_zero_and_says_where_the_files_are(workspace: Workspace) -> None:
    """Every item done: exit 0, results on standard output, the rest on standard error."""
    result = workspace.call("run", workspace.manifest())

    assert result.exit == 0, result.err
    assert "2 of 2 items done" in result.out
    assert "4 credits charged" in result.out
    assert str(workspace.folder / "out") in result.out.replace("\n", "")
    assert len(list((workspace.folder / "out" / "foxes").iterdir())) == 2


def test_a_second_run_of_a_finished_job_does_nothing(workspace: Workspace) -> None:
    """It says so, charges nothing and exits with 0."""
    manifest = workspace.manifest()
    workspace.call("run", manifest)

    result = workspace.call("run", manifest)

    assert result.exit == 0
    assert "Nothing to do" in result.out
    assert workspace.call("status", "foxes", "--json").document["credits"]["charged"] == 4


def test_events_are_lines_of_json_that_end_with_the_outcome(workspace: Workspace) -> None:
    """Every line of standard output is JSON; the last has the exit code and the jobs as `status` gives them."""
    result = workspace.call("run", workspace.manifest(), "--json")

    events = result.lines
    assert {"event", "at", "job", "item", "state"} <= set(events[0])
    assert sorted(event["item"] for event in events if event["event"] == "files_saved") == ["fox-1", "fox-2"]
    assert all(event["at"].endswith("Z") for event in events[:-1])
    assert events[-1]["event"] == "run_ended"
    assert events[-1]["exit"] == result.exit == 0
    assert events[-1]["jobs"][0]["items"]["done"] == 2


def test_quiet_says_nothing_on_standard_error(workspace: Workspace) -> None:
    """-q: no progress; the result is still there."""
    result = workspace.call("run", "-q", workspace.manifest())

    assert result.err == ""
    assert "2 of 2 items done" in result.out


def test_folder_of_a_new_queue_is_named(workspace: Workspace) -> None:
    """A typing error would make another queue, which knows nothing of what was paid."""
    first, again = (workspace.call("enqueue", "--queue", "some/deep/q.db", workspace.manifest()) for _ in range(2))

    assert "There is no folder some/deep yet: it is made for a new queue." in first.err
    assert "some/deep yet" not in again.err


def test_a_manifest_from_standard_input(workspace: Workspace) -> None:
    """`-` reads the manifest from a pipe."""
    text = (workspace.folder / workspace.manifest()).read_text()

    assert workspace.call("run", "-", stdin=text).exit == 0


def test_a_wrong_manifest_is_two_and_nothing_is_enqueued(workspace: Workspace) -> None:
    """A mistake is told with file and line, and no job is made."""
    (workspace.folder / "wrong.yaml").write_text("version: 1\njob: wrong\nitmes: []\n")

    result = workspace.call("run", "wrong.yaml")

    assert result.exit == 2
    assert "wrong.yaml:3" in result.err
    assert workspace.call("status", "--json").document["jobs"] == []


def test_an_item_over_its_cap_makes_three_and_names_the_next_command(workspace: Workspace) -> None:
    """Rejected items: exit 3, grouped by code, with `show` and what to change: a retry would be rejected again."""
    result = workspace.call("run", workspace.manifest(more="  max_cost_credits: 1"))

    assert result.exit == 3
    assert "rejected: 2 over_cap" in result.out
    assert "batchkiln show foxes fox-" in result.out
    assert "raise max_cost_credits in the manifest, or request less, then `batchkiln run " in result.out
    assert "batchkiln retry foxes" not in result.out


def test_max_credits_stops_with_work_left(workspace: Workspace) -> None:
    """--max-credits 2 pays one item of 2 credits: exit 5, and the command that goes on."""
    result = workspace.call("run", workspace.manifest(), "--max-credits", "2")

    assert result.exit == 5
    assert "1 of 2 items done" in result.out
    assert "To resume: `batchkiln run foxes.yaml --max-credits 2`" in result.err


def test_until_budget_stops_when_the_day_is_spent(workspace: Workspace) -> None:
    """With 2 credits a day the second item would wait for tomorrow: exit 5."""
    workspace.configure("profiles:\n  local:\n    time_scale: 600\n    limits: {credits_per_day: 2}\n")

    result = workspace.call("run", workspace.manifest(), "--until", "budget")

    assert result.exit == 5
    assert "1 of 2 items done" in result.out


def test_until_a_time_that_is_over_begins_nothing(workspace: Workspace) -> None:
    """--until TIME in the past: exit 5, nothing sent."""
    result = workspace.call("run", workspace.manifest(), "--until", "2020-01-01T00:00Z")

    assert result.exit == 5
    assert workspace.call("status", "foxes", "--json").document["credits"]["charged"] == 0


def test_enqueue_sends_nothing_and_work_takes_it_up(workspace: Workspace) -> None:
    """Enqueue only persists; work drives whatever is there."""
    enqueued = workspace.call("enqueue", workspace.manifest(), "--json")
    before = workspace.call("status", "foxes", "--json").document

    worked = workspace.call("work")

    assert enqueued.document["jobs"][0]["new"] == 2
    assert before["items"]["queued"] == 2
    assert worked.exit == 0
    assert "2 of 2 items done" in worked.out


def test_work_on_an_empty_queue_has_nothing_to_do(workspace: Workspace) -> None:
    """Nothing in the queue: exit 0, and the command that waits for items."""
    result = workspace.call("work")

    assert result.exit == 0
    assert result.out == "There is nothing to do. `batchkiln work --forever` waits for items.\n"


def test_enqueue_says_who_takes_the_items(workspace: Workspace) -> None:
    """A command for the queue that was named; nothing where nothing is queued."""
    first = workspace.call("enqueue", workspace.manifest(), "--queue", "other.db")
    workspace.call("work", "--queue", "other.db")
    again = workspace.call("enqueue", workspace.manifest(), "--queue", "other.db")

    assert first.out.endswith("`batchkiln work --queue other.db --forever foxes` also waits for more.\n")
    assert again.out.endswith("Nothing is queued: all items have ended before.\n")


def test_empty_prompt_file_is_told_with_its_place(workspace: Workspace) -> None:
    """Nothing is wrong with a manifest without items, so the exit code is 0; that it has none is not silent."""
    (workspace.folder / "prompts.txt").write_text("")
    defaults = "defaults: {model: epsilon-2, mode: text-to-image}"
    (workspace.folder / "m.yaml").write_text(f"version: 1\njob: empty\n{defaults}\nitems:\n  - from: prompts.txt\n")

    enqueued = workspace.call("enqueue", "m.yaml")
    run = workspace.call("run", "m.yaml")

    assert enqueued.exit == run.exit == 0
    assert "m.yaml:5: prompts.txt has no rows" in enqueued.err
    assert enqueued.out.endswith("Nothing is queued: there are no items.\n")
    assert "m.yaml:5: prompts.txt has no rows" in run.err
    assert "Nothing to do. empty: it has no items; 0 credits charged." in run.out


def test_command_below_rejected_items_names_the_manifest_as_it_was_typed(workspace: Workspace) -> None:
    """The path that the queue keeps is a long one, for other working directories."""
    (workspace.folder / "sub").mkdir()
    path = workspace.folder / "sub" / "m.yaml"
    item = "{id: owl, prompt: An owl, max_cost_credits: 1}"
    path.write_text(
        "version: 1\njob: owls\ndefaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}\n"
        f"items:\n  - {item}\n"
    )

    run = workspace.call("run", "sub/m.yaml")

    assert run.exit == 3
    assert "then `batchkiln run sub/m.yaml`" in " ".join(run.out.split())
    assert "then `batchkiln run sub/m.yaml`" in " ".join(workspace.call("status", "owls").out.split())


def test_enqueue_into_a_paused_job_names_unpause(workspace: Workspace) -> None:
    """Nobody takes the items before."""
    workspace.call("enqueue", workspace.manifest())
    workspace.call("pause", "foxes")

    again = workspace.call("enqueue", workspace.manifest())

    assert again.out.endswith("foxes is paused: `batchkiln unpause foxes` lets its items begin.\n")


def test_a_verdict_is_listed(workspace: Workspace) -> None:
    """The table has a column for it once an item has one."""
    workspace.call("run", workspace.manifest())
    before = workspace.call("items", "foxes")
    workspace.call("review", "foxes", "--keep", "fox-1")

    listed = workspace.call("items", "foxes")
    assert "VERDICT" not in before.out
    assert [" ".join(line.split()[:3]) for line in listed.out.splitlines()] == [
        "ITEM STATE VERDICT",
        "fox-1 done kept",
        "fox-2 done epsilon-2",
    ]


def test_old_failures_do_not_count_against_work(workspace: Workspace) -> None:
    """Work counts the jobs that it had to do with, not what ended long ago."""
    workspace.call("run", workspace.manifest("dear", more="  max_cost_credits: 1"))
    workspace.call("enqueue", workspace.manifest("foxes"))

    assert workspace.call("work").exit == 0


def test_a_paused_job_is_three_and_names_unpause(workspace: Workspace) -> None:
    """A paused job with queued items: exit 3, and how to let it go on."""
    manifest = workspace.manifest()
    workspace.call("enqueue", manifest)
    workspace.call("pause", "foxes")

    result = workspace.call("run", manifest)

    assert result.exit == 3
    assert "batchkiln unpause foxes" in result.err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_saves_and_shows_how_to_resume(
    workspace: Workspace, number: signal.Signals, status: int
) -> None:
    """130 or 143 after saving everything; the same command then finishes without paying twice."""
    workspace.configure(UNHURRIED)
    manifest = workspace.manifest()
    process = workspace.start("run", manifest, "--json")
    until_line(process, '"accepted"')

    interrupt(process, number)
    result = finished(process)

    assert result.exit == status
    assert "finishing the current work" in result.err
    assert f"batchkiln run {manifest} --json" in result.err
    assert json.loads(result.out.splitlines()[-1])["exit"] == status
    workspace.configure("profiles:\n  local:\n    time_scale: 600\n")
    assert workspace.call("run", manifest).exit == 0
    assert workspace.call("status", "foxes", "--json").document["credits"]["charged"] == 4


def test_the_second_signal_stops_at_once(workspace: Workspace) -> None:
    """A second SIGINT does not wait for anything: the exit code is the same, and the queue is whole."""
    workspace.configure(UNHURRIED)
    process = workspace.start("run", workspace.manifest(), "--json")
    until_line(process, '"accepted"')

    interrupt(process)
    interrupt(process)
    result = finished(process)

    assert result.exit == 130
    assert workspace.call("status", "foxes").exit == 0


def test_a_second_process_is_reported_who_drives_the_queue(workspace: Workspace) -> None:
    """One process drives a queue: exit 6, and status names the one that does."""
    workspace.configure(UNHURRIED)
    manifest = workspace.manifest(items=200)  # which no machine has done before the others have asked
    process = workspace.start("run", manifest, "--json")
    until_line(process, '"accepted"')

    second = workspace.call("run", manifest)
    driver = workspace.call("status", "--json").document["driver"]

    interrupt(process)
    finished(process)
    assert second.exit == 6
    assert str(process.pid) in second.err
    assert driver["pid"] == process.pid


def test_a_person_changes_the_queue_while_it_is_driven(workspace: Workspace) -> None:
    """Cancel works beside a run, which then ends without the canceled item."""
    workspace.configure(UNHURRIED)
    process = workspace.start("run", workspace.manifest(items=3), "--json")
    until_line(process, '"accepted"')

    canceled = workspace.call("cancel", "foxes", "fox-2", "fox-3", "--json")
    result = finished(process)

    assert canceled.document["canceled"] == 2
    assert result.exit == 0
    assert json.loads(result.out.splitlines()[-1])["jobs"][0]["items"]["done"] == 1


def test_an_account_that_needs_an_upgrade_is_four(workspace: Workspace) -> None:
    """An old key is refused: exit 4, what to do, nothing lost. Service rule 5.4."""
    (workspace.folder / "service.yaml").write_text(
        f"state_dir: service\naccounts: [{{name: main, keys: [{{value: {OLD_KEY}, legacy: true}}]}}]\n"
    )
    server = workspace.start("serve", "--config", "service.yaml", "--json")
    base_url = until_line(server, "base_url").split('"')[3]

    result = workspace.call("run", workspace.manifest(), BATCHKILN_BASE_URL=base_url, BATCHKILN_API_KEY=OLD_KEY)

    interrupt(server, signal.SIGTERM)
    assert finished(server).exit == 0
    assert result.exit == 4
    assert "api_key_upgrade_required" in result.err
    assert "    Create a new API key" in result.err
    assert OLD_KEY not in result.out + result.err
    assert workspace.call("status", "foxes", "--json").document["items"]["queued"] == 2


def test_forever_waits_for_more_until_a_signal(workspace: Workspace) -> None:
    """Work --forever takes up what is enqueued later, and ends with the signal's code."""
    process = workspace.start("work", "--forever", "--json")
    began_at = time.monotonic()
    while workspace.call("status").exit != 0 and time.monotonic() - began_at < 20:
        pass

    workspace.call("enqueue", workspace.manifest(items=1))
    until_line(process, '"files_saved"')
    interrupt(process, signal.SIGTERM)

    assert finished(process).exit == 143


def test_a_service_that_cannot_start_is_said(workspace: Workspace) -> None:
    """The embedded service's folder is in use: a sentence that names it, exit 2, nothing sent."""
    folder = workspace.folder / ".batchkiln" / "embedded" / "local"
    folder.mkdir(parents=True)

    with FileLock(folder / "lock"):
        result = workspace.call("run", workspace.manifest())

    assert result.exit == 2
    assert str(folder) in result.err.replace("\n", "")
    assert "nothing was sent" in result.err


def test_work_with_a_profile_leaves_the_others_alone(workspace: Workspace) -> None:
    """`--profile` says where credits may be spent: a job of another profile waits."""
    workspace.call("enqueue", workspace.manifest())
    workspace.configure("default_profile: other\nprofiles:\n  other: {time_scale: 2000}\n  local: {time_scale: 2000}\n")

    workspace.call("work", "--profile", "other")

    assert workspace.call("status", "foxes", "--json").document["items"]["queued"] == 2


def test_service_that_never_answers_ends_the_run(workspace: Workspace) -> None:
    """Exit 4 names the address as the place to look at; the items stay queued, and nothing was sent."""
    (workspace.folder / "one.yaml").write_text(
        "version: 1\njob: one\ndefaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}\n"
        "items: [a fox]\n"
    )
    nobody = {"BATCHKILN_BASE_URL": "http://127.0.0.1:9/api/v1", "BATCHKILN_API_KEY": "k"}

    ended = workspace.call("run", "one.yaml", "--yes", "--contact-timeout", "0.5", **nobody)

    assert ended.exit == 4
    cause = "cannot work: the service has given no usable answer since the run began."
    assert f"{cause}\n    Check `base_url` or BATCH" in ended.err
    assert workspace.call("status", "one", "--json").document["items"]["queued"] == 1


def test_work_on_a_paused_queue_says_that_it_is_paused(workspace: Workspace) -> None:
    """With the command that continues, rather than only that there is nothing to do."""
    (workspace.folder / "one.yaml").write_text(
        "version: 1\njob: one\ndefaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}\n"
        "items: [a fox]\n"
    )
    workspace.call("enqueue", "one.yaml")
    workspace.call("pause", "one")

    ended = workspace.call("work")

    assert "one is paused, 1 queued: `batchkiln unpause one`" in ended.out


def test_manifest_that_takes_its_items_to_another_profile_says_so(workspace: Workspace) -> None:
    """Before in the plan, and after it with the command that moves them back; `run` says it as well."""
    two = "default_profile: local\nprofiles:\n  other: {time_scale: 600}\n  local: {time_scale: 600}\n"
    workspace.configure(two)
    manifest = workspace.manifest()
    workspace.call("enqueue", manifest, "--profile", "other")

    plan = workspace.call("plan", manifest)
    told = "its items have the profile other: `run` moves them to local, since none was sent. With `--profile other`"
    assert told in " ".join(plan.out.split())
    moved = workspace.call("enqueue", manifest, "--json").document["jobs"][0]
    assert (moved["profile"], moved["moved_from"]) == ("local", "other")
    back = workspace.call("enqueue", manifest, "--profile", "other").out
    assert f"had the profile local, and `batchkiln enqueue {manifest} --profile local` moves" in back
    run = workspace.call("run", manifest, "--yes")

    assert run.exit == 0
    assert "profile local; its items had the profile other, and" in run.err
    again = workspace.call("run", manifest, "--profile", "other")
    assert again.exit == 2
    assert "uses the profile 'local', not 'other'; items that were sent there can only be downloaded there" in again.err
