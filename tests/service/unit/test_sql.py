"""SQL is in `.sql` files, each statement beside the one module that sends it."""

import ast
import re
from pathlib import Path

import pytest

import batchkiln_service
from batchkiln_service.db.sql import load_queries

PACKAGE = Path(batchkiln_service.__file__).parent
MODULES = sorted(path.stem for path in (PACKAGE / "db").glob("*.sql") if path.stem != "schema")
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b.*\b(FROM|INTO|SET)\b", re.DOTALL)


@pytest.mark.parametrize("module", MODULES)
def test_each_statement_is_used_by_its_module(module: str) -> None:
    """The module beside the file names each of its statements, and loads no other file's."""
    source = (PACKAGE / "db" / f"{module}.py").read_text("utf-8")

    assert [name for name in load_queries(module) if f'"{name}"' not in source] == []
    assert re.findall(r"load_queries\(\"?(\w+)", source) == [module]


def test_no_statement_is_in_a_string() -> None:
    """But for those that ask SQLite about itself, and what tests send by `query`."""
    found = [
        node.value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
    ]

    assert found == ["SELECT * FROM requests ORDER BY id", "SELECT count(*) FROM sqlite_schema"]
