"""Each named statement stands beside the one module that executes it."""

import ast
import re
from pathlib import Path

import batchkiln.store
from batchkiln.store.sql import QUERIES

STORE = Path(batchkiln.store.__file__).parent
NAME = re.compile(r"^-- name: (\w+)", re.MULTILINE)
COMPOSED = re.compile(
    r"(count_duplicate|find|insert|stage)_(names|outputs|recipe|input)|item(_id)?s(_in_state)?_before"
)
"""Names that their module composes from parts."""


def users(name: str) -> set[str]:
    """Return the modules of the store in which a name occurs as a string."""
    return {
        path.stem
        for path in STORE.glob("*.py")
        if any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(ast.parse(path.read_text())))
    }


def test_each_statement_is_used_by_the_module_of_its_file_alone() -> None:
    """Two modules that share a statement share its noun: one of them asks the other."""
    misplaced = {
        name: users(name)
        for path in STORE.glob("*.sql")
        for name in NAME.findall(path.read_text())
        if users(name) != {path.stem} and not COMPOSED.fullmatch(name)
    }

    assert misplaced == {}
    assert len(QUERIES) > 200
