"""Answers: their names, that they are whole, and that nothing else is taken for one."""

import errno
import os
from pathlib import Path

import orjson
import pytest

from batchkiln.watch.result_files import ResultFile, read_result, result_name, write_result

DOCUMENT = {"manifest": "birds.yaml", "sha256": "00", "status": "accepted", "job": "birds", "new": 3}


def test_answer_has_the_manifests_name() -> None:
    """Two manifests that differ in their ending alone do not share one."""
    assert result_name("birds.yaml", ["birds.yaml"]) == "birds.result.json"
    assert result_name("birds.yml", ["birds.yml"]) == "birds.result.json"
    assert result_name("birds.yml", ["birds.yaml", "birds.yml"]) == "birds.yml.result.json"


def test_written_answer_is_read_again(tmp_path: Path) -> None:
    """What a restart goes by is there, and nothing beside it is left."""
    write_result(tmp_path / "birds.result.json", DOCUMENT)

    assert read_result(tmp_path / "birds.result.json") == ResultFile("birds.yaml", "00", "accepted", "birds")
    assert [path.name for path in tmp_path.iterdir()] == ["birds.result.json"]


def test_failed_write_leaves_the_answer_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs the new answer, not the old one, and leaves no temporary file."""
    path = tmp_path / "birds.result.json"
    write_result(path, DOCUMENT)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no room"):
        write_result(path, DOCUMENT | {"status": "ended"})

    assert orjson.loads(path.read_bytes()) == DOCUMENT
    assert [path.name for path in tmp_path.iterdir()] == ["birds.result.json"]


def test_link_is_replaced_and_never_followed(tmp_path: Path) -> None:
    """Who may write into the folder cannot have files elsewhere written or read by it."""
    target = tmp_path / "elsewhere"
    target.write_bytes(orjson.dumps(DOCUMENT))
    path = tmp_path / "birds.result.json"
    path.symlink_to(target)

    assert read_result(path) is None
    write_result(path, DOCUMENT | {"status": "ended"})

    assert not path.is_symlink()
    assert orjson.loads(target.read_bytes()) == DOCUMENT


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "{", '{"manifest": "birds.yaml", "sha256": "00", "status": "perhaps", "job": null}', "\x00" * 9],
)
def test_anything_else_is_no_answer(text: str, tmp_path: Path) -> None:
    """A file of that name that a person wrote, or half of one, says nothing."""
    (tmp_path / "birds.result.json").write_text(text)

    assert read_result(tmp_path / "birds.result.json") is None
