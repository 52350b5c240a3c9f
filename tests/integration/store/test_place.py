"""The queue's path: links to the file are followed, and new folders survive a power cut."""

import os
from pathlib import Path

import pytest

from batchkiln.config import queue_path
from batchkiln.store.sqlite.file_database import SqliteDatabase


def test_link_to_the_file_is_followed_and_other_paths_stay_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lock and log lie beside the file itself; a message names the path that a person gave, wherever it can."""
    monkeypatch.chdir(tmp_path)
    Path("real").mkdir()
    Path("folder").symlink_to("real")
    Path("link.db").symlink_to("real/queue.db")
    Path("far.db").symlink_to("link.db")
    Path("circle.db").symlink_to("circle.db")

    resolved = [queue_path(Path(name)) for name in ("link.db", "far.db", "folder/queue.db", "circle.db", "new.db")]

    file = tmp_path.resolve() / "real" / "queue.db"
    assert resolved == [file, file, Path("folder/queue.db"), Path("circle.db"), Path("new.db")]


async def test_new_folders_are_flushed_into_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 2: a power cut must not take the queue with its keys after a create was sent, folder and all."""
    flushed: list[int] = []
    really = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        really(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    database = await SqliteDatabase.open_for_writing(tmp_path / "deep" / "folder" / "queue.db")
    await database.close()

    assert flushed == [folder.stat().st_ino for folder in (tmp_path, tmp_path / "deep")]
