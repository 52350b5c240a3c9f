"""Each named statement is in the SQL file of the only module that executes it."""

import ast
import re
from pathlib import Path

import batchkiln.store
from batchkiln.store.sql import QUERIES

STORE = Path(batchkiln.store.__file__).parent
NAME = re.compile(r"^-- name: (\w+)", re.MULTILINE)
COMPOSED = re.compile(
    r"(count_duplicate|find|insert|stage)_(names|outputs|recipe|input)|item(_id)?s(_in_state|_by_file)?_before"
)
"""Names that their module composes from parts."""


def strings() -> dict[str, set[str]]:
    """Return the string constants of each module of the store."""
    return {
        path.stem: {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for path in STORE.glob("*.py")
    }


def test_each_statement_is_used_by_the_module_of_its_file_alone() -> None:
    """Two modules that share a statement share its noun: one of them asks the other."""
    used = strings()
    users = {
        (path.stem, name): {module for module, constants in used.items() if name in constants}
        for path in STORE.glob("*.sql")
        for name in NAME.findall(path.read_text())
        if not COMPOSED.fullmatch(name)
    }

    assert {name: modules for (home, name), modules in users.items() if modules != {home}} == {}
    assert len(QUERIES) > 200
