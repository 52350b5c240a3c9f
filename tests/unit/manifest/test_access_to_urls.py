"""What a manifest of a stranger may write at URLs: nothing, unless the machines share one, and then below it."""

from pathlib import Path

import pytest

from batchkiln.manifest.file_access import FileAccess
from batchkiln.yaml_reading.diagnostics import InvalidValue

SHARED = "s3://studio/all"


def test_a_stranger_writes_below_the_shared_url() -> None:
    """As below a shared folder."""
    FileAccess(outputs=SHARED).check_output(f"{SHARED}/birds")


@pytest.mark.parametrize(
    ("outputs", "directory"),
    [
        (Path("/srv/out"), "s3://studio/all/birds"),
        (SHARED, "s3://studio/others"),
        (SHARED, "s3://studio/all-others/birds"),
        (SHARED, "s3://studio/all/../others"),
        (SHARED, "/srv/out"),
    ],
)
def test_a_stranger_writes_nowhere_else(outputs: Path | str, directory: str) -> None:
    """The credentials are those of the server's owner."""
    with pytest.raises(InvalidValue):
        FileAccess(outputs=outputs).check_output(directory)
