"""The tasks of `poe`."""

import tomllib
from io import StringIO
from pathlib import Path
from typing import Final

import pytest
from poethepoet.app import PoeThePoet

ROOT: Final = Path(__file__).resolve().parents[2]
TASKS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["poe"]["tasks"]


@pytest.mark.parametrize("task", TASKS)
def test_poe_understands_every_task(task: str) -> None:
    """A task that this version of `poe` refuses would end all others as well. `.ci/lowest` tries the lowest version."""
    output = StringIO()

    assert PoeThePoet(cwd=ROOT, output=output)(["--dry-run", task]) == 0, output.getvalue()
