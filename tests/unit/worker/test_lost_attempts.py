"""A queue that was restored from an older copy: what it lost is in the journal beside it, and is replayed."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from batchkiln.api.reading import read_item_report
from batchkiln.config import Config, Profile
from batchkiln.core.errors import LeaseLost, QueueBusy
from batchkiln.core.job import SourceRef
from batchkiln.core.outcomes import FACTS, Fact
from batchkiln.core.queue_changes import Facts
from batchkiln.core.rate_limits import RequestKind, RequestNote
from batchkiln.core.responses import ErrorInfo, GenerationStatus, RefusalKind, Refused, Throttled
from batchkiln.core.states import ItemState
from batchkiln.store import attempt_journal
from batchkiln.store.lost_attempts import _compare, open_journal
from batchkiln.store.meta import write_meta
from batchkiln.store.operations import cancel, pause, preview_cancel, redo, retry, unpause
from batchkiln.store.planner_snapshot import snapshot
from batchkiln.store.reader import Reader
from batchkiln.store.resolution import Decision, _set_aside, resolve
from batchkiln.store.session import Session
from support.builders import NO
from support.fake_service import Lost
from support.stores import is_postgres, open_session
from support.worker_world import World

ACCOUNTS: Final = ("main", "second", "third")
QUIET: Final = timedelta(seconds=70)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A queue with three accounts and a journal."""
    made = World(tmp_path, accounts=ACCOUNTS, keeps_journal=True)
    yield made
    made.close()


def copied(world: World, name: str = "saved") -> Path:
    """Return a copy of the queue as it is now; in PostgreSQL, the tables themselves are copied."""
    path = world.path.with_name(f"{name}.db")
    if is_postgres():
        first = f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"
        _on_server(world, path, first, "CREATE TABLE {1} AS TABLE {0}")
        return path
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(world.path)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    return path


def restored(world: World, copy: Path, *, after_seconds: float = 0.0) -> None:
    """Put a copy in the queue's place, and begin another process on it."""
    world.close()
    if is_postgres():
        unchecked = "SET session_replication_role = replica"
        _on_server(world, copy, unchecked, "DELETE FROM {0}; INSERT INTO {0} SELECT * FROM {1}")
    else:
        for ending in ("-wal", "-shm"):
            Path(f"{world.path}{ending}").unlink(missing_ok=True)
        world.path.write_bytes(copy.read_bytes())
    world.restart(after_seconds=after_seconds)


def _on_server(world: World, copy: Path, first: str, of_each_table: str) -> None:
    """Run a script, and one for each table and its copy."""
    with closing(open_session(world.path)) as session:
        script: Any = getattr(session, "script")  # noqa: B009  what only PostgreSQL's has
        script(first)
        tables = session.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            script(of_each_table.format(f'public."{table}"', f'{copy.stem}."{table}"'))


def enqueued(world: World, count: int = 6) -> tuple[str, ...]:
    """Enqueue items for all accounts."""
    return world.enqueue(*(f"item-{number}" for number in range(count)), accounts=ACCOUNTS)


async def test_lost_attempts_are_replayed_by_their_own_accounts(world: World) -> None:
    """Law 2: whoever sent it sends it again, with the same key and bytes; nothing is charged twice."""
    items = enqueued(world)
    copy = copied(world)
    await world.run()
    before = set(world.service.creates)

    restored(world, copy)
    await world.run()

    assert set(world.service.creates) == before
    assert world.service.charged == 10 * len(items)
    assert {world.state(item) for item in items} == {ItemState.DONE}
    assert world.money() == (0, 60, 0)


async def test_nothing_is_sent_for_a_minute_and_a_poll_interval(world: World) -> None:
    """Law 5: the windows, and the moment of the last poll, were lost with the attempts."""
    enqueued(world)
    copy = copied(world)
    await world.run()
    last = world.service.requests[-1].at

    restored(world, copy)
    began = world.clock.instant
    await world.run()

    later = [entry.at for entry in world.service.requests if entry.at > last and entry.kind in {"create", "read"}]
    assert QUIET <= min(later) - began < QUIET + timedelta(seconds=1)
    assert world.service.violations == []


async def test_quiet_minute_survives_a_kill(world: World) -> None:
    """A second start waits for what is left of it."""
    enqueued(world)
    copy = copied(world)
    await world.run()
    restored(world, copy)
    sent = len(world.service.creates)
    began = world.clock.instant
    await world.run_killed(60)
    world.restart()

    await world.run()

    first = [entry.at for entry in world.service.requests if entry.kind == "create"][sent]
    assert QUIET <= first - began < QUIET + timedelta(seconds=1)


async def test_item_that_is_enqueued_again_is_found_by_its_name(world: World) -> None:
    """The copy is older than the job, and the items come back in another order."""
    copy = copied(world)
    items = enqueued(world)
    await world.run()

    restored(world, copy)
    world.enqueue(*reversed(items), accounts=ACCOUNTS)
    await world.run()

    assert world.service.charged == 60
    assert {world.state(item) for item in items} == {ItemState.DONE}


async def test_older_queue_that_lost_its_items_pays_nothing_twice(world: World) -> None:
    """Law 2: its keys come from ids, which other items have now: each gets the journal's key, or one by its name."""
    world.write(write_meta, "keys_from", None)
    copy = copied(world)
    items = enqueued(world)
    await world.run()

    restored(world, copy)
    world.enqueue("new", *reversed(items), accounts=ACCOUNTS)
    await world.run()

    assert world.service.charged == 70
    assert {world.state(item) for item in ("new", *items)} == {ItemState.DONE}


async def test_later_attempt_of_an_item_is_the_one_that_counts(world: World) -> None:
    """Law 2: the first ended before the second was begun, which is paid: the first is not asked for again."""
    (item,) = world.enqueue("item", accounts=ACCOUNTS)
    copy = copied(world)
    world.service.say("create", Refused(RefusalKind.OVER_QUOTE, NO))
    await world.run()
    assert world.attempts(item) == ["refused", "succeeded"]

    restored(world, copy)
    await world.run()

    assert world.attempts(item) == ["succeeded"]
    assert world.service.charged == 10


async def test_attempt_that_a_lost_one_followed_is_not_sent_again(world: World) -> None:
    """Law 2: the copy has an attempt under way; it had ended before the next one was begun, and paid."""
    (item,) = world.enqueue("fox", accounts=("main",))
    copies: list[Path] = []

    def refuse_once(kind: str, _account: str) -> object:
        if kind != "create" or copies:
            return None
        copies.append(copied(world))
        return Refused(RefusalKind.OVER_QUOTE, NO)

    world.service.rule = refuse_once
    await world.run()
    assert world.state(item) is ItemState.DONE

    restored(world, copies[0])
    await world.run()

    assert world.service.charged == 10
    assert world.state(item) is ItemState.DONE
    assert world.rows("SELECT * FROM lost_attempt") == []


async def test_refused_attempt_is_not_asked_for_again(world: World) -> None:
    """It created nothing: its item is free, and is not held for an hour over an old refusal."""
    world.service.say("create", Refused(RefusalKind.INVALID, ErrorInfo("blocked_prompt", "no")))
    (item,) = world.enqueue("item", accounts=ACCOUNTS)
    copy = copied(world)
    await world.run()

    restored(world, copy)
    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10


async def test_attempt_after_a_lost_refusal_is_journaled(world: World) -> None:
    """Law 2: the restored queue made the refused item again, and that was paid."""
    world.service.say("create", Refused(RefusalKind.INVALID, NO))
    (item,) = world.enqueue("item", accounts=ACCOUNTS)
    copy = copied(world)
    await world.run()
    restored(world, copy)
    await world.run()

    restored(world, copy)
    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10


async def test_refusal_in_a_copy_does_not_hide_what_another_copy_paid(world: World) -> None:
    """Laws 2 and 3: the number of a lost refusal is not used again, so that each key belongs to one attempt."""
    world.service.say("create", Refused(RefusalKind.INVALID, NO))
    (item,) = world.enqueue("item", accounts=("main",))
    before = copied(world, "before")
    await world.run()
    refused = copied(world, "refused")
    restored(world, before)
    world.rows("UPDATE job SET accounts = ?", '["second"]')
    await world.run()

    restored(world, refused)
    await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["refused", "succeeded"])
    assert world.service.charged == 10


async def test_attempt_that_was_refused_after_the_copy_is_not_sent_again(world: World) -> None:
    """Law 2: another account was paid for the item since."""
    copies: list[Path] = []

    def look() -> None:
        if world.state(item) is ItemState.SUBMITTING and not copies:
            copies.append(copied(world, "sent"))

    world.service.say("create", Refused(RefusalKind.INVALID, NO))
    (item,) = world.enqueue("item", accounts=("main",))
    before = copied(world, "before")
    await world.run_watched(look)
    restored(world, before)
    world.rows("UPDATE job SET accounts = ?", '["second"]')
    await world.run()

    restored(world, copies[0])
    await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["abandoned", "succeeded"])
    assert world.service.charged == 10


async def test_changed_item_is_held_and_not_sent(world: World) -> None:
    """Law 2: a newer manifest has another prompt; under the old key it would be refused, under another one paid."""
    (item,) = world.enqueue("item", accounts=ACCOUNTS)
    copy = copied(world)
    await world.run()
    sent = len(world.service.creates)

    restored(world, copy)
    world.connection.execute("UPDATE item SET prompt = 'another one'")
    await world.run()

    assert len(world.service.creates) == sent
    assert (world.state(item), world.error(item)) == (ItemState.HELD, "attempt_damaged")


async def test_item_of_an_account_without_its_key_is_held(world: World) -> None:
    """Service rule 4.2: no other account, and no other API key, may ask for it; `show` names the remedy."""
    (item,) = world.enqueue("item", accounts=("second",))
    copy = copied(world)
    await world.run()

    restored(world, copy)
    world.keys["second"] = ()
    world.connection.execute("""UPDATE job SET accounts = '["main"]'""")
    await world.run()

    assert (world.state(item), world.error(item)) == (ItemState.HELD, "key_missing")
    assert world.service.charged == 10


async def test_item_whose_key_may_be_forgotten_is_held(world: World) -> None:
    """Service rule 4.2 names no time: after a day, a person decides."""
    (item,) = world.enqueue("item", accounts=ACCOUNTS)
    copy = copied(world)
    await world.run()
    sent = len(world.service.creates)

    restored(world, copy, after_seconds=25 * 3600)
    await world.run()

    assert len(world.service.creates) == sent
    assert (world.state(item), world.error(item)) == (ItemState.HELD, "key_forgotten")


async def test_item_that_may_be_paid_is_not_canceled(world: World) -> None:
    """Canceling costs nothing, and what a lost attempt paid would be lost with it."""
    items = world.enqueue("fox", "owl", accounts=("main",))
    copy = copied(world)
    await world.run()
    restored(world, copy)
    world.write(pause, "job", now=world.now_ms)
    await world.run()

    preview = world.write(preview_cancel, "job", ())
    report = cancel(world.connection, "job", (), world.now_ms)
    world.write(unpause, "job", now=world.now_ms)
    await world.run()

    assert (preview.canceled, report.canceled) == (0, 0)
    assert [skipped.name for skipped in report.skipped] == ["fox", "owl"]
    assert {world.state(item) for item in items} == {ItemState.DONE}


async def test_lost_attempt_of_a_paused_job_waits_for_it(world: World) -> None:
    """Law 2: it is replayed once the job goes on, and by nobody else before."""
    (item,) = world.enqueue("item", accounts=ACCOUNTS)
    copy = copied(world)
    await world.run()

    restored(world, copy)
    world.write(pause, "job", now=world.now_ms)
    await world.run()
    world.write(unpause, "job", now=world.now_ms)
    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10


async def test_full_disk_at_the_journal_sends_nothing(world: World) -> None:
    """Law 1: what would not survive a restored copy is not sent; the next start goes on."""
    (item,) = world.enqueue("item", accounts=ACCOUNTS)

    with (
        mock.patch.object(attempt_journal, "_sync", side_effect=OSError(28, "No space left on device")),
        pytest.raises(QueueBusy, match="journal of attempts cannot be written"),
    ):
        await world.run()

    assert world.service.creates == []
    world.restart()
    await world.run()
    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10


@pytest.mark.long
async def test_every_death_around_the_journal_pays_once(world: World) -> None:
    """Laws 1 and 2: wherever the process dies, and whether an older copy follows or not."""
    for steps in range(1, 60, 2):
        item = f"item-{steps}"
        world.enqueue(item, accounts=ACCOUNTS)
        copy = copied(world)
        await world.run_killed(steps)
        if steps % 4 == 1:
            restored(world, copy)
        else:
            world.restart()
        await world.run()
        assert world.state(item) is ItemState.DONE
        assert world.service.charges_of(f"a {item}") == 1


async def test_lost_reply_of_a_lost_attempt_is_replayed(world: World) -> None:
    """Law 2: in doubt before and after the restore."""
    world.service.say("create", Lost.REPLY)
    enqueued(world, 3)
    copy = copied(world)
    await world.run_until_true(lambda: len(world.service.creates) >= 3)

    restored(world, copy)
    world.service.say("create", Lost.REPLY)
    await world.run()

    assert world.service.charged == 30


async def test_item_that_was_canceled_in_the_copy_is_queued_again(world: World) -> None:
    """Law 3: it had been paid, which nobody could know before the journal was read; it is delivered, and told."""
    (item,) = world.enqueue("fox", accounts=ACCOUNTS)
    copy = copied(world)
    await world.run()
    restored(world, copy)
    cancel(world.connection, "job", (), world.now_ms)

    with capture_logs() as logs:
        await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["succeeded"])
    assert world.service.charged == 10
    assert world.money() == (0, 10, 0)
    assert [entry["items"] for entry in logs if entry["event"] == "restored_items_queued"] == [["job/fox"]]


async def test_item_that_was_retried_after_the_copy_is_queued_again(world: World) -> None:
    """Law 3: the copy has it as rejected; its retry was paid."""
    world.service.say("create", Refused(RefusalKind.INVALID, ErrorInfo("blocked_prompt", "no")))
    (item,) = world.enqueue("fox", accounts=ACCOUNTS)
    await world.run()
    assert world.state(item) is ItemState.REJECTED
    copy = copied(world)
    retry(world.connection, "job", ("fox",), world.now_ms)
    await world.run()

    restored(world, copy)
    await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["refused", "succeeded"])
    assert world.service.charged == 10


async def test_lost_redo_of_an_item_that_is_done_is_replayed(world: World) -> None:
    """Law 3: the copy has its first version alone; the second was paid, and is delivered beside it."""
    (item,) = world.enqueue("fox", accounts=ACCOUNTS)
    await world.run()
    copy = copied(world)
    redo(world.connection, "job", ("fox",), world.now_ms)
    await world.run()
    restored(world, copy)

    with capture_logs() as logs:
        await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["succeeded", "succeeded"])
    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)
    assert [each["items"] for each in logs if each["event"] == "restored_items_queued"] == [["job/fox"]]
    assert world.rows("SELECT * FROM lost_attempt") == []


async def test_disputed_attempt_that_a_lost_one_followed_is_never_sent_again(world: World) -> None:
    """Law 2: a person had decided that it created nothing, and the next one was paid."""
    world.service.say("create", Lost.REQUEST)
    (item,) = world.enqueue("fox", accounts=("main",))
    await world.run_until_true(lambda: len(world.attempts(item)) == 1)
    world.restart()
    world.write(_hold, item)
    copy = copied(world)
    world.write(resolve, "job", "fox", Decision.NOT_CREATED, now=world.now_ms)
    await world.run()
    assert world.service.charged == 10

    restored(world, copy)
    await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["abandoned", "succeeded"])
    assert world.service.charged == 10


async def test_lost_attempt_of_an_item_that_ends_in_this_run_is_replayed_in_it(world: World) -> None:
    """Law 3: the copy has the first attempt under way, whose failure ended the item. Its retry was paid."""
    world.service.outcomes.append(GenerationStatus.FAILED)
    (item,) = world.enqueue("fox", accounts=("main",), recipe_fields={"attempts": 1})
    await world.run_until(item, ItemState.ACTIVE)
    copy = copied(world)
    world.restart()
    await world.run()
    retry(world.connection, "job", ("fox",), world.now_ms)
    await world.run()

    restored(world, copy)
    await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["failed", "succeeded"])
    assert len(world.service.generations) == 2
    assert world.rows("SELECT * FROM lost_attempt") == []


@pytest.mark.parametrize("order", [("main", "second"), ("second", "main")])
async def test_given_up_attempt_that_another_machine_followed_is_not_sent_again(
    world: World, order: tuple[str, ...]
) -> None:
    """Law 2: each machine knows its own attempts alone, and their journals are compared in any order."""
    world.service.say("create", Lost.REQUEST)
    (item,) = world.enqueue("fox", accounts=("main",))
    copy = copied(world)
    await world.run_until_true(lambda: len(world.attempts(item)) == 1)
    world.restart()
    world.write(_hold, item)
    world.write(resolve, "job", "fox", Decision.NOT_CREATED, now=world.now_ms)
    world.rows("UPDATE job SET accounts = ?", '["second"]')
    await world.run()

    _restored_by_machines(world, copy, order)
    await world.run()

    assert world.state(item) is ItemState.DONE
    assert world.service.charged == 10


@pytest.mark.parametrize("order", [("main", "second"), ("second", "main")])
async def test_paid_attempt_under_way_that_another_machine_followed_is_not_given_up(
    world: World, order: tuple[str, ...]
) -> None:
    """Law 3: the item was made again on another machine, whose journal alone tells that the first was delivered."""
    copies: list[Path] = []
    (item,) = world.enqueue("fox", accounts=("main",))

    def look() -> None:
        if world.state(item) is ItemState.SUBMITTING and not copies:
            copies.append(copied(world))

    await world.run_watched(look)
    world.rows("UPDATE job SET accounts = ?", '["second"]')
    redo(world.connection, "job", ("fox",), world.now_ms)
    await world.run()

    _restored_by_machines(world, copies[0], order)
    await world.run()

    assert world.attempts(item) == ["succeeded", "succeeded"]
    assert world.service.charged == 20
    assert world.money() == (0, 20, 0)


@pytest.mark.parametrize("accounts", [("main", "second"), ("second", "main")])
async def test_versions_of_several_accounts_come_back_in_their_order(world: World, accounts: tuple[str, str]) -> None:
    """The newest version is the current one again, and each file has its own name."""
    (item,) = world.enqueue("fox", accounts=accounts[:1])
    copy = copied(world)
    await world.run()
    world.rows("UPDATE job SET accounts = ?", json.dumps(accounts[1:]))
    redo(world.connection, "job", ("fox",), world.now_ms)
    await world.run()
    files = dict(world.outputs.files)

    restored(world, copy)
    await world.run()

    assert (world.state(item), world.attempts(item)) == (ItemState.DONE, ["succeeded", "succeeded"])
    assert world.service.charged == 20
    assert world.outputs.files == files
    assert world.one("SELECT number FROM attempt JOIN item ON item.version_id = attempt.id") == 2


async def test_outcome_is_refused_where_a_restored_database_gave_the_id_to_another_attempt(world: World) -> None:
    """A worker that does not know of the restore yet has an attempt that the database lacks."""
    (item,) = world.enqueue("fox", accounts=("main",))
    await world.run_until(item, ItemState.ACTIVE)
    attempt = snapshot(world.connection, world.workers[0].viewpoint, [world.clock.instant]).queue.unresolved
    assert attempt is not None
    facts, now = Facts(), world.clock.now()

    for stale in (replace(attempt, idempotency_key="bk-another"), replace(attempt, id=attempt.id + 1)):
        with pytest.raises(LeaseLost):
            await world.store.commit(stale, FACTS[Fact.KEY_MISSING], facts, now)
    request = RequestNote(attempt.account_id + 1, RequestKind.CREATE, now.instant, (now.instant,))
    for attempt_id in (attempt.id, attempt.id + 1):
        with pytest.raises(LeaseLost):
            await world.store.resend(attempt_id, request)

    assert (world.state(item), world.attempts(item)) == (ItemState.ACTIVE, ["active"])


def _restored_by_machines(world: World, copy: Path, order: Sequence[str]) -> None:
    """Restore a copy; each account's machine compares its own journal, and once more at its next start."""
    entries, _ = world.journal.read()
    world.keeps_journal = False
    restored(world, copy)
    for account in (*order, *order):
        own = [entry for entry in entries if entry.account == account]
        world.write(_compare, own, world.now_ms)


def _hold(connection: Session, item: str) -> None:
    """Set the attempt of an item aside, as the resolution of an item under way does first."""
    item_id = connection.execute("SELECT id FROM item WHERE name = ?", (item,)).fetchone()[0]
    _set_aside(connection, item_id, ItemState.SUBMITTING, 1)


async def test_dependent_of_a_source_that_was_made_again_is_replayed_with_its_own_image(world: World) -> None:
    """Law 2: the journal knows what was sent; what it was made from is not told wrongly afterwards."""
    world.inputs.files = world.outputs.files
    world.enqueue("still", accounts=("main",))
    await world.run()
    world.enqueue("clip", inputs=(SourceRef("still"),), accounts=("main",))  # type: ignore[arg-type]  # a reference
    copy = copied(world)
    await world.run()
    before = set(world.service.creates)
    restored(world, copy)
    redo(world.connection, "job", ("still",), world.now_ms)

    await world.run()

    assert world.states() == {"done": 2}
    assert before < set(world.service.creates)
    assert (world.service.charged, world.service.violations) == (30, [])
    assert [tuple(row) for row in world.rows("SELECT made_by, sha256 FROM item_source")] == [(None, None)]


async def test_image_that_is_uploaded_again_does_not_change_a_lost_request(world: World) -> None:
    """Law 2: the copy does not know the first upload."""
    (item,) = world.enqueue("item", inputs=(world.inputs.put("owl.png", b"owl"),), accounts=("main",))
    copy = copied(world)
    await world.run()
    before = set(world.service.creates)

    restored(world, copy)
    await world.run()

    assert world.state(item) is ItemState.DONE
    assert (set(world.service.creates), world.service.violations) == (before, [])


@pytest.mark.parametrize(("budget", "made"), [("budget_credits", 13), ("budget_credits_per_day", 18)])
async def test_budgets_keep_room_for_what_a_copy_has_lost(world: World, budget: str, made: int) -> None:
    """Law 6: another account does not spend what the lost attempts have cost, or cost when they are sent again."""
    names = [f"lost-{number}" for number in range(12)]  # more than a minute's creates
    lost = world.enqueue(*names, accounts=("main",))
    copy = copied(world)
    await world.run()
    restored(world, copy)
    later = tuple(f"later-{number}" for number in range(6))
    fields: dict[str, Any] = {budget: 130}
    world.enqueue(*lost, *later, accounts=("main", "second"), **fields)

    await world.run()

    spent = Counter[object]()
    for generation in world.service.generations.values():
        spent[generation.created_at.date()] += generation.cost
    assert max(spent.values()) <= 130
    assert sum(spent.values()) == 10 * made
    assert world.states() == {"done": made} | ({"rejected": 18 - made} if made < 18 else {})


async def test_a_run_ends_where_only_a_lost_attempt_of_another_account_may_make_room(world: World) -> None:
    """Law 6: the account of the lost attempt is not configured any more. Nothing else begins or is rejected."""
    (lost,) = world.enqueue("lost", accounts=("main",))
    copy = copied(world)
    await world.run()
    restored(world, copy)
    world.accounts = ("second",)
    world.enqueue("later", lost, accounts=("main", "second"), budget_credits=10)

    await world.run()

    assert world.states() == {"queued": 2}
    assert world.service.charged == 10


@pytest.mark.parametrize("accounts", [("main",), ("main", "second")])
@pytest.mark.parametrize("state", [ItemState.QUEUED, ItemState.ACTIVE])
async def test_budget_keeps_room_for_each_lost_version(
    world: World, accounts: tuple[str, ...], state: ItemState
) -> None:
    """Law 6: also while an earlier version of the item is under way or downloaded again."""
    world.accounts = accounts
    (fox,) = world.enqueue("fox", accounts=("main",))
    if state is ItemState.ACTIVE:
        await world.run_until(fox, state)
    copy = copied(world)
    world.restart()
    await world.run()
    redo(world.connection, "job", ("fox",), world.now_ms)
    await world.run()
    restored(world, copy)
    world.enqueue("fox", "later", "later-2", accounts=accounts, budget_credits=30)

    await world.run()

    assert world.service.charged == 30
    assert world.attempts(fox) == ["succeeded", "succeeded"]


async def test_budget_keeps_room_for_a_version_behind_a_held_one(world: World) -> None:
    """Law 6: the API key of both is gone."""
    world.enqueue("fox", accounts=("second",))
    copy = copied(world)
    await world.run()
    redo(world.connection, "job", ("fox",), world.now_ms)
    await world.run()
    restored(world, copy)
    world.keys["second"] = ()
    world.enqueue("fox", "later", "later-2", accounts=("main", "second"), budget_credits=30)

    await world.run()

    assert world.service.charged == 30
    assert world.states() == {"held": 1, "done": 1, "queued": 1}


async def _copy_of_a_throttled_attempt(world: World, item: str, *, sends: int = 1) -> Path:
    """Return a copy in which each send of an attempt was answered and created nothing; the run ends there."""
    copies: list[Path] = []

    def throttle(kind: str, _account: str) -> object:
        return Throttled(timedelta(seconds=30), NO) if kind == "create" and not copies else None

    def look() -> None:
        if not copies and world.rows("SELECT 1 FROM attempt WHERE state = 'sent' AND answers = ?", sends):
            copies.append(copied(world))
            world.control.stop()

    world.service.rule = throttle
    world.enqueue(item, accounts=("main",))
    await world.run_watched(look)
    return copies[0]


async def _run_after_a_pause(world: World) -> None:
    """Run a paused job, which frees the items of attempts that have created nothing, and continue it."""
    world.write(pause, "job", now=world.now_ms)
    await world.run()
    world.write(unpause, "job", now=world.now_ms)
    await world.run()


async def test_attempt_that_was_paid_after_the_copy_is_never_given_up(world: World) -> None:
    """Law 2: the journal knows that it was sent again."""
    copy = await _copy_of_a_throttled_attempt(world, "fox")
    world.restart()
    await world.run()
    restored(world, copy)

    await _run_after_a_pause(world)

    assert (world.state("fox"), world.attempts("fox")) == (ItemState.DONE, ["succeeded"])
    assert world.service.charged == 10


async def test_attempt_that_another_machine_sent_again_is_never_given_up(world: World) -> None:
    """Law 2: a start adds to this machine's journal what the queue knows of the other one, which is gone since."""
    copy = await _copy_of_a_throttled_attempt(world, "fox")
    before = world.journal.path.read_bytes()
    world.restart()
    await world.run()
    world.journal.path.write_bytes(before)
    world.restart()
    await world.run()
    restored(world, copy)

    await _run_after_a_pause(world)

    assert (world.state("fox"), world.attempts("fox")) == (ItemState.DONE, ["succeeded"])
    assert world.service.charged == 10


async def test_attempt_that_was_paid_after_another_restore_is_never_given_up(world: World) -> None:
    """Law 2: the restored queue counts sends on, so that the later copy does not take the paid one for its own last."""
    early = copied(world, "early")
    late = await _copy_of_a_throttled_attempt(world, "fox", sends=2)
    restored(world, early)
    world.enqueue("fox", accounts=("main",))
    await world.run()
    restored(world, late)

    await _run_after_a_pause(world)

    assert (world.state("fox"), world.attempts("fox")) == (ItemState.DONE, ["succeeded"])
    assert world.service.charged == 10


async def test_lost_item_does_not_wait_for_its_own_quote(world: World) -> None:
    """It is sent at once by the next run, and `show` must not tell a person to raise the budget."""
    world.enqueue("owl", accounts=("main",), budget_credits=20)
    await world.run()
    world.enqueue("owl", "fox", accounts=("main",), budget_credits=20)
    copy = copied(world)
    await world.run()
    restored(world, copy)
    await open_journal(world.database, world.journal, world.now_ms)

    report = read_item_report(
        Reader(world.connection), Config({"test": Profile("test")}, "test"), "job", "fox", world.clock.instant
    )

    assert "budget" not in report.explanation.situation + report.explanation.next
