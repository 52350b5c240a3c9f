"""Learned shapes: what is kept, and which later changes are told."""

from pathlib import Path

import pytest

from batchkiln.client.redact import field_types
from batchkiln.doctor.check_results import Level
from batchkiln.doctor.learned import BALANCE, Learned, check_unchanged, learned_path, load_learned, save_learned
from batchkiln.store.location import DatabaseUrl

ADDRESS = "https://service.example/api/v1"


def test_names_and_types_are_kept_by_place() -> None:
    """Lists are united, ids as names are `*`, and no value is there (Law 8)."""
    types = field_types({"files": [{"id": "ast_1"}, {"id": None, "size": 3}], "by": {"ast_98f1a2": True}})

    assert types == {
        "files": "list",
        "files[]": "object",
        "files[].id": "text",
        "files[].size": "number",
        "by": "object",
        "by.*": "boolean",
    }


def test_a_huge_reply_is_bounded() -> None:
    """A service that sends a million names fills no disk."""
    assert len(field_types({f"field_{letter}": {"x" * n: n for n in range(100)} for letter in "abcdefgh"})) <= 300


def test_what_is_kept_is_known_again(tmp_path: Path) -> None:
    """By profile; of another address nothing is known."""
    queue = tmp_path / "queue.db"
    save_learned(queue, "studio", Learned(ADDRESS).with_call(BALANCE, {"balance": "number"}))
    save_learned(queue, "other", Learned(ADDRESS))

    assert load_learned(queue, "studio", ADDRESS).calls == {BALANCE: {"balance": "number"}}
    assert load_learned(queue, "studio", "https://another.example/api/v1").calls == {}


def test_shapes_are_kept_where_nothing_was_kept_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that never drove the database's queue has no folder for it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    queue = DatabaseUrl("postgresql://db.example/kiln")

    save_learned(queue, "studio", Learned(ADDRESS).with_call(BALANCE, {"balance": "number"}))

    assert load_learned(queue, "studio", ADDRESS).calls == {BALANCE: {"balance": "number"}}
    assert learned_path(queue).parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", ["", "{", "[]", '{"studio": 7}', '{"studio": {"base_url": 1, "calls": [1]}}'])
def test_a_damaged_file_is_nothing_known(tmp_path: Path, content: str) -> None:
    """It is a memory aid, and nothing depends on it."""
    queue = tmp_path / "queue.db"
    learned_path(queue).write_text(content, "utf-8")

    assert load_learned(queue, "studio", ADDRESS) == Learned(ADDRESS)


def test_a_null_is_no_change() -> None:
    """An optional field comes and goes in its value."""
    learned = Learned(ADDRESS, {BALANCE: {"balance": "number", "note": "null"}})

    assert learned.differences(BALANCE, {"balance": "number", "note": "text"}) == []


def test_changes_are_named() -> None:
    """What is gone, what is new, and what has another type."""
    learned = Learned(ADDRESS, {BALANCE: {"balance": "number", "plan": "text"}})

    finding = check_unchanged(learned, BALANCE, {"balance": "text", "left": "number"})

    assert finding is not None
    assert finding.level is Level.WARN
    assert "gone: plan; new: left; of another type: balance (number, now text)" in finding.message


def test_a_call_that_was_never_seen_says_nothing() -> None:
    """Neither that it changed, nor that it did not."""
    assert check_unchanged(Learned(ADDRESS), BALANCE, {"balance": "number"}) is None
