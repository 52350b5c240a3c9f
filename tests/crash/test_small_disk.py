"""A disk that becomes full under a run: a real one of some MiB."""

from pathlib import Path

import pytest

from crash import trials
from crash.process_harness import Ground
from crash.small_disk import NoNamespaces, small_disk

IMAGES = [f"A lighthouse on rock {number}, sea mist" for number in range(1, 9)]


@pytest.mark.long
def test_full_disk_costs_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    """Law 2, Law 7, Law 9: a run stops with a clear word, sends nothing while there is no room, and then goes on."""
    try:
        with small_disk(tmp_path / "small", size_mib=48) as disk:
            ground = Ground(tmp_path, IMAGES, [], scale=120.0, disk=disk, queue="small/queue.db", out="small/out")

            with trials.serving(ground):
                ends = trials.fill_disk(ground, disk, left_bytes=16 * 1024, files=2)
                trials.finish(ground)

            assert ground.violations() == []
    except NoNamespaces as reason:
        pytest.skip(f"no disk can be mounted here: {reason}")
    for status, words in ends:
        assert status in {1, 2}
        assert trials.tells_of_full_disk(words), words
