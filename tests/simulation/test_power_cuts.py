"""What a power cut leaves of a file whose name another had before."""

import os
import random
from pathlib import Path

from simulation.power_cuts import Disk


def left_after(folder: Path, seed: int) -> bytes | None:
    """Make a file anew under a name that an unsafe one had, cut the power, and return what is left."""
    name, picture = folder / "x.part", folder / "picture"
    name.write_bytes(b"old")
    disk = Disk(folder)
    disk.unlinking(name)
    name.unlink()
    handle = os.open(name, os.O_CREAT | os.O_WRONLY)
    disk.created(name, handle)
    os.write(handle, b"synced")
    disk.handle_synced(handle)
    os.write(handle, b" not")
    os.close(handle)
    picture.mkdir()
    (picture / name.name).write_bytes(name.read_bytes())

    disk.cut(picture, "drawn", random.Random(seed))

    left = picture / name.name
    return left.read_bytes() if left.exists() else None


def test_either_of_two_files_of_one_name_is_left_or_none(tmp_path: Path) -> None:
    """Removal and making are two changes of the folder: each may be on the disk or not."""
    found = set()
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found.add(left_after(folder, seed))

    assert found >= {None, b"old", b"synced"}
    assert all(left in {None, b"old"} or left.startswith(b"synced") for left in found)
