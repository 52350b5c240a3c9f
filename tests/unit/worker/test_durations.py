"""Which kinds of generation tell each other how long they take."""

import pytest

from batchkiln.core.polling import Kind, Observation
from batchkiln.worker.poll_timing import DurationModels

INTERVAL = 10.0
IMAGE = Kind("image", is_video=False, model="sigma")
CLIP = Kind("clip", is_video=True, model="sigma", output_seconds=4.0)


def models_with(kind: Kind, seconds: float, count: int = 20) -> DurationModels:
    """Return the models of a service that was read within half a second of each end."""
    models = DurationModels(INTERVAL)
    models.remember([(kind, Observation(seconds - 0.5, seconds + 0.5))] * count)
    return models


def first_read(models: DurationModels, kind: Kind) -> float:
    return models.of(kind).next_read_seconds(elapsed_seconds=0.0, interval_seconds=INTERVAL)


def test_the_first_generation_of_a_kind_is_read_by_what_its_siblings_tell() -> None:
    """Another size of the same model, images of 15 s: not at 10 s."""
    assert 14.0 < first_read(models_with(IMAGE, 15.0), Kind("larger", is_video=False, model="sigma")) < 19.0


@pytest.mark.parametrize(
    "other", [Kind("image", is_video=False, model="tau"), Kind("clip", is_video=True, model="sigma")]
)
def test_other_models_and_other_media_tell_nothing(other: Kind) -> None:
    """Without siblings the first generation is read every interval."""
    assert first_read(models_with(IMAGE, 15.0), other) == INTERVAL


def test_clips_borrow_seconds_per_second_of_output() -> None:
    """Clips of 4 s take 40 s; one of 8 s is expected to take twice as long."""
    longer = Kind("longer", is_video=True, model="sigma", output_seconds=8.0)

    assert models_with(CLIP, 40.0).of(longer).median_seconds == pytest.approx(80.0, rel=0.1)


def test_what_a_run_observes_counts_for_siblings() -> None:
    """The first kind is learned in this run, and the second begins with it."""
    models = DurationModels(INTERVAL)
    for _ in range(20):
        models.add(IMAGE, Observation(14.5, 15.5))

    assert first_read(models, Kind("larger", is_video=False, model="sigma")) > INTERVAL
