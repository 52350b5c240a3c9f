"""The hook `on_saved` through whole runs: it decides, it delays nothing without bound, and it gets no secret."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

import batchkiln
from batchkiln.core.errors import InputError
from batchkiln.hooks import run_hooks

SMALL: batchkiln.Defaults = {"model": "epsilon-2", "mode": "text-to-image", "parameters": {"resolution": "512x512"}}
NOTES = """
import json, os, pathlib, sys
item = json.load(sys.stdin)
notes = pathlib.Path("notes.jsonl")
notes.open("a").write(json.dumps({"item": item, "arguments": sys.argv[1:], "environment": dict(os.environ)}) + "\\n")
"""


def config_of(folder: Path, source: str, *arguments: str, **settings: object) -> dict[str, object]:
    (folder / "hook.py").write_text(NOTES + source)
    command = [sys.executable, str(folder / "hook.py"), *arguments]
    return {"profiles": {"local": {"time_scale": 600}}, "on_saved": {"command": command, **settings}}


def notes(folder: Path) -> list[dict[str, Any]]:
    path = folder / "notes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def drive(folder: Path, config: dict[str, object], *prompts: str) -> batchkiln.RunResult:
    async with batchkiln.open_queue(folder / "q.db", config=config, working_dir=folder) as queue:
        await queue.enqueue_items(prompts, job="foxes", defaults=SMALL)
        return await queue.run()


async def item(folder: Path, config: dict[str, object]) -> Any:  # noqa: ANN401  an ItemSummary
    async with batchkiln.open_queue(folder / "q.db", config=config, working_dir=folder) as queue:
        return await anext(queue.items("foxes"))


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_each_item_is_told_before_the_run_ends(tmp_path: Path) -> None:
    """As JSON and in the arguments; the next run does not tell it again."""
    config = config_of(tmp_path, "", "{path}", "{{{job}}}/{item}")
    await drive(tmp_path, config, "A fox", "An owl")
    await drive(tmp_path, config, "A fox", "An owl")

    told = sorted(notes(tmp_path), key=lambda note: str(note["item"]["item"]))
    assert [note["item"]["prompt"] for note in told] == ["A fox", "An owl"]
    path = tmp_path / "out" / "foxes" / "item-1.png"
    assert told[0]["arguments"] == [str(path), "{foxes}/item-1"]
    assert told[0]["item"]["path"] == str(path)


@pytest.mark.parametrize(("status", "verdict"), [(0, None), (10, "kept"), (11, "dropped"), (3, None)])
async def test_the_exit_status_keeps_or_drops(tmp_path: Path, status: int, verdict: str | None) -> None:
    """Other statuses decide nothing; one that is a failure is logged, and the run does not mind."""
    config = config_of(tmp_path, f"print('blurred'); raise SystemExit({status})")

    with structlog.testing.capture_logs() as logs:
        ending = await drive(tmp_path, config, "A fox")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    assert (await item(tmp_path, config)).verdict == verdict
    failures = [(entry["reason"], entry["message"]) for entry in logs if entry["event"] == "hook_failed"]
    assert failures == ([("it ended with exit status 3", "blurred")] if status == 3 else [])


async def test_redo_is_made_within_the_same_run(tmp_path: Path) -> None:
    """The run waits for the hook of its last item, makes the item again, and asks the hook again."""
    config = config_of(tmp_path, "raise SystemExit(12 if item['version'] == 1 else 10)", redo_credits=100)

    ending = await drive(tmp_path, config, "A fox")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    made = await item(tmp_path, config)
    assert (made.version, made.verdict) == (2, "kept")
    assert [note["item"]["version"] for note in notes(tmp_path)] == [1, 2]


async def test_redo_costs_nothing_unless_credits_are_given(tmp_path: Path) -> None:
    """Without `redo_credits` the wish is told, and nothing is spent."""
    config = config_of(tmp_path, "raise SystemExit(12)")

    with structlog.testing.capture_logs() as logs:
        await drive(tmp_path, config, "A fox")

    assert (await item(tmp_path, config)).version == 1
    (refused,) = [entry["reason"] for entry in logs if entry["event"] == "hook_not_followed"]
    assert "on_saved.redo_credits (0)" in refused


async def test_a_hook_that_hangs_does_not_hold_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends after its bound, all items are done, and the next run runs what was left."""
    monkeypatch.setattr(run_hooks, "END_SECONDS", 0.0)
    hanging = config_of(tmp_path, "import time; time.sleep(1000)", at_once=1, timeout_seconds=3600)

    with structlog.testing.capture_logs() as logs:
        ending = await drive(tmp_path, hanging, "A fox", "An owl")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    assert "hooks_left" in [entry["event"] for entry in logs]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.jsonl").unlink(missing_ok=True)

    await drive(tmp_path, config_of(tmp_path, ""), "A fox", "An owl")

    assert sorted(note["item"]["prompt"] for note in notes(tmp_path)) == ["A fox", "An owl"]


async def test_no_secret_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keys nor addresses of the configuration reach the program; the rest does (Law 8)."""
    for name in ("BATCHKILN_API_KEY", "STUDIO_KEY", "PHONE_URL", "CI_SECRET", "PGPASSWORD"):
        monkeypatch.setenv(name, "canary-5e1f")
    monkeypatch.setenv("MOOD", "calm")
    config = config_of(tmp_path, "")
    config["profiles"] = {
        "local": {"time_scale": 600},
        "studio": {"base_url": "https://studio.example", "accounts": [{"name": "a", "keys": [{"env": "STUDIO_KEY"}]}]},
    }
    config["notify"] = {
        "phone": {"apprise": {"env": "PHONE_URL"}, "events": []},
        "ci": {"webhook": {"url": "https://ci.example", "secret_env": "CI_SECRET"}, "events": []},
    }

    await drive(tmp_path, config, "A fox")

    (note,) = notes(tmp_path)
    assert note["environment"]["MOOD"] == "calm"
    assert "canary-5e1f" not in json.dumps(note)


async def test_a_missing_program_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    """A quality filter that is not there must not be missed silently."""
    config = config_of(tmp_path, "") | {"on_saved": ["no-such-program", "{path}"]}

    with pytest.raises(InputError, match="on_saved: there is no program no-such-program; nothing was sent"):
        await drive(tmp_path, config, "A fox")

    assert (await item(tmp_path, config)).state == "queued"


async def test_redo_by_what_an_earlier_run_left_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has nothing to do but to ask the hook makes what the hook wants."""
    with monkeypatch.context() as hurried:
        hurried.setattr(run_hooks, "END_SECONDS", 0.0)
        await drive(tmp_path, config_of(tmp_path, "import time; time.sleep(1000)", timeout_seconds=3600), "A fox")
    config = config_of(tmp_path, "raise SystemExit(12 if item['version'] == 1 else 10)", redo_credits=100)

    ending = await drive(tmp_path, config, "A fox")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    made = await item(tmp_path, config)
    assert (made.version, made.verdict) == (2, "kept")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "it was ended by signal 9"),
        ("while True: print('x' * 1000)", "it wrote more than 1,048,576 bytes, and was ended"),
        ("import time; time.sleep(1000)", "it had not ended after 1 seconds, and was ended"),
        ("import os, time\nif os.fork() == 0: time.sleep(1000)\nraise SystemExit(7)", "it ended with exit status 7"),
    ],
)
async def test_a_hook_that_fails_is_told_once(tmp_path: Path, source: str, reason: str) -> None:
    """One clear line; the item is done and untouched, the run goes on, and the next run does not try again."""
    config = config_of(tmp_path, source, timeout_seconds=1)

    with structlog.testing.capture_logs() as logs:
        ending = await drive(tmp_path, config, "A fox")
        await drive(tmp_path, config, "A fox")

    assert ending.exit_status is batchkiln.ExitStatus.OK
    failures = [(line["job"], line["item"], line["reason"]) for line in logs if line["event"] == "hook_failed"]
    assert failures == [("foxes", "item-1", reason)]
    made = await item(tmp_path, config)
    assert (made.state, made.version, made.verdict, len(made.outputs)) == ("done", 1, None, 1)
