"""Pages of items with filters, whose time does not depend on how few items pass."""

from dataclasses import replace

import pytest

from batchkiln.core.states import ItemState
from batchkiln.queue import gallery
from batchkiln.queue.gallery import Filter, gallery_page, job_models, newest_of_job, newest_results, output_file

from .queue_file import JOB, RECIPE, QueueFile, spec


@pytest.fixture
def birds(queue: QueueFile) -> QueueFile:
    other = replace(RECIPE, model="epsilon-pro")
    queue.apply(
        [
            spec("owl", metadata='{"species":"owl","size":3,"is_wild":true}'),
            spec("heron", recipe=other, metadata='{"species":"heron"}'),
            spec("finch"),
            spec("hawk", recipe=other),
        ]
    )
    queue.apply([spec("stranger")], job=replace(JOB, name="other"))
    queue.finish("owl")
    queue.finish("heron")
    queue.refuse("finch")
    return queue


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter(), ["owl", "heron", "finch", "hawk"]),
        (Filter(state=ItemState.DONE), ["owl", "heron"]),
        (Filter(model="epsilon-pro"), ["heron", "hawk"]),
        (Filter(state=ItemState.DONE, model="epsilon-pro"), ["heron"]),
        (Filter(code="invalid_parameter"), ["finch"]),
        (Filter(key="species"), ["owl", "heron"]),
        (Filter(key="species", value="owl"), ["owl"]),
        (Filter(key="size", value="3"), ["owl"]),
        (Filter(key="is_wild", value="true"), ["owl"]),
        (Filter(key="species", value="' OR 1"), []),
        (Filter(model="none of these"), []),
    ],
)
def test_filters_let_through_what_was_asked_for(birds: QueueFile, wanted: Filter, names: list[str]) -> None:
    """By state, model, cause and metadata, alone and together; other jobs are never seen."""
    page = gallery_page(birds.connection, "birds", wanted)

    assert [item.name for item in page.items] == names
    assert page.next_after is None


@pytest.mark.parametrize("wanted", [Filter(), Filter(key="n"), Filter(state=ItemState.QUEUED)])
def test_pages_hold_each_item_once(queue: QueueFile, wanted: Filter) -> None:
    """The last one's key is where the next page begins."""
    queue.apply([spec(f"item-{number}", metadata='{"n":1}') for number in range(7)])

    found, after = [], 0
    while True:
        page = gallery_page(queue.connection, "birds", wanted, after_id=after, limit=3)
        found += [item.name for item in page.items]
        if page.next_after is None:
            break
        after = page.next_after

    assert found == [f"item-{number}" for number in range(7)]


def test_a_filter_that_hardly_anything_passes_looks_at_so_many_and_goes_on(
    queue: QueueFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a rare kind comes as fast as any other, and says that it is cut short."""
    monkeypatch.setattr(gallery, "LOOKED_AT", 5)
    queue.apply([spec(f"item-{number}", metadata='{"rare":1}' if number == 8 else None) for number in range(12)])
    rare = Filter(key="rare")

    first = gallery_page(queue.connection, "birds", rare)
    second = gallery_page(queue.connection, "birds", rare, after_id=first.next_after or 0)

    assert (first.items, first.is_cut) == ((), True)
    assert [item.name for item in second.items] == ["item-8"]


def test_the_newest_come_first(birds: QueueFile) -> None:
    """Of the whole queue by when they were saved, of a job by its order."""
    assert [(job, item.name) for job, item in newest_results(birds.connection, 5)] == [
        ("birds", "heron"),
        ("birds", "owl"),
    ]
    assert [item.name for item in newest_of_job(birds.connection, "birds", 1)] == ["heron"]


def test_models_and_files_are_found_by_their_keys(birds: QueueFile) -> None:
    """A file is named by its key, so that no page asks for a path."""
    (item,) = gallery_page(birds.connection, "birds", Filter(model="epsilon-2", state=ItemState.DONE)).items

    file = output_file(birds.connection, item.outputs[0].id)

    assert file is not None
    assert file.path == "out/owl.png"
    assert output_file(birds.connection, 10_000) is None
    assert job_models(birds.connection, "birds") == ["epsilon-2", "epsilon-pro"]
