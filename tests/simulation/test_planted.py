"""The planted bugs are those of today's source: one whose place is gone would be planted by nobody."""

from functools import cache

from .planted import BUGS, ROOT, Bug


def test_place_of_a_planted_bug_occurs_once() -> None:
    """Also of its further changes; and the tests that are to catch it are there."""
    assert [bug.name for bug in BUGS if not can_be_planted(bug)] == []


def can_be_planted(bug: Bug) -> bool:
    changes = (bug.path, bug.before, bug.after), *bug.more
    is_placed = all(source(path).count(before) == 1 and before != after for path, before, after in changes)
    return is_placed and (bug.caught_by is None or (ROOT / bug.caught_by.partition("::")[0]).exists())


@cache
def source(path: str) -> str:
    return (ROOT / "src" / "batchkiln" / path).read_text("utf-8")
