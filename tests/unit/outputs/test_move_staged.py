"""Complete files that are still to be written to a URL move with their queue, and none is lost on the way."""

import errno
from pathlib import Path

import pytest

from batchkiln.outputs import move_staged


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_other_disk", [False, True])
def test_all_files_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_other_disk: bool) -> None:
    """Also to another disk, and a second time after a crash between a file's arrival and its removal."""
    old, new = tmp_path / "old", tmp_path / "new"
    write(old / "1f/foxes/fox.png", b"fox")
    write(old / "1f/foxes/owl.png", b"owl")
    write(new / "1f/foxes/owl.png", b"owl")
    if is_other_disk:
        monkeypatch.setattr(Path, "rename", _across_disks)

    moved = move_staged(old, new)

    assert moved == (2, ())
    assert content(new) == {"1f/foxes/fox.png": b"fox", "1f/foxes/owl.png": b"owl"}
    assert content(old) == {}


def test_a_file_whose_name_is_taken_is_left(tmp_path: Path) -> None:
    """Neither is lost, and whoever moves the queue is told."""
    left = write(tmp_path / "old/1f/fox.png", b"fox")
    taken = write(tmp_path / "new/1f/fox.png", b"another fox")

    assert move_staged(tmp_path / "old", tmp_path / "new") == (0, (left,))
    assert (left.read_bytes(), taken.read_bytes()) == (b"fox", b"another fox")


def test_no_files_are_no_error(tmp_path: Path) -> None:
    """Most queues have none."""
    assert move_staged(tmp_path / "old", tmp_path / "new") == (0, ())


def _across_disks(path: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link", str(path), None, str(target))
