"""The named queries of `queries.sql`: one place for all SQL that the queue sends."""

import re
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)[^\n]*$", re.MULTILINE)


def _parse(text: str) -> dict[str, str]:
    """Return the statements by name; each begins with a line `-- name: NAME`, perhaps with a remark behind it."""
    parts = _NAME.split(text)[1:]
    names, bodies = parts[::2], parts[1::2]
    assert len(set(names)) == len(names), "two queries share a name"
    return {name: body.strip() for name, body in zip(names, bodies, strict=True)}


QUERIES: Final = _parse(files("batchkiln.queue").joinpath("queries.sql").read_text("utf-8"))


def query(name: str) -> str:
    """Return the statement of that name; an unknown one is a bug and raises `KeyError`."""
    return QUERIES[name]
