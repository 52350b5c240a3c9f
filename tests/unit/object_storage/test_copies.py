"""Local copies of objects: what reads a result reads a file."""

import errno
import hashlib
import os
from pathlib import Path
from uuid import uuid4

import pytest

from batchkiln import object_storage
from batchkiln.object_storage import ObjectFolder, StorageSettings, held_file, local_file
from batchkiln.object_storage.copies import held_copy


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def an_object(content: bytes) -> dict[str, str | int]:
    folder = ObjectFolder(f"memory://{uuid4().hex}")
    folder.write("fox.png", content)
    return {"path": folder.url_of("fox.png"), "sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}


def test_a_path_is_itself(tmp_path: Path) -> None:
    """Nothing is read."""
    assert local_file(str(tmp_path / "fox.png"), sha256="", size_bytes=0) == tmp_path / "fox.png"


def test_an_object_is_read_once() -> None:
    """Its copy keeps the extension."""
    told = an_object(b"a fox")
    first = local_file(**told)  # type: ignore[arg-type]
    ObjectFolder(str(told["path"]).rpartition("/")[0]).remove("fox.png")

    again = local_file(**told)  # type: ignore[arg-type]

    assert first == again
    assert first.suffix == ".png"
    assert first.read_bytes() == b"a fox"


def test_an_object_that_is_gone_is_told() -> None:
    """As a file is."""
    with pytest.raises(FileNotFoundError):
        local_file("memory://nothing/fox.png", sha256="0" * 64, size_bytes=5)


@pytest.mark.parametrize("other", [b"a wolf that is longer", b"a wol"])
def test_an_object_with_other_content_is_not_taken(other: bytes) -> None:
    """It was replaced after it was recorded."""
    told = an_object(other) | {"sha256": hashlib.sha256(b"a fox").hexdigest(), "size_bytes": 5}

    with pytest.raises(OSError, match=r"other content|more than 5 bytes"):
        local_file(**told)  # type: ignore[arg-type]


def test_copies_are_bounded(tmp_path: Path) -> None:
    """Those that were unused for the longest time go."""
    object_storage.configure(lambda: StorageSettings(copies_bytes=2_500))
    try:
        copies = [local_file(**an_object(bytes([number]) * 1_000)) for number in range(4)]  # type: ignore[arg-type]
    finally:
        object_storage.configure(StorageSettings)

    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.png")) == 2_000
    assert copies[-1].exists()


def test_what_another_process_reads_or_holds_stays() -> None:
    """Even if no copies are kept; what a crash has left behind a day ago is removed."""
    object_storage.configure(lambda: StorageSettings(copies_bytes=0))
    try:
        with held_file(**an_object(b"held")) as held:  # type: ignore[arg-type]
            part = held.parent.parent / "ab" / ".fox.png.1f.part"
            left = part.with_name(".owl.png.2e.part")
            for each in (part, left):
                each.parent.mkdir(exist_ok=True)
                each.write_bytes(b"half")
            os.utime(left, (0, 0))

            newest = local_file(**an_object(b"another"))  # type: ignore[arg-type]

            assert held.read_bytes() == b"held"
    finally:
        object_storage.configure(StorageSettings)
    assert (part.exists(), left.exists(), newest.exists()) == (True, False, True)
    assert not held.parent.exists()


def test_a_copy_is_held_where_the_file_system_has_no_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As exFAT and some network mounts: its content is copied, and a copy that is missing is still told as missing."""

    def refuse(_: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no hard links here", str(target))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    told = an_object(b"a fox")

    with held_file(**told) as held:  # type: ignore[arg-type]
        assert held.read_bytes() == b"a fox"
    with pytest.raises(FileNotFoundError), held_copy("0" * 64, "owl.png"):
        pass
