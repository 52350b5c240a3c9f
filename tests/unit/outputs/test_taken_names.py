"""Names of new items that exist already: `plan` and `enqueue` warn of them, in folders and at URLs."""

from pathlib import Path
from uuid import uuid4

import pytest

from batchkiln.core.errors import StorageError
from batchkiln.object_storage import ObjectFolder
from batchkiln.outputs import paths
from batchkiln.outputs.paths import taken_names


def test_files_and_objects_are_found_whatever_their_extension(tmp_path: Path) -> None:
    """The content decides the extension later."""
    url = f"memory://{uuid4().hex}"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "fox.png").touch()
    ObjectFolder(url).write("a/fox.png", b"a fox")

    for place in (str(tmp_path), url):
        assert taken_names(place, iter(["a/fox.image", "a/owl.image", "b/fox.image"])) == ["a/fox.png"]


def test_a_place_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan does not wait for each folder."""
    asked = []

    def away(_: ObjectFolder, folder: str) -> list[str]:
        asked.append(folder)
        raise StorageError("the network is down")

    monkeypatch.setattr(ObjectFolder, "names", away)

    assert taken_names("s3://studio/out", (f"{n}/fox.png" for n in range(100))) == []
    assert asked == ["0"]


def test_so_many_folders_are_listed_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern may give each item a folder of its own."""
    monkeypatch.setattr(ObjectFolder, "names", lambda _, folder: ["fox.png"] if folder else [])

    found = taken_names("s3://studio/out", (f"{n}/fox.png" for n in range(1, 100)))

    assert len(found) == paths._MAX_LISTINGS
