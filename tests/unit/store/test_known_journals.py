"""The machines whose journals a restored database waits for, before any account is taken."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from batchkiln.core.lease_types import Egress, WorkerIdentity
from batchkiln.core.polling import RETENTION
from batchkiln.store import known_journals
from batchkiln.store.account_changes import account_id
from batchkiln.store.known_journals import Machine, machine_at
from batchkiln.store.leases import Leases
from batchkiln.store.sql import query
from support.worker_world import PROFILE, World

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

NOW: Final = 10_000_000_000
ONE: Final = Machine("token-one", "one", Path("/nowhere/one"))
TWO: Final = Machine("token-two", "two", Path("/nowhere/two"))
WORKER: Final = WorkerIdentity("fra-2/1", "fra-2", "two", 2, "0.3.0")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A queue whose database knows the machine ONE."""
    made = World(tmp_path)
    made.write(known_journals.compared, ONE, NOW, has_lost=False)
    yield made
    made.close()


def awaited(world: World) -> list[str]:
    return known_journals.awaited_hosts(world.connection)


async def test_running_worker_compares_its_journals_where_the_database_does_not_know_its_machine(world: World) -> None:
    """The database was restored to a state from before the machine's first worker: nobody waits for its journals."""
    compared: list[str] = []

    async def compare() -> None:
        compared.append(TWO.host)
        world.write(known_journals.compared, TWO, NOW, has_lost=False)

    leases = Leases(world.database, lambda _: NOW, machine=TWO, compare=compare)
    for _ in range(2):
        await leases.renew(WORKER, Egress(WORKER.egress, 120), None, ())

    assert compared == ["two"]


async def test_no_account_is_taken_before_each_machine_has_compared_its_journals(world: World) -> None:
    """Law 2: the item of an attempt that only another machine knows would be paid again."""
    world.write(known_journals.compared, TWO, NOW, has_lost=False)
    account = world.write(account_id, PROFILE, "main")
    leases = Leases(world.database, lambda _: NOW)
    world.write(known_journals.compared, ONE, NOW, has_lost=True)

    before = dict(await leases.take(WORKER, [account]))
    world.write(known_journals.compared, TWO, NOW, has_lost=True)

    assert (before, awaited(world)) == ({}, [])
    assert account in await leases.take(WORKER, [account])


def test_second_restore_to_a_state_that_waits_already_waits_for_all_again(world: World) -> None:
    """The copy was made while the database waited for TWO; what ONE sent since is lost as well."""
    world.write(known_journals.compared, TWO, NOW, has_lost=False)
    world.write(known_journals.compared, ONE, NOW, has_lost=True)
    assert awaited(world) == ["two"]

    world.write(known_journals.await_all, NOW)
    assert awaited(world) == ["one", "two"]

    world.write(known_journals.compared, ONE, NOW, has_lost=True)
    assert awaited(world) == ["two"]


def test_machine_that_is_gone_is_waited_for_no_longer(world: World) -> None:
    """Neither one that a person names, nor one that was silent for longer than the service keeps results."""
    late = NOW + int(RETENTION.total_seconds() * 1000) + 1
    world.write(known_journals.compared, TWO, late, has_lost=True)
    assert awaited(world) == []

    world.write(known_journals.compared, ONE, late, has_lost=False)
    world.write(known_journals.await_all, late)
    assert world.write(known_journals.forget_machine, "one") == 1

    assert awaited(world) == ["two"]


def test_machine_has_a_token_of_its_own_though_a_power_cut_left_its_file_empty(tmp_path: Path) -> None:
    """Two machines with equal tokens would count as one."""
    place = tmp_path / "journals" / "queue"
    first = machine_at(place, None).token
    assert machine_at(place, None).token == first

    place.with_name("machine").write_text("")

    assert machine_at(place, None).token not in {"", first}


def _tell_token(place: Path, begin: "Barrier", told: "Queue[str]") -> None:
    begin.wait()
    told.put(machine_at(place, None).token)


def test_processes_that_start_together_for_the_first_time_are_one_machine(tmp_path: Path) -> None:
    """A token that only a dead process knows would be waited for after a restore, without an end."""
    context, number = multiprocessing.get_context("fork"), 8
    for attempt in range(5):
        begin, told, place = context.Barrier(number), context.Queue(), tmp_path / str(attempt) / "queue"
        processes = [context.Process(target=_tell_token, args=(place, begin, told)) for _ in range(number)]
        for process in processes:
            process.start()
        tokens = {told.get(timeout=30) for _ in processes}
        for process in processes:
            process.join()

        assert tokens == {machine_at(place, None).token}


def test_crash_before_the_token_has_its_name_leaves_the_machine_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token is whole and on the disk before anybody can read it."""
    place = tmp_path / "queue"
    with monkeypatch.context() as patched:
        patched.setattr("os.link", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            machine_at(place, None)
    assert not place.with_name("machine").exists()

    assert len(machine_at(place, None).token) == 32


def test_machine_that_has_seen_a_later_event_takes_the_database_for_restored(world: World, tmp_path: Path) -> None:
    """Law 2: it has no lost attempt itself, but the other machine may have one."""
    machine = Machine("token-two", "two", tmp_path / "two")
    newest = world.connection.execute(query("newest_event")).fetchone()["id"]
    machine.remember(newest)
    world.write(known_journals.compared, machine, NOW, has_lost=False)
    assert awaited(world) == []

    machine.remember(newest + 1)
    world.write(known_journals.compared, machine, NOW, has_lost=False)

    assert awaited(world) == ["one"]


async def test_worker_remembers_the_newest_event_that_it_saw(world: World, tmp_path: Path) -> None:
    """Not while it waits itself: a comparison has to come first."""
    machine = Machine("token-two", "two", tmp_path / "two")
    world.write(known_journals.compared, machine, NOW, has_lost=False)
    machine.remember(0)
    leases = Leases(world.database, lambda _: NOW, machine=machine)
    newest = world.connection.execute(query("newest_event")).fetchone()["id"]

    await leases.renew(WORKER, Egress(WORKER.egress, 120), None, ())

    assert machine.newest_event == newest
