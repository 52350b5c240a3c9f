"""Manifests written for tests, and what comes of reading them."""

from pathlib import Path

import pytest

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import ItemSpec
from batchkiln.manifest import LocatedItem, open_manifest

HEADER = "version: 1\njob: test\ndefaults: {model: epsilon-2, mode: text-to-image}\nitems:\n"
HEADER_LINES = 4


def placed(folder: Path, text: str | bytes) -> list[LocatedItem]:
    """Read a manifest and give its items."""
    raw = text.encode() if isinstance(text, str) else text
    (folder / "m.yaml").write_bytes(raw)
    return list(open_manifest("m.yaml", working_dir=folder).items())


def specs(folder: Path, items: str) -> list[ItemSpec]:
    """Read items below the usual header."""
    return [one.spec for one in placed(folder, HEADER + items)]


def mistakes(folder: Path, text: str | bytes) -> tuple[Diagnostic, ...]:
    """Read a manifest that is wrong, and give what is reported."""
    with pytest.raises(InputError) as caught:
        placed(folder, text)
    return caught.value.mistakes


def places(found: tuple[Diagnostic, ...]) -> list[tuple[int | None, int | None]]:
    """Give lines and columns."""
    return [(one.line, one.column) for one in found]
