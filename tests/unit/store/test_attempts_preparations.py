"""Quotes, uploads, rejections and files: facts beside the attempt."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.core.budget import BudgetLimit
from batchkiln.core.errors import InvariantBroken
from batchkiln.core.job import SavedFile, SavedOutput
from batchkiln.core.outcomes import DOWNLOADS, FACTS, UNCHANGED, Answer, Download, Fact
from batchkiln.core.queue_changes import (
    InputLost,
    ItemRefused,
    NeverFits,
    RecipeRefused,
    Uploaded,
    UploadsGone,
)
from batchkiln.core.queue_types import DownloadTask, NewAttempt
from batchkiln.core.rate_limits import RequestKind, RequestNote
from batchkiln.core.responses import GenerationStatus
from batchkiln.store import attempts, downloads, lost_attempts, preparations
from support.attempt_steps import (
    NOW_MS,
    accepted,
    account_of,
    answered,
    begin,
    candidate,
    commit,
    downloaded,
    prepared,
    quote,
    viewpoint_of,
)
from support.builders import NO, NOON, day_of, record as generation
from support.worker_world import World

SAVED = SavedOutput(SavedFile("/out/job/item-1.png", 5, "abc", "image/png"), number=1, listed=1, type="image")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three queued items of one price."""
    made = World(tmp_path)
    made.enqueue("item-1", "item-2", "item-3")
    yield made
    made.close()


@pytest.fixture
def task(world: World) -> DownloadTask:
    """The first of them generated, its files still to be fetched."""
    attempt = begin(world)
    assert attempt is not None
    accepted(world, attempt.id, generation(GenerationStatus.SUCCESS), NOW_MS)
    return downloads.download_task(world.connection, attempt.id)


def test_quote_serves_all_of_its_price(world: World) -> None:
    """The newest price counts, for each item of the same request."""
    quote(world, 1, 10)
    quote(world, 2, 12)

    assert [tuple(row) for row in world.rows("SELECT cost_credits FROM quote")] == [(12,)]


def test_rejecting_a_recipe_ends_all_its_queued_items(world: World) -> None:
    """What was sent stays as it is."""
    begin(world)

    prepared(world, candidate(2), RecipeRefused(NO))

    assert world.states() == {"submitting": 1, "rejected": 2}


def test_rejecting_what_was_sent_meanwhile_changes_nothing(world: World) -> None:
    """Law 9: a refused quote ends only what is still queued."""
    begin(world)

    prepared(world, candidate(1), ItemRefused(NO))

    assert world.state("item-1") == "submitting"


@pytest.mark.parametrize("obstacle", list(BudgetLimit))
def test_obstacle_is_explained(obstacle: BudgetLimit) -> None:
    """A person reads what the quote was, and what it exceeds."""
    error = preparations.never_fits_error(NeverFits(obstacle, 9), 12)

    assert error.code == obstacle
    assert "12 credits" in error.message
    assert "(9)" in error.message


def test_asset_serves_every_path_of_its_content(world: World) -> None:
    """One upload serves two files that are alike, and only the account that has it."""
    owl, same = world.inputs.put("owl.png", b"owl"), world.inputs.put("same.png", b"owl")
    world.enqueue("a", inputs=(owl,))
    world.enqueue("b", inputs=(same,))
    ours, other = account_of(world), account_of(world, "other")
    item = world.one("SELECT id FROM item WHERE name = 'b'")

    prepared(world, candidate(item), Uploaded(ours, [(owl.sha256, "https://assets/1")]))

    assert b"https://assets/1" in (attempts.quote_body(world.connection, item, ours) or b"")
    assert attempts.quote_body(world.connection, item, other) is None
    prepared(world, candidate(item), UploadsGone(ours))
    assert attempts.quote_body(world.connection, item, ours) is None


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("has_image", [False, True])
def test_journal_gets_what_the_queue_holds(world: World, *, earlier: int, has_image: bool) -> None:
    """Law 2: the entry is made from what was just recorded, and is the one that would be read from the queue."""
    owl = world.inputs.put("owl.png", b"owl")
    world.enqueue("a", inputs=(owl,) if has_image else ())
    item, viewpoint = world.one("SELECT id FROM item WHERE name = 'a'"), viewpoint_of(world, "main")
    prepared(world, candidate(item), Uploaded(account_of(world), [(owl.sha256, "https://assets/1")]))
    quote(world, item, 10)
    note = RequestNote(viewpoint.account_id, RequestKind.CREATE, NOON, (day_of(NOON),))
    new = NewAttempt(item, viewpoint, "key-1", 10, note)
    for _ in range(earlier):
        refused = world.write(attempts.begin_attempt, new, keep_seconds=300.0)
        assert refused is not None
        answered(world, refused.id, Answer.LIMITED, NO)
        commit(world, refused.id, FACTS[Fact.WITHDRAWN])

    attempt, entry = world.write(lost_attempts.begin_attempt, new, keep_seconds=300.0) or (None, None)

    assert attempt is not None
    assert attempt.number == earlier + 1
    assert entry == lost_attempts.journal_entry(world.connection, attempt.id)
    assert bool(entry.input_urls) is has_image


def test_like_contents_are_wanted_once(world: World) -> None:
    """Two names of one picture are one upload."""
    owl, same = world.inputs.put("owl.png", b"owl"), world.inputs.put("same.png", b"owl")
    world.enqueue("a", inputs=(owl, same), recipe_fields={"inputs_count": 2})

    wanted = preparations.wanted_inputs(world.connection, [1, 2], 4)

    assert [want.file.sha256 for want in wanted] == [owl.sha256]


def test_task_names_what_is_to_be_fetched(world: World, task: DownloadTask) -> None:
    """The read gap and the files that are here already come from the disk."""
    downloaded(world, task, Download.FILE_SAVED, SAVED)

    again = downloads.download_task(world.connection, task.attempt.id)

    assert (again.job_name, again.item_name, again.created_at) == ("job", "item-1", NOON)
    assert again.last_read_at == NOON
    assert again.saved == {1: SAVED.file.sha256}
    assert again.listed == 1


def test_file_is_recorded_once(world: World, task: DownloadTask) -> None:
    """Law 7: fetching the same output again adds no second row."""
    for _ in range(2):
        downloaded(world, task, Download.FILE_SAVED, SAVED)

    assert world.one("SELECT count(*) FROM output") == 1


def test_file_of_another_output_is_not_recorded_twice(world: World, task: DownloadTask) -> None:
    """Law 7: two items never share a file, also where both found it standing there; the second stays undone."""
    second = begin(world)
    assert second is not None
    reply = generation(GenerationStatus.SUCCESS, id="gen-2")
    accepted(world, second.id, reply, NOW_MS)
    other = downloads.download_task(world.connection, second.id)

    recorded = [downloaded(world, each, Download.LAST_FILE_SAVED, SAVED).outcome for each in (task, other)]

    assert recorded == [DOWNLOADS[Download.LAST_FILE_SAVED], UNCHANGED]
    assert (world.state("item-1"), world.state("item-2")) == ("done", "downloading")
    assert "file_saved" not in world.kinds("item-2")


def test_path_of_another_output_is_known_before_it_is_used(world: World, task: DownloadTask) -> None:
    """Law 7: two items never share a file, also where a person removed the first one's from the disk."""
    path = downloads.output_paths(task, 1)[0]
    there = SavedOutput(replace(SAVED.file, path=path), number=1, listed=1, type="image")
    downloaded(world, task, Download.FILE_SAVED, there)

    own = downloads.taken_paths(world.connection, task, 1)
    other = replace(task, attempt=replace(task.attempt, id=99))

    assert own == frozenset()
    assert downloads.taken_paths(world.connection, other, 1) == {path}


def test_done_comes_once(world: World, task: DownloadTask) -> None:
    """Law 9: an end is final."""
    downloaded(world, task, Download.ALL_SAVED)

    with pytest.raises(InvariantBroken):
        downloaded(world, task, Download.ALL_SAVED)

    assert world.state("item-1") == "done"


def test_ended_retention_expires_attempt_and_item(world: World, task: DownloadTask) -> None:
    """Paid and lost: nothing is refunded."""
    downloaded(world, task, Download.GONE)

    assert (world.state("item-1"), world.attempts("item-1")) == ("expired", ["expired"])
    assert world.money() == (0, 10, 0)


def test_lost_image_holds_the_items_that_use_it(world: World) -> None:
    """Items of the same kind with other images go on."""
    owl, fox = world.inputs.put("owl.png", b"owl"), world.inputs.put("fox.png", b"fox")
    world.enqueue("a", inputs=(owl,))
    world.enqueue("b", inputs=(fox,))
    recipe_id = world.one("SELECT recipe_id FROM item WHERE name = 'a'")
    owl_id = world.one("SELECT id FROM input_file WHERE path LIKE '%owl%'")

    prepared(world, candidate(4, recipe_id=recipe_id), InputLost(owl_id, "gone"))

    assert (world.state("a"), world.state("b")) == ("held", "queued")


def test_last_file_ends_its_item(world: World, task: DownloadTask) -> None:
    """Law 7: no item is done before its last file is recorded, and none is left undone after it."""
    downloaded(world, task, Download.LAST_FILE_SAVED, SAVED)

    assert world.state("item-1") == "done"
