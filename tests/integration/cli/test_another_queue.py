"""The same manifest from another folder has another queue: what stands in the output folder is told before paying."""

import json
import re

from integration.cli.workspace import Workspace, on_a_terminal

OTHER = "other.db"


def charged(workspace: Workspace, queue: str) -> int:
    found: int = workspace.call("status", "foxes", "--json", "--queue", queue).document["credits"]["charged"]
    return found


def test_another_queue_with_the_same_outputs_is_reported(workspace: Workspace) -> None:
    """Without a terminal, a warning names a file and the remedy, and the run continues."""
    manifest = workspace.manifest()
    assert "files_there_already" not in workspace.call("run", manifest).err

    enqueued = workspace.call("enqueue", manifest, "--queue", OTHER)
    again = workspace.call("run", manifest, "--queue", OTHER)

    assert "files_there_already" in enqueued.err
    assert "fox-1" in enqueued.err
    assert "--queue" in enqueued.err
    assert "files_there_already" not in again.err  # told when they were enqueued
    assert again.exit == 0


def test_a_plan_shows_what_another_queue_may_have_made(workspace: Workspace) -> None:
    """Before anything is enqueued, among its warnings; for its own files there is none."""
    manifest = workspace.manifest()
    workspace.call("run", manifest)

    other = workspace.call("plan", manifest, "--json", "--queue", OTHER).document
    same = workspace.call("plan", workspace.manifest(items=3), "--json").document

    assert "files_there_already" in json.dumps(other)
    assert "files_there_already" not in json.dumps(same)


def test_printed_commands_name_the_queue_that_was_given(workspace: Workspace) -> None:
    """As they stand, they would begin in the default queue, which makes and pays for everything again."""
    manifest = workspace.manifest()
    text = (workspace.folder / manifest).read_text("utf-8")
    (workspace.folder / manifest).write_text(f"{text}  - {{id: dear, prompt: x, max_cost_credits: 1}}\n", "utf-8")

    told = [workspace.call("run", manifest, "--queue", OTHER)]
    told += [workspace.call(*words, "--queue", OTHER) for words in (["status", "foxes"], ["show", "foxes", "dear"])]

    for called in told:
        commands = re.findall(r"`(batchkiln [^`]*)`", called.out + called.err)
        assert commands
        assert [command for command in commands if f"--queue {OTHER}" not in command] == []


def test_the_same_queue_says_nothing(workspace: Workspace) -> None:
    """Its own files are no surprise, also where a manifest has grown."""
    workspace.call("run", workspace.manifest())

    grown = workspace.call("run", workspace.manifest(items=3))

    assert grown.exit == 0
    assert "files_there_already" not in grown.err


def test_restored_queue_is_not_warned_of_what_it_has_paid(workspace: Workspace) -> None:
    """It knows the attempts that its older copy lacks, sends them again under their keys, and pays nothing again."""
    manifest, queue = workspace.manifest(), workspace.folder / ".batchkiln" / "queue.db"
    assert workspace.call("migrate").exit == 0
    older = queue.read_bytes()
    assert workspace.call("run", manifest).exit == 0
    for name in ("queue.db-wal", "queue.db-shm"):
        queue.with_name(name).unlink(missing_ok=True)
    queue.write_bytes(older)

    before = workspace.call("plan", manifest)
    read = workspace.call("work")
    enqueued = workspace.call("enqueue", manifest)
    again = workspace.call("work", "--until", "done")

    assert "knows what was paid, and nothing is paid again" in " ".join(before.out.split())
    assert "queue_restored" in read.err
    assert "files_there_already" not in enqueued.err
    assert again.exit == 0
    assert charged(workspace, str(queue)) == 4


def test_a_person_is_asked_before_anything_is_paid_again(workspace: Workspace) -> None:
    """On a terminal the files are told once; a no sends nothing, and says how to take the items out again."""
    manifest = workspace.manifest()
    workspace.call("run", manifest)

    status, shown = on_a_terminal(
        workspace, "run", manifest, "--queue", OTHER, answer="n", question="may be charged a second time. Continue?"
    )

    assert status == 2
    assert shown.count("already exist") == 1
    assert "nothing was sent or spent" in shown
    assert "batchkiln cancel --queue other.db foxes" in shown.replace("\r\n", "\n")
    assert charged(workspace, OTHER) == 0
