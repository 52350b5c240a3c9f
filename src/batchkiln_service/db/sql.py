"""Named SQL statements. `NAME.sql` beside `NAME.py` contains all statements of the module."""

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(module: str) -> Mapping[str, str]:
    """Return the statements of `MODULE.sql` by name. Each begins with the line `-- name: NAME`."""
    text = resources.files(__package__).joinpath(f"{module}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    names, statements = parts[::2], parts[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"two statements in {module}.sql have the same name")
    return {name: statement.strip() for name, statement in zip(names, statements, strict=True)}
