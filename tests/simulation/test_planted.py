"""The planted bugs are those of today's source: one whose place is gone would be planted by nobody."""

import pytest

from .planted import BUGS, ROOT, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_place_of_a_planted_bug_occurs_once(bug: Bug) -> None:
    """Also of its further changes; and the tests that are to catch it are there."""
    for path, before, after in ((bug.path, bug.before, bug.after), *bug.more):
        assert (ROOT / "src" / "batchkiln" / path).read_text("utf-8").count(before) == 1
        assert before != after
    assert bug.caught_by is None or (ROOT / bug.caught_by.partition("::")[0]).exists()
