"""Items that are made again, versions that are chosen, and files that are fetched again: through whole runs."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest

from batchkiln.core.responses import GenerationStatus
from batchkiln.core.states import ItemState
from batchkiln.store.exports import Exports
from batchkiln.store.items import Items
from batchkiln.store.operations import cancel, redo, retry
from batchkiln.store.resolution import Decision, resolve
from batchkiln.store.reviews import Decided, review
from batchkiln.store.versions import choose_version, fetch_again, saved_files
from support import fake_service
from support.worker_world import World

from .test_lost_attempts import copied, restored


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A queue with one account and a journal."""
    made = World(tmp_path, keeps_journal=True)
    yield made
    made.close()


async def done(world: World, item: str = "fox") -> None:
    """Bring an item to its end."""
    world.enqueue(item)
    await world.run()
    assert world.state(item) is ItemState.DONE


def make_again(world: World, item: str = "fox") -> None:
    assert redo(world.connection, "job", [item], world.now_ms).redone == 1


def shown(world: World, item: str = "fox") -> list[str]:
    """Return the names of the files that lists show."""
    return [Path(output.path).name for output in Items(world.connection).by_name("job", item).outputs]


def exported(world: World) -> list[str]:
    return [Path(row.path).name for row in Exports(world.connection).rows("job", below=100)]


def fetch(world: World, item: str = "fox") -> int:
    files, _ = saved_files(world.connection, "job", [item])
    return world.write(fetch_again, files, world.now_ms)


async def expire(world: World) -> None:
    """Lose the current version's files, and fetch them after the service has deleted them."""
    world.outputs.files = {
        path: each for path, each in world.outputs.files.items() if Path(path).name not in shown(world)
    }
    assert fetch(world) == 1
    for generation in world.service.generations.values():
        generation.is_forgotten = True
    world.restart(after_seconds=timedelta(days=15).total_seconds())
    await world.run()
    assert world.state("fox") is ItemState.EXPIRED


def decide(world: World, version: int, decided: Decided) -> None:
    review(world.connection, "job", {"fox": version}, decided, by="a person", now=world.now_ms)


async def test_redo_is_charged_once_more_and_keeps_the_first_payment(world: World) -> None:
    """Each version is one charge under a key of its own: in the job, in its days, and in the item's credits."""
    await done(world)
    make_again(world)

    await world.run()

    first, second = world.service.creates
    assert first.idempotency_key != second.idempotency_key
    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)
    assert world.one("SELECT sum(credits) FROM job_day") == 20
    assert world.one("SELECT sum(credits) FROM account_day") == 20
    assert Items(world.connection).by_name("job", "fox").credits == 20


async def test_redo_leaves_the_first_file_and_names_its_own(world: World) -> None:
    """The new version is current, in lists and exports; the file of the first one keeps name and content."""
    await done(world)
    before = dict(world.outputs.files)
    make_again(world)
    await world.run()

    assert before.items() <= world.outputs.files.items()
    assert len(world.outputs.files) == 2
    assert shown(world) == exported(world) == ["fox.v2.png"]


async def test_files_stay_current_until_new_ones_are_saved(world: World) -> None:
    """A redo that waits, or is under way, takes no file from an export."""
    await done(world)
    make_again(world)

    assert shown(world) == exported(world) == ["fox.png"]

    await world.run_until("fox", ItemState.ACTIVE)

    assert shown(world) == exported(world) == ["fox.png"]


async def test_failed_redo_leaves_the_earlier_version_to_exports_and_to_a_choice(world: World) -> None:
    """The item is told as failed; what was paid and saved before is still there, and may be chosen."""
    await done(world)
    make_again(world)
    world.service.outcomes.extend([GenerationStatus.FAILED] * 3)

    await world.run()

    assert world.state("fox") is ItemState.FAILED
    assert exported(world) == ["fox.png"]
    assert world.money() == (0, 40, 30)
    assert world.write(choose_version, "job", "fox", 1, world.now_ms) is ItemState.DONE
    assert shown(world) == ["fox.png"]


async def test_redo_beyond_the_budget_is_rejected_and_leaves_the_earlier_version(world: World) -> None:
    """Law 6: the first payment counts in the job's budget, which may shrink after a redo was queued."""
    world.enqueue("fox", budget_credits=15)
    await world.run()
    assert redo(world.connection, "job", ["fox"], world.now_ms).redone == 0
    assert world.state("fox") is ItemState.DONE
    world.connection.execute("UPDATE job SET budget_credits = 25")
    make_again(world)
    world.connection.execute("UPDATE job SET budget_credits = 15")

    await world.run()

    assert world.state("fox") is ItemState.REJECTED
    assert world.service.charged == 10
    assert exported(world) == ["fox.png"]


async def test_canceled_redo_is_done_again_at_no_cost(world: World) -> None:
    await done(world)
    make_again(world)

    assert cancel(world.connection, "job", ["fox"], world.now_ms).canceled == 1
    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert shown(world) == ["fox.png"]
    assert world.service.charged == 10


async def test_third_version_after_a_choice_has_a_name_of_its_own(world: World) -> None:
    """Versions count on, whichever of them is current."""
    await done(world)
    make_again(world)
    await world.run()
    world.write(choose_version, "job", "fox", 1, world.now_ms)
    make_again(world)

    await world.run()

    assert sorted(Path(path).name for path in world.outputs.files) == ["fox.png", "fox.v2.png", "fox.v3.png"]
    assert shown(world) == ["fox.v3.png"]


async def test_file_that_is_back_after_a_fetch_is_used(world: World) -> None:
    """As on a disk that was not mounted: by its hash, and without the service, which may not keep it any more."""
    await done(world)
    before = dict(world.outputs.files)
    world.outputs.files.clear()
    assert fetch(world) == 1
    world.outputs.files.update(before)
    reads = len(world.service.requests)

    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert len(world.service.requests) == reads
    assert world.outputs.files == before
    assert world.money() == (0, 10, 0)


async def test_fetch_reads_the_generation_again_and_pays_nothing(world: World) -> None:
    """Law 3: the file comes back under its name, from the generation that was paid."""
    await done(world)
    before = dict(world.outputs.files)
    world.outputs.files.clear()

    assert fetch(world) == 1
    await world.run()

    assert world.outputs.files == before
    assert world.state("fox") is ItemState.DONE
    assert world.money() == (0, 10, 0)
    assert len(world.service.creates) == 1


async def test_fetch_of_a_chosen_version_keeps_its_name_and_number(world: World) -> None:
    """The first version is fetched again beside the second: neither takes the other's name."""
    await done(world)
    make_again(world)
    await world.run()
    world.write(choose_version, "job", "fox", 1, world.now_ms)
    before = dict(world.outputs.files)
    world.outputs.files = {path: content for path, content in before.items() if ".v2" in path}

    fetch(world)
    await world.run()

    assert world.outputs.files == before
    assert shown(world) == ["fox.png"]


async def test_fetch_keeps_what_was_decided(world: World) -> None:
    """A dropped file that is fetched again stays dropped: nothing is made, and paid, from it."""
    await done(world)
    decide(world, 1, Decided.DROP)
    world.outputs.files.clear()

    fetch(world)
    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert world.one("SELECT verdict FROM item") == "dropped"


async def test_verdict_ends_with_the_version_that_it_is_about(world: World) -> None:
    """Also where the files of that version were gone, and could not be fetched, before the item was made again."""
    await done(world)
    decide(world, 1, Decided.DROP)
    await expire(world)

    retry(world.connection, "job", ["fox"], world.now_ms)
    await world.run()

    assert world.state("fox") is ItemState.DONE
    assert world.one("SELECT verdict FROM item") is None


async def test_verdict_is_not_taken_over_by_an_earlier_version_that_is_chosen(world: World) -> None:
    """The kept version is lost for good; what a person then chooses in its place was never kept."""
    await done(world)
    make_again(world)
    await world.run()
    decide(world, 2, Decided.KEEP)
    await expire(world)

    world.write(choose_version, "job", "fox", 1, world.now_ms)

    assert world.state("fox") is ItemState.DONE
    assert world.one("SELECT verdict FROM item") is None


async def test_fetch_tells_where_the_file_has_another_content(world: World) -> None:
    """The history names the hash that was there before."""
    await done(world)
    before = world.one("SELECT sha256 FROM output")
    world.outputs.files.clear()
    fetch(world)

    with mock.patch.object(fake_service, "content_of", lambda path: f"another {path}".encode()):
        await world.run()

    saved = world.rows("SELECT detail FROM event WHERE kind = 'file_saved' ORDER BY id")
    assert [before in row[0] for row in saved] == [False, True]


async def test_fetch_whose_retention_ends_meanwhile_expires_at_no_cost(world: World) -> None:
    """What the service no longer keeps is told as expired; a canceled retry of it does not make it done."""
    await done(world)

    await expire(world)

    assert exported(world) == []
    assert world.service.charged == 10
    retry(world.connection, "job", ["fox"], world.now_ms)
    cancel(world.connection, "job", ["fox"], world.now_ms)
    assert world.state("fox") is ItemState.CANCELED


async def test_fetch_is_left_where_another_version_became_current_meanwhile(world: World) -> None:
    """Between the look at the disk and the change, a person chose another version."""
    await done(world)
    make_again(world)
    await world.run()
    files, _ = saved_files(world.connection, "job", ["fox"])
    world.write(choose_version, "job", "fox", 1, world.now_ms)

    assert world.write(fetch_again, files, world.now_ms) == 0
    assert world.one("SELECT count(*) FROM output") == 2


async def test_fetch_leaves_files_that_were_saved_again_since_the_look_at_the_disk(world: World) -> None:
    """Two people fetch: the second one's look is older than the files that the first one got back."""
    await done(world)
    world.outputs.files.clear()
    missing, _ = saved_files(world.connection, "job", ["fox"])
    world.write(fetch_again, missing, world.now_ms)
    await world.run()

    assert world.write(fetch_again, missing, world.now_ms) == 0
    assert world.state("fox") is ItemState.DONE
    assert exported(world) == ["fox.png"]


async def test_result_that_was_given_up_is_not_fetched(world: World) -> None:
    """A version of an attempt that a person gave up is on disk alone."""
    await done(world)
    world.outputs.files.clear()
    fetch(world)
    world.service.broken_files = frozenset(world.service.generations)
    await world.run()
    assert world.state("fox") is ItemState.HELD
    world.write(resolve, "job", "fox", Decision.FAILED, now=world.now_ms)

    assert saved_files(world.connection, "job", ["fox"])[0] == []
    assert exported(world) == []


async def test_redo_that_a_restored_copy_lost_is_replayed_and_paid_once(world: World) -> None:
    """The copy has the item as done: the lost second attempt is asked for under its own key."""
    await done(world)
    copy = copied(world)
    make_again(world)
    await world.run()
    keys = {create.idempotency_key for create in world.service.creates}

    restored(world, copy)
    await world.run()

    assert {create.idempotency_key for create in world.service.creates} == keys
    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)
    assert shown(world) == ["fox.v2.png"]


async def test_redo_lost_with_the_first_attempt_recovers_both_payments(world: World) -> None:
    """The copy is older than the first attempt: both charges, and both files, are the queue's again."""
    world.enqueue("fox")
    copy = copied(world)
    await world.run()
    make_again(world)
    await world.run()
    files = dict(world.outputs.files)

    restored(world, copy)
    await world.run()

    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)
    assert world.outputs.files == files
    assert world.attempts("fox") == ["succeeded", "succeeded"]


@pytest.mark.parametrize("state", [ItemState.SUBMITTING, ItemState.ACTIVE])
async def test_first_attempt_under_way_in_the_copy_is_not_given_up_for_its_redo(world: World, state: ItemState) -> None:
    """A lost attempt that followed a paid one does not mean that the first had created nothing."""
    world.enqueue("fox")
    copies: list[Path] = []

    def look() -> None:
        if not copies and world.state("fox") is state:
            copies.append(copied(world))

    await world.run_watched(look)
    make_again(world)
    await world.run()

    restored(world, copies[0])
    await world.run()

    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)
    assert world.attempts("fox") == ["succeeded", "succeeded"]
    assert shown(world) == ["fox.v2.png"]


async def test_every_death_of_a_redo_pays_once_more_and_keeps_a_version(world: World) -> None:
    """A kill at any step leaves a current version: the first, or the second once its file is recorded."""
    await done(world)
    make_again(world)
    steps = 1
    while not await world.run_killed(steps):
        world.restart()
        assert shown(world) in (["fox.png"], ["fox.v2.png"])
        steps += 7

    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)
    assert shown(world) == ["fox.v2.png"]


async def test_export_tells_the_request_that_made_a_file(world: World) -> None:
    """While the changed request of an item waits, its file has the prompt that it was made from."""
    await done(world)
    prompt = next(Exports(world.connection).rows("job", below=9)).prompt
    make_again(world)
    world.connection.execute("UPDATE item SET prompt = 'another'")

    assert [row.prompt for row in Exports(world.connection).rows("job", below=9)] == [prompt]

    await world.run()

    assert [row.prompt for row in Exports(world.connection).rows("job", below=9)] == ["another"]


async def test_show_lists_versions_and_the_current_one(world: World) -> None:
    """The detail has each version with its files, whichever is current; the summary has the current number."""
    await done(world)
    make_again(world)
    await world.run()
    world.write(choose_version, "job", "fox", 1, world.now_ms)

    detail = Items(world.connection).detail("job", "fox")

    assert detail.item.version == 1
    assert detail.item.generation_id == detail.attempts[0].generation_id
    assert [(one.number, one.attempt, one.is_current, len(one.outputs)) for one in detail.versions] == [
        (1, 1, True, 1),
        (2, 2, False, 1),
    ]
