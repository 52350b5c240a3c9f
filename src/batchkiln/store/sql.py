"""The named statements of `*.sql`. Each file is beside the one module that executes them."""

import re
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)[^\n]*$", re.MULTILINE)


def _load() -> dict[str, str]:
    """Return the statements by name. Each begins with a line `-- name: NAME`, with an optional comment after it."""
    found: dict[str, str] = {}
    for entry in Path(__file__).parent.glob("*.sql"):
        parts = _NAME.split(entry.read_text("utf-8"))[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"two queries are named {name}"
            found[name] = body.strip()
    return found


QUERIES: Final = _load()


def query(name: str) -> str:
    """Return the statement with a name. Raise `KeyError` for an unknown name, which is a bug."""
    return QUERIES[name]
