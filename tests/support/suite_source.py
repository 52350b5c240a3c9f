"""The source of the tests: which there are, and which of them take turns."""

import ast
from functools import cache
from pathlib import Path


@cache
def find_tests(path: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the tests of a file by name, as `Class::method` where they are methods; none where there is no file."""
    if not path.is_file():
        return {}
    found = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        prefix, inside = (f"{node.name}::", node.body) if isinstance(node, ast.ClassDef) else ("", [node])
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                found[f"{prefix}{each.name}"] = each
    return found


def takes_turns(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a run of the whole suite takes a test on some days only, or some of its cases."""
    return any("mark.long" in ast.unparse(decorator) for decorator in test.decorator_list)
