"""`batchkiln report`, as a person runs it."""

import json
import re
from pathlib import Path

from integration.cli.workspace import UNHURRIED, Workspace, finished, until_line


def test_a_report_holds_the_pictures_and_nothing_of_this_machine(done: Workspace, tmp_path: Path) -> None:
    """One file: the pictures, the prompts, the costs; no folder, key or link of where it was made. Law 8."""
    target = tmp_path / "review.html"

    result = done.call("report", "foxes", "--to", str(target))

    html = target.read_text("utf-8")
    keys = [path.read_text("utf-8").strip() for path in (done.folder / ".batchkiln").rglob("key-*")]
    assert (result.exit, result.err) == (0, "")
    assert str(target) in result.out
    assert html.count("data:image/jpeg;base64,") == 2
    assert "fox 1" in html
    assert keys
    assert [secret for secret in (*keys, str(done.folder), "http://", "signature") if secret in html] == []


def test_what_was_written_is_reported_to_programs(done: Workspace, tmp_path: Path) -> None:
    """One document with the files, their sizes, and the sums that the page shows."""
    target = tmp_path / "review.html"

    document = done.call("report", "foxes", "--to", str(target), "--page-size", "1", "--json").document

    second = tmp_path / "review-2.html"
    assert document["files"] == [
        {"path": str(target), "bytes": target.stat().st_size},
        {"path": str(second), "bytes": second.stat().st_size},
    ]
    assert document["items"] == {"done": 2, "total": 2}
    assert document["credits"] == {"charged": 4, "refunded": 0, "reserved": 0}
    assert (document["pictures"], document["clips"], document["gone"]) == (2, 0, 0)


def test_a_job_that_was_not_begun_has_a_report(workspace: Workspace) -> None:
    """By default in the working directory, named for the job; queued items are there without a picture."""
    workspace.call("enqueue", workspace.manifest())

    result = workspace.call("report", "foxes")

    html = (workspace.folder / "foxes-report.html").read_text("utf-8")
    assert result.exit == 0
    assert re.search(r"<b>Not finished</b>: as of .* UTC, .*2 items \(epsilon-2\) have no price yet", html)
    assert "Nothing has been sent yet." in html
    assert html.count('data-state="queued"') == 2


def test_a_report_is_written_while_another_process_drives(workspace: Workspace) -> None:
    """The driver is neither stopped nor slowed, and what is under way is told as it stands."""
    workspace.configure(UNHURRIED)
    driver = workspace.start("run", workspace.manifest(items=3), "--json")
    until_line(driver, '"accepted"')

    result = workspace.call("report", "foxes", "--json")

    assert (result.exit, driver.poll()) == (0, None)
    assert result.document["items"]["total"] == 3
    assert result.document["credits"]["charged"] > 0
    driver.terminate()
    assert finished(driver).exit == 143


def test_folders_in_messages_and_metadata_are_left_out(workspace: Workspace) -> None:
    """An input that is lost is named by its file, and a column that holds a path by its last part."""
    (workspace.folder / "my pictures").mkdir()
    image = workspace.folder / "my pictures" / "owl.png"
    image.write_bytes((Path(__file__).parents[3] / "jobs/images/owl.png").read_bytes())
    (workspace.folder / "m.yaml").write_text(
        "version: 1\njob: owls\nitems:\n"
        "  - {id: owl, prompt: an owl, model: epsilon-2, mode: image-to-image, inputs: [my pictures/owl.png],\n"
        "     parameters: {resolution: 512x512, aspect_ratio: '1:1'},\n"
        f"     metadata: {{source: {json.dumps(str(image.with_name('notes.txt')))}, ratio: 1/2, page: https://a.test/b}}}}\n",
        encoding="utf-8",
    )
    workspace.call("enqueue", "m.yaml")
    image.write_bytes(b"something else")
    assert workspace.call("work").exit == 3

    workspace.call("report", "owls")

    html = (workspace.folder / "owls-report.html").read_text("utf-8")
    shown = re.sub("<[^>]+>", "", html)
    assert "input_lost" in shown
    assert "owl.png" in shown
    assert "source …/notes.txt" in shown
    assert "ratio 1/2" in shown
    assert "page https://a.test/b" in shown
    assert str(workspace.folder) not in html
    assert "my pictures" not in html


def test_a_key_that_slipped_into_a_prompt_is_left_out(workspace: Workspace) -> None:
    """The report redacts an API key that was pasted into a prompt by mistake. Law 8."""
    workspace.configure(
        "profiles:\n  studio:\n    base_url: http://127.0.0.1:9/api/v1\n"
        "    accounts: [{name: main, keys: [{env: STUDIO_KEY}]}]\n"
    )
    (workspace.folder / "m.yaml").write_text(
        "version: 1\njob: owls\nprofile: studio\nitems:\n"
        "  - {id: owl, prompt: an owl canary-key-123, model: epsilon-2, mode: text-to-image,\n"
        "     metadata: {note: canary-key-123}}\n",
        encoding="utf-8",
    )
    workspace.call("enqueue", "m.yaml")

    assert workspace.call("report", "owls", STUDIO_KEY="canary-key-123").exit == 0

    html = (workspace.folder / "owls-report.html").read_text("utf-8")
    assert "an owl [key]" in html
    assert "canary" not in html


def test_a_mistake_is_one_message(done: Workspace, tmp_path: Path) -> None:
    """A job that is not there, a folder that is not there, a file that is no report: exit 2, and nothing written."""
    (tmp_path / "mine.html").write_text("mine", "utf-8")
    calls = [
        ("report", "foxen", "--to", str(tmp_path / "a.html")),
        ("report", "foxes", "--to", str(tmp_path / "none/a.html")),
        ("report", "foxes", "--to", str(tmp_path / "mine.html")),
    ]

    results = [done.call(*call) for call in calls]

    assert [(result.exit, result.out, "Traceback" in result.err) for result in results] == [(2, "", False)] * 3
    assert "foxes" in results[0].err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.html"]
    assert (tmp_path / "mine.html").read_text("utf-8") == "mine"
