"""The source of the tests: which there are, and which of them take turns."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class FoundTest:
    """A test in the source. If it takes turns, a run of the whole suite takes it, or some cases, on some days only."""

    docstring: str
    takes_turns: bool


@cache
def find_tests(path: Path) -> dict[str, FoundTest]:
    """Return the tests of a file by name, as `Class::method` where they are methods; none where there is no file."""
    if not path.is_file():
        return {}
    module = ast.parse(path.read_text("utf-8"))
    assigned = [node for node in module.body if isinstance(node, ast.Assign)]
    marks = [node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"]
    found = {}
    for node in module.body:
        prefix, inside = (f"{node.name}::", node.body) if isinstance(node, ast.ClassDef) else ("", [node])
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                is_long = _is_long([*marks, *each.decorator_list])
                found[f"{prefix}{each.name}"] = FoundTest(ast.get_docstring(each) or "", is_long)
    return found


def _is_long(marks: Iterable[ast.expr]) -> bool:
    return any("mark.long" in ast.unparse(mark) for mark in marks)
