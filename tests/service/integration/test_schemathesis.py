"""Schemathesis with every check that it has; the deeper run is the command `schemathesis_sweep.py` beside this."""

from pathlib import Path

import pytest

from support.examples import examples

from .schemathesis_sweep import sweep

# One model of each shape: all switches; no image mode of its own; several sets of ratios and formats; a search.
MODELS = ("alpha-2.5-lite", "alpha-2.0-pro", "delta-image-2", "epsilon-pro")


@pytest.mark.long
async def test_description_is_true(tmp_path: Path) -> None:
    """What fits the description is answered as described, and what does not is refused, in all phases."""
    done = await sweep(tmp_path, examples=examples(10), seed=1, models=MODELS)

    assert done.exit_status == 0, done.printed
    assert "No issues found" in done.printed
    assert done.service_errors == ""
    assert done.audit == []
