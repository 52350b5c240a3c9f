"""What is a manifest in a watched folder, and when it is taken as whole."""

import os
from math import inf
from pathlib import Path

import pytest

from batchkiln.watch.folder import FileStamp, StabilityTracker, manifests_in, sha256_of

FIRST, SECOND = FileStamp(1, 10, 100), FileStamp(1, 20, 200)


def test_only_files_of_the_folder_itself_are_manifests(tmp_path: Path) -> None:
    """Links, folders, pipes, hidden files, results, data and the configuration are passed over."""
    folder = tmp_path / "inbox"
    (folder / "deep.yaml").mkdir(parents=True)
    (folder / "deep.yaml" / "inner.yaml").write_text("x")
    (tmp_path / "outside.yaml").write_text("x")
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    os.mkfifo(folder / "pipe.yaml")
    for name in ("birds.yaml", "foxes.yml", ".hidden.yaml", "birds.result.json", "prompts.tsv", "batchkiln.yaml"):
        (folder / name).write_text("x")

    assert sorted(manifests_in(folder, ignored=["batchkiln.yaml"])) == ["birds.yaml", "foxes.yml"]


def test_link_put_in_a_files_place_is_not_read(tmp_path: Path) -> None:
    """Between the look and the reading somebody may swap it: that is an error, and no content from elsewhere."""
    (tmp_path / "secret").write_text("x")
    (tmp_path / "birds.yaml").symlink_to(tmp_path / "secret")

    with pytest.raises(OSError, match=r"birds\.yaml"):
        sha256_of(tmp_path / "birds.yaml")


def test_file_is_due_when_it_has_been_still() -> None:
    """A second without a change, counted from the last one that was seen."""
    tracker = StabilityTracker(1.0)

    assert tracker.update({"a.yaml": FIRST}, 0.0) == []
    assert tracker.update({"a.yaml": SECOND}, 0.9) == []
    assert tracker.update({"a.yaml": SECOND}, 1.5) == []
    assert tracker.next_due_at == 1.9
    assert tracker.update({"a.yaml": SECOND}, 1.9) == ["a.yaml"]


def test_what_was_dealt_with_is_left_alone_until_it_changes() -> None:
    """The same bytes are looked at once; a change, or a removal in between, makes it new."""
    tracker = StabilityTracker(1.0)
    tracker.update({"a.yaml": FIRST}, 0.0)
    tracker.update({"a.yaml": FIRST}, 1.0)
    tracker.mark_handled("a.yaml")

    assert tracker.update({"a.yaml": FIRST}, 9.0) == []
    assert tracker.next_due_at == inf
    assert tracker.update({"a.yaml": SECOND}, 10.0) == []
    assert tracker.update({"a.yaml": SECOND}, 11.0) == ["a.yaml"]
    assert tracker.update({}, 12.0) == []
    assert tracker.next_due_at == inf


def test_what_cannot_be_taken_now_is_tried_again_later() -> None:
    """A postponed file is due at its moment, unchanged."""
    tracker = StabilityTracker(1.0)
    tracker.update({"a.yaml": FIRST}, 0.0)
    tracker.update({"a.yaml": FIRST}, 1.0)
    tracker.postpone("a.yaml", 31.0)

    assert tracker.update({"a.yaml": FIRST}, 30.0) == []
    assert tracker.update({"a.yaml": FIRST}, 31.0) == ["a.yaml"]
