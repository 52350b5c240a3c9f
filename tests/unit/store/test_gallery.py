"""Pages of items with filters, whose time does not depend on how few items pass."""

import pytest
from msgspec.structs import replace

from batchkiln.core.states import ItemState
from batchkiln.store import items, operations, versions
from batchkiln.store.items import Filter, GalleryPage, Items, Sorting
from batchkiln.store.jobs import Jobs
from support.queue_file import JOB, NOW, RECIPE, QueueFile, spec


@pytest.fixture
def birds(queue: QueueFile) -> QueueFile:
    other = replace(RECIPE, model="epsilon-pro")
    queue.apply(
        [
            spec("owl", metadata='{"species":"owl","size":3,"is_wild":true,"seen":{"in":["Å",2]}}'),
            spec("heron", recipe=other, metadata='{"species":"heron"}'),
            spec("finch"),
            spec("hawk", recipe=other, prompt="A White bird, full of ÄRGER, above a cliff"),
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
        (Filter(metadata=(("species", None),)), ["owl", "heron"]),
        (Filter(metadata=(("species", "owl"),)), ["owl"]),
        (Filter(metadata=(("size", "3"),)), ["owl"]),
        (Filter(metadata=(("is_wild", "true"),)), ["owl"]),
        (Filter(metadata=(("is_wild", "1"),)), []),
        (Filter(metadata=(("species", "text"),)), []),
        (Filter(metadata=(("seen", '{"in":["Å",2]}'),)), ["owl"]),
        (Filter(metadata=(("species", "' OR 1"),)), []),
        (Filter(metadata=(("species", "owl"), ("size", "3"))), ["owl"]),
        (Filter(metadata=(("species", "heron"), ("size", "3"))), []),
        (Filter(metadata=(("species", None), ("size", None), ("is_wild", "true"))), ["owl"]),
        (Filter(model="none of these"), []),
        (Filter(text="WHITE"), ["hawk"]),
        (Filter(text="cliff white"), ["hawk"]),
        (Filter(text="cliff black"), []),
        (Filter(text="ärger"), ["hawk"]),
        (Filter(text="arger"), ["hawk"]),
        (Filter(text="HAWK"), ["hawk"]),
        (Filter(text="whi"), ["hawk"]),
        (Filter(text="hite"), []),
        (Filter(text='"whi"'), []),
        (Filter(text='"white" hawk'), ["hawk"]),
        (Filter(text='"'), ["owl", "heron", "finch", "hawk"]),
        (Filter(text="%"), []),
        (Filter(text="white", model="epsilon-2"), []),
        (Filter(text="white", model="epsilon-pro", state=ItemState.QUEUED), ["hawk"]),
    ],
)
def test_filters_let_through_what_was_asked_for(birds: QueueFile, wanted: Filter, names: list[str]) -> None:
    """By state, model, cause and metadata, alone and together; other jobs are never seen."""
    page = Items(birds.connection).search("birds", wanted)

    assert [item.name for item in page.items] == names
    assert page.next_after is None


@pytest.mark.parametrize("wanted", [Filter(), Filter(metadata=(("n", None),)), Filter(state=ItemState.QUEUED)])
def test_pages_hold_each_item_once(queue: QueueFile, wanted: Filter) -> None:
    """The last one's key is where the next page begins."""
    queue.apply([spec(f"item-{number}", metadata='{"n":1}') for number in range(7)])

    found, after = [], 0
    while True:
        page = Items(queue.connection).search("birds", wanted, after_id=after, limit=3)
        found += [item.name for item in page.items]
        if page.next_after is None:
            break
        after = page.next_after

    assert found == [f"item-{number}" for number in range(7)]


@pytest.mark.parametrize("wanted", [Filter(), Filter(metadata=(("n", None),)), Filter(state=ItemState.QUEUED)])
def test_pages_go_back_the_way_they_came(queue: QueueFile, wanted: Filter) -> None:
    """Page by page, each as it was on the way there."""
    queue.apply([spec(f"item-{number}", metadata='{"n":1}') for number in range(7)])
    pages = [Items(queue.connection).search("birds", wanted, limit=3)]
    while (after := pages[-1].next_after) is not None:
        pages.append(Items(queue.connection).search("birds", wanted, after_id=after, limit=3))

    back = [pages[-1]]
    while (before := back[-1].previous_before) is not None:
        back.append(Items(queue.connection).search("birds", wanted, before_id=before, limit=3))

    assert [[item.name for item in page.items] for page in reversed(back)] == [
        [item.name for item in page.items] for page in pages
    ]
    assert back[-1].next_after == pages[0].next_after
    assert pages[0].previous_before is None


def test_a_rare_kind_is_looked_for_backward_as_well(queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search reads a limited number of rows at a time, and continues from there in both directions."""
    monkeypatch.setattr(items, "LOOKED_AT", 5)
    queue.apply([spec(f"item-{number}", metadata='{"rare":1}' if number in {0, 11} else None) for number in range(12)])
    rare, end = Filter(metadata=(("rare", None),)), queue.one("SELECT max(id) FROM item")

    first = Items(queue.connection).search("birds", rare, before_id=end)
    second = Items(queue.connection).search("birds", rare, before_id=first.previous_before)
    third = Items(queue.connection).search("birds", rare, before_id=second.previous_before)
    again = Items(queue.connection).search("birds", rare, after_id=first.next_after or 0)

    assert [(page.items, page.is_cut) for page in (first, second)] == [((), True)] * 2
    assert [item.name for item in third.items] == ["item-0"]
    assert third.previous_before is None
    assert [item.name for item in again.items] == ["item-11"]


def walk(queue: QueueFile, wanted: Filter, sorting: Sorting) -> list[GalleryPage]:
    """Go through all pages of three, and back to the first."""
    search = Items(queue.connection).search
    pages = [search("birds", wanted, sorting=sorting, limit=3)]
    while (after := pages[-1].next_after) is not None:
        pages.append(search("birds", wanted, sorting=sorting, after_id=after, limit=3))
    back = [pages[-1]]
    while (before := back[-1].previous_before) is not None:
        back.append(search("birds", wanted, sorting=sorting, before_id=before, limit=3))
    assert [names(page) for page in reversed(back)] == [names(page) for page in pages]
    return pages


def names(page: GalleryPage) -> list[str]:
    return [item.name for item in page.items]


@pytest.mark.parametrize(
    "wanted", [Filter(), Filter(metadata=(("n", None),)), Filter(text="ITEM"), Filter(state=ItemState.QUEUED)]
)
def test_the_last_come_first_in_reverse(queue: QueueFile, wanted: Filter) -> None:
    """Page by page, and back."""
    queue.apply([spec(f"item-{number}", metadata='{"n":1}') for number in range(7)])

    pages = walk(queue, wanted, Sorting.REVERSE)

    assert [name for page in pages for name in names(page)] == [f"item-{number}" for number in range(6, -1, -1)]
    assert len(pages) == 3


@pytest.mark.parametrize(
    "wanted", [Filter(), Filter(metadata=(("n", None),)), Filter(text="ITEM"), Filter(state=ItemState.DONE)]
)
def test_the_newest_files_come_first(queue: QueueFile, wanted: Filter) -> None:
    """Items without files are not listed, files of other jobs neither."""
    queue.apply([spec(f"item-{number}", metadata='{"n":1}') for number in range(8)])
    queue.apply([spec("stranger")], job=replace(JOB, name="other"))
    for number in (4, 0, 6, 2):
        queue.finish(f"item-{number}")
    queue.finish("stranger")
    queue.finish("item-5")

    pages = walk(queue, wanted, Sorting.NEWEST)

    assert [name for page in pages for name in names(page)] == [f"item-{number}" for number in (5, 2, 6, 0, 4)]


def test_an_item_is_listed_by_its_current_files_alone(queue: QueueFile) -> None:
    """Made again, it is the newest; with its first version chosen, it is where that was."""
    queue.apply([spec("owl"), spec("heron")])
    queue.finish("owl", "out/owl.png")
    queue.finish("heron")
    operations.redo(queue.connection, "birds", ["owl"], NOW)
    queue.finish("owl", "out/owl-2.png")
    search = Items(queue.connection).search

    made_again = names(search("birds", Filter(), sorting=Sorting.NEWEST))
    versions.choose_version(queue.connection, "birds", "owl", 1, NOW)

    assert made_again == ["owl", "heron"]
    assert names(search("birds", Filter(), sorting=Sorting.NEWEST)) == ["heron", "owl"]


@pytest.mark.parametrize("sorting", Sorting)
def test_each_item_can_be_the_first_of_a_page(queue: QueueFile, sorting: Sorting) -> None:
    """A page has the place before each of its items, so that one can be shown alone."""
    queue.apply([spec(f"item-{number}") for number in range(5)])
    for number in (3, 1, 4):
        queue.finish(f"item-{number}")
    search = Items(queue.connection).search
    page = search("birds", Filter(), sorting=sorting)

    alone = [search("birds", Filter(), sorting=sorting, after_id=at, limit=1) for at in page.before_each]

    assert [names(one)[0] for one in alone] == names(page)


def test_the_newest_come_first(birds: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """By when they were saved. A job whose files are older than those that are looked at has its own order."""
    assert [(job, item.name) for job, item in Items(birds.connection).newest_results(5)] == [
        ("birds", "heron"),
        ("birds", "owl"),
    ]
    operations.redo(birds.connection, "birds", ["owl"], NOW)
    birds.finish("owl", "out/owl-2.png")
    birds.finish("stranger")

    def newest(job: str, limit: int) -> list[str]:
        return [item.name for item in Items(birds.connection).newest_of_job(job, limit)]

    assert newest("birds", 5) == ["owl", "heron"]
    assert newest("other", 5) == ["stranger"]
    monkeypatch.setattr(items, "_NEWEST_LOOKED_AT", 1)
    assert newest("birds", 5) == ["heron", "owl"]
    assert newest("other", 5) == ["stranger"]


def test_models_and_files_are_found_by_their_keys(birds: QueueFile) -> None:
    """A file is named by its key, so that no page asks for a path."""
    (item,) = Items(birds.connection).search("birds", Filter(model="epsilon-2", state=ItemState.DONE)).items

    file = Items(birds.connection).output_file(item.outputs[0].id)

    assert file is not None
    assert file.path == "out/owl.png"
    assert Items(birds.connection).output_file(10_000) is None
    assert Jobs(birds.connection).models("birds") == ["epsilon-2", "epsilon-pro"]


def test_metadata_of_a_job_is_read_from_both_ends(birds: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each different one once, however many items have it; not that of other jobs."""
    birds.apply([spec(name, metadata='{"species":"swift"}') for name in ("swift-1", "swift-2")])
    every = Items(birds.connection).metadata("birds")
    monkeypatch.setattr(items, "METADATA_READ", 1)
    ends = Items(birds.connection).metadata("birds")

    assert sorted(str(metadata["species"]) for metadata in every) == ["heron", "owl", "swift"]
    assert sorted(str(metadata["species"]) for metadata in ends) == ["owl", "swift"]


def test_items_are_found_by_their_numbers(birds: QueueFile) -> None:
    """In a job between others, and among the items in a state."""
    birds.apply([spec("wren")])
    found = Items(birds.connection)
    names = [
        [found.of_ids([item_id])[0].name for number in range(6) if (item_id := found.at_number("birds", number, state))]
        for state in (None, ItemState.DONE, ItemState.HELD)
    ]

    assert names == [["owl", "heron", "finch", "hawk", "wren"], ["owl", "heron"], []]
    assert [found.number_of("birds", found.by_name("birds", name)) for name in names[0]] == [0, 1, 2, 3, 4]
    assert found.number_of("birds", found.by_name("birds", "heron"), ItemState.DONE) == 1
    assert found.at_number("birds", 0) is not None
