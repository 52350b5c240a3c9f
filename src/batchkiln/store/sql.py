"""The named statements of `*.sql`. Each file is beside the one module that executes them."""

from pathlib import Path
from typing import Final

_BEGIN: Final = "\n-- name: "


def _load() -> dict[str, str]:
    """Return the statements by name. Each begins with a line `-- name: NAME`, with an optional comment after it."""
    found: dict[str, str] = {}
    for entry in Path(__file__).parent.glob("*.sql"):
        for part in f"\n{entry.read_text('utf-8')}".split(_BEGIN)[1:]:
            head, _, body = part.partition("\n")
            name, *_ = head.split(maxsplit=1)
            assert name not in found, f"two queries are named {name}"
            found[name] = body.strip()
    return found


QUERIES: Final = _load()


def query(name: str) -> str:
    """Return the statement with a name. Raise `KeyError` for an unknown name, which is a bug."""
    return QUERIES[name]
