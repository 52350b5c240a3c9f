"""Assertions only look: `python -O` leaves them out, and what they did with them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import batchkiln

PURE: Final = frozenset({"isinstance", "len"})
"""What an assertion may call."""


def _effects(source: str) -> Iterator[int]:
    """Give the lines of assertions that do more than look."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                is_pure_call = isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in PURE
                if isinstance(part, ast.Call | ast.Await | ast.NamedExpr | ast.Yield) and not is_pure_call:
                    yield node.lineno


def test_no_assertion_has_a_side_effect() -> None:
    """Under `python -O` a call in an assertion is never made: once a queue of writes then stood still."""
    folder = Path(batchkiln.__file__).parent
    sources = ((path, path.read_text("utf-8")) for path in sorted(folder.rglob("*.py")))
    found = [
        f"{path.relative_to(folder)}:{line}"
        for path, source in sources
        if "assert " in source
        for line in _effects(source)
    ]

    assert found == []


def test_an_assertion_that_does_something_is_found() -> None:
    """The search sees a call, an assignment and an await."""
    assert list(_effects("assert queue.popleft() is first\n")) == [1]
    assert list(_effects("assert (found := 1) == 1\n")) == [1]
    assert list(_effects("async def run():\n    assert await done\n")) == [2]
    assert list(_effects("assert isinstance(value, int), text()\n")) == []
