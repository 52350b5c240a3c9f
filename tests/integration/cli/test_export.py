"""`batchkiln export`, as a person runs it (contract, sections 4 and 9)."""

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from integration.cli.workspace import Workspace, finished, interrupt

FORMATS = ["jsonl", "csv", "parquet", "imagefolder", "webdataset"]


@pytest.mark.parametrize("wanted", FORMATS)
def test_a_job_becomes_a_dataset(done: Workspace, tmp_path: Path, wanted: str) -> None:
    """The counts are one document on standard output, and a second time nothing is new."""
    command = ("export", "foxes", "--format", wanted, "--to", str(tmp_path / "to"), "--json")

    first, second = done.call(*command), done.call(*command)

    assert (first.exit, first.err, second.exit) == (0, "", 0)
    told = first.document
    assert (told["job"], told["format"], told["to"]) == ("foxes", wanted, str(tmp_path / "to"))
    assert [told[name] for name in ("items", "files", "new", "there", "images", "videos", "left_out")] == [
        2,
        2,
        2,
        0,
        2,
        0,
        0,
    ]
    assert (told["splits"], told["problems"]) == ({"train": 2}, [])
    assert (second.document["new"], second.document["there"]) == (0, 2)


def test_the_outputs_stay_where_they_are(done: Workspace, tmp_path: Path) -> None:
    """Media are linked or copied, never moved; the queue is not changed."""
    before = done.call("items", "foxes", "--json").lines

    done.call("export", "foxes", "--format", "imagefolder", "--to", str(tmp_path / "to"))

    assert done.call("items", "foxes", "--json").lines == before
    assert all(Path(output["path"]).is_file() for item in before for output in item["outputs"])


def test_no_secret_and_no_path_is_in_an_export(done: Workspace, tmp_path: Path) -> None:
    """The API key of the local service, its links, and the folders of this machine. Law 8."""
    key = (done.folder / ".batchkiln").rglob("key-*")
    canaries = [path.read_bytes().strip() for path in key] + [str(done.folder).encode(), str(tmp_path).encode()]
    canaries += [b"Bearer", b"http://127.0.0.1", b"signature"]

    for wanted in FORMATS:
        assert done.call("export", "foxes", "--format", wanted, "--to", str(tmp_path / wanted)).exit == 0

    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]
    assert len(canaries) >= 5
    assert len(texts) == 10
    assert [canary for canary in canaries for text in texts if canary in text] == []


def test_missing_files_are_named_and_left_out(done: Workspace, tmp_path: Path) -> None:
    """Exit 3, with the item, the file and the reason, and what to do."""
    copy = Workspace(tmp_path / "copy")
    shutil.copytree(done.folder, copy.folder)
    path = Path(done.call("items", "foxes", "--json").lines[0]["outputs"][0]["path"])
    hidden = path.with_suffix(".hidden")
    path.rename(hidden)
    try:
        told = copy.call("export", "foxes", "--to", "to", "--json")
        again = copy.call("export", "foxes", "--to", "to")
    finally:
        hidden.rename(path)

    assert (told.exit, again.exit) == (3, 3)
    assert (told.document["files"], told.document["left_out"]) == (1, 1)
    assert told.document["problems"] == [{"item": "fox-1", "path": str(path), "reason": "the file is gone"}]
    assert f"left out: fox-1: {path}: the file is gone" in told.err
    assert "1 file left out" in again.out


def test_what_is_done_later_is_added(workspace: Workspace) -> None:
    """The same command adds it at the default destination; a job without results is reported."""
    workspace.call("enqueue", workspace.manifest())
    nothing = workspace.call("export", "foxes")
    workspace.call("run", workspace.manifest())
    first = workspace.call("export", "foxes", "--split", "train=0.5,test=0.5")
    workspace.call("run", workspace.manifest(items=6))
    later = workspace.call("export", "foxes", "--split", "train=0.5,test=0.5")

    assert (nothing.exit, first.exit, later.exit) == (3, 0, 0)
    assert "no files yet" in nothing.out
    assert "exports/foxes/jsonl (4 new, 2 unchanged)" in later.out
    tables = (workspace.folder / "exports/foxes/jsonl").glob("*.jsonl")
    rows = [json.loads(line) for table in tables for line in table.read_text("utf-8").splitlines()]
    assert sorted(row["item"] for row in rows) == [f"fox-{number}" for number in range(1, 7)]


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        ("train=0.9,test=0.2", "add up to 1.1"),
        ("train", "write NAME=SHARE"),
        ("train=x", "write NAME=SHARE"),
        ("../up=1", "write NAME=SHARE"),
        ("a=0.5,a=0.5", "appears twice"),
        ("a=nan,b=1", "write NAME=SHARE"),
    ],
)
def test_a_mistaken_split_is_a_usage_error(done: Workspace, tmp_path: Path, split: str, reason: str) -> None:
    """Nothing is written."""
    result = done.call("export", "foxes", "--to", str(tmp_path / "to"), "--split", split)

    assert (result.exit, result.out) == (2, "")
    assert reason in result.err
    assert not (tmp_path / "to").exists()


def test_an_unknown_job_is_reported(done: Workspace) -> None:
    """As for every command: exit 2, and the one that is near."""
    result = done.call("export", "foxen", "--format", "webdataset")

    assert result.exit == 2
    assert "foxes" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_export(done: Workspace, tmp_path: Path, number: signal.Signals) -> None:
    """With the status that says so, in the middle of a file that takes minutes to read; nothing half is left."""
    copy = Workspace(tmp_path / "copy")
    shutil.copytree(done.folder, copy.folder)
    endless = tmp_path / "endless.png"
    with endless.open("wb") as file:
        file.truncate(1 << 40)
    with closing(sqlite3.connect(copy.folder / ".batchkiln/queue.db")) as queue, queue:
        end_of = "WHERE path LIKE '%/' || ?"  # either may have been saved first
        queue.execute(f"UPDATE output SET path = '/nowhere' {end_of}", ("fox-1.png",))
        queue.execute(f"UPDATE output SET path = ?, size_bytes = ? {end_of}", (str(endless), 1 << 40, "fox-2.png"))

    process = copy.start("export", "foxes", "--to", "to")
    assert process.stderr is not None
    assert "left out: fox-1" in process.stderr.readline()
    interrupt(process, number)
    result = finished(process)

    assert result.exit == 128 + number
    assert "continues from there" in result.err
    assert [path.name for path in (copy.folder / "to").rglob("*")] == ["README.md"]
