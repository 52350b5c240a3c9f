"""A manifest that takes longer than two seconds tells how far it is, how fast, and when it ends."""

import pytest

from batchkiln.api.app_context import ManifestStep
from batchkiln.cli.manifest_progress import ManifestProgress


class Clock:
    """A steady clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_reading_tells_rate_and_end_of_the_file(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The end is by the size of the file, and each file has a time of its own."""
    progress = ManifestProgress(clock)
    for clock.now, items, name, share in (
        (0.0, 1_000, "rows.tsv", 0.0),
        (1.0, 101_000, "rows.tsv", 0.1),
        (2.0, 201_000, "rows.tsv", 0.2),
        (3.0, 301_000, "rows.tsv", 0.3),
        (10.0, 1_000_000, "more.tsv", 0.0),
        (12.0, 1_100_000, "more.tsv", 0.5),
        (14.0, 1_200_000, "more.tsv", 1.0),
    ):
        progress(ManifestStep(items, name, share))

    assert capsys.readouterr().err.splitlines() == [
        "201,000 items read, 100,000 a second, 8 s left in rows.tsv",
        "1,100,000 items read, 50,000 a second, 2 s left in more.tsv",
    ]


def test_packed_file_has_no_known_end(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rate is told."""
    progress = ManifestProgress(clock)
    progress(ManifestStep(1_000, "rows.tsv.gz", None))
    clock.now = 4.0
    progress(ManifestStep(201_000, "rows.tsv.gz", None))

    assert capsys.readouterr().err == "201,000 items read, 50,000 a second in rows.tsv.gz\n"


def test_storing_tells_what_is_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The last portion needs no line."""
    progress = ManifestProgress(clock)
    for clock.now, done in ((0.0, 20_000), (4.0, 40_000), (8.0, 80_000)):
        progress(ManifestStep(done, "", done / 80_000, 80_000))

    assert capsys.readouterr().err == "40,000 of 80,000 items stored, 5,000 a second, 8 s left\n"
