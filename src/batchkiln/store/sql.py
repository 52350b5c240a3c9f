"""The named queries of `queries/*.sql`: one place for all SQL that the queue sends."""

import re
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)[^\n]*$", re.MULTILINE)


def _load() -> dict[str, str]:
    """Return the statements by name; each begins with a line `-- name: NAME`, perhaps with a remark behind it."""
    found: dict[str, str] = {}
    for entry in files("batchkiln.store").joinpath("queries").iterdir():
        parts = _NAME.split(entry.read_text("utf-8"))[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"two queries are named {name}"
            found[name] = body.strip()
    return found


QUERIES: Final = _load()


def query(name: str) -> str:
    """Return the statement of that name; an unknown one is a bug and raises `KeyError`."""
    return QUERIES[name]
