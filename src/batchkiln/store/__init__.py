"""The queue on disk. All that other packages use of it is named in `__init__.pyi`; SQLite is known nowhere else.

A name is imported on first use: `status` is run often, and needs nothing of what applies manifests.
"""

import ast
from functools import cache
from importlib import import_module
from importlib.resources import files


@cache
def _homes() -> dict[str, tuple[str, str]]:
    """Return module and name there of each public name, as the stub imports them."""
    stub = ast.parse(files("batchkiln.store").joinpath("__init__.pyi").read_text("utf-8"))
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _homes()[name]
    found: object = getattr(import_module(module), attribute)
    globals()[name] = found
    return found
