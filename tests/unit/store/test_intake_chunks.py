"""Applying in pieces: killed between any two, while others work, and without changing anything."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import ItemSpec
from batchkiln.core.states import Event
from batchkiln.store import apply
from batchkiln.store.apply import ApplyOptions, apply_manifest
from batchkiln.store.sqlite.file_session import prepare_for_reading
from support.queue_file import JOB, NOW, QueueFile, diagnostic_at, image, placed, spec, then_mistaken
from support.stores import HookedSession, is_postgres, open_session

DRY = ApplyOptions(dry_run=True)


class PowerCutError(Exception):
    """The process ends here."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a handful of items take several transactions."""
    monkeypatch.setattr(apply, "ITEMS_AT_ONCE", 3)
    monkeypatch.setattr(apply, "MOVES_AT_ONCE", 2)


def cut_after(commits: int) -> Callable[[str], None]:
    """Let a process end before the n-th commit of the queue."""
    left = commits

    def before(sql: str) -> None:
        nonlocal left
        if sql == "COMMIT":
            left -= 1
            if left < 0:
                raise PowerCutError

    return before


@pytest.mark.parametrize("commits", range(11))
def test_killed_between_any_two_transactions_and_applied_again(tmp_path: Path, commits: int) -> None:
    """A kill leaves a whole queue, and the same manifest applied again completes it in order."""
    queue = QueueFile(tmp_path / "queue.db")
    queue.apply([spec("old"), spec("changed"), spec("gone")])
    manifest = [spec("old"), spec("changed", prompt="new", inputs=(image("/a", "aa"),)), *map(spec, "abcdefgh")]
    session = open_session(queue.path)
    cut = HookedSession(session, cut_after(commits))

    with pytest.raises(PowerCutError):
        apply_manifest(
            cut,
            JOB,
            placed(manifest),
            profile="local",
            now=NOW,
            options=ApplyOptions(prune=True),
            diagnostic_at=diagnostic_at,
        )
    cut.close()
    queue.check()
    queue.apply(manifest, options=ApplyOptions(prune=True))

    queue.check()
    assert queue.names() == ["old", "changed", *"abcdefgh"]
    assert queue.names("canceled") == ["gone"]
    assert queue.item("changed")["prompt"] == "new"
    assert queue.kinds().count("request_changed") == 1
    queue.connection.close()


def test_an_error_of_the_source_leaves_the_queue_and_the_connection_as_they_were(queue: QueueFile) -> None:
    """Whatever reading raises passes through, and the same connection may apply again."""

    def broken() -> Iterator[ItemSpec]:
        yield spec("fox")
        raise PowerCutError

    with pytest.raises(PowerCutError):
        queue.apply(broken())
    report = queue.apply([spec("fox")])

    assert report.new == 1


def test_items_arrive_in_order_over_many_chunks(queue: QueueFile) -> None:
    """Positions go on from chunk to chunk, and from one application to the next."""
    names = [f"item-{number}" for number in range(10)]

    queue.apply([spec(name) for name in names[:4]])
    queue.apply([spec(name) for name in reversed(names)])

    assert queue.names() == [*names[:4], *reversed(names[4:])]
    assert [row[0] for row in queue.all("SELECT position FROM item ORDER BY id")] == list(range(10))


def test_many_changes_and_prunes_are_all_applied(queue: QueueFile) -> None:
    """More changes than fit into one transaction are all taken over."""
    names = [f"item-{number}" for number in range(7)]
    queue.apply([spec(name) for name in [*names, *"pqrst"]])

    report = queue.apply([spec(name, prompt="new") for name in names], options=ApplyOptions(prune=True))

    assert (report.updated, report.missing, report.pruned) == (7, 5, 5)
    assert queue.one("SELECT count(*) FROM item WHERE prompt = 'new'") == 7


@pytest.mark.long
def test_the_writer_is_free_while_a_manifest_is_read(queue: QueueFile) -> None:
    """A process at work may write at any time while items are still coming in."""
    queue.apply([spec("busy")])
    other = open_session(queue.path)
    if not is_postgres():
        other.execute("PRAGMA busy_timeout = 0")

    def slow() -> Iterator[ItemSpec]:
        for number in range(4_500):
            yield spec(f"item-{number}", inputs=(image(f"/{number}", "aa"),) if number % 1000 == 0 else ())
            if number % 500 == 0:
                other.execute("UPDATE job SET charged = charged + 1")

    queue.apply(slow())
    other.close()

    assert queue.one("SELECT charged FROM job") == 9


def test_an_item_sent_in_between_is_left_as_it_was_sent(queue: QueueFile) -> None:
    """Between the comparison and the change an item may be sent: then its request stays. Law 2."""
    queue.apply([spec("fox")])
    connection = open_session(queue.path)
    overtaken = False

    def before(sql: str) -> None:
        nonlocal overtaken
        if sql == "BEGIN IMMEDIATE" and not overtaken:
            overtaken = True
            queue.send("fox")

    report = apply_manifest(
        HookedSession(connection, before),
        JOB,
        placed([spec("fox", prompt="too late"), spec("owl")]),
        profile="local",
        now=NOW,
        options=ApplyOptions(),
        diagnostic_at=diagnostic_at,
    )
    connection.close()

    assert (report.updated, report.changed, report.new) == (0, ("fox",), 1)
    assert queue.item("fox")["prompt"] == "a picture of fox"


def test_a_dry_run_tells_the_same_and_changes_nothing(queue: QueueFile) -> None:
    """`plan` reports what applying would then do; the queue stays as it is, recipes and images included."""
    queue.apply([spec(name) for name in ("same", "changed", "gone", "refused")])
    queue.refuse("refused")
    manifest = [
        spec("same"),
        spec("changed", prompt="new", inputs=(image("/a", "aa"),)),
        spec("refused", prompt="new"),
        spec("new", recipe=replace(spec("x").recipe, model="epsilon-pro")),
    ]
    before = queue.dump()

    told = queue.apply(manifest, options=ApplyOptions(dry_run=True, prune=True))
    after = queue.dump()
    done = queue.apply(manifest, options=ApplyOptions(prune=True))

    assert after == before
    assert told == done


def test_a_dry_run_lists_what_could_not_be_applied(queue: QueueFile) -> None:
    """Changed items that were sent are in the report of a dry run, not an error."""
    queue.apply([spec("fox")])
    queue.send("fox")

    report = queue.apply([spec("fox", prompt="new")], options=DRY)

    assert (report.changed, report.changed_count, report.kept) == (("fox",), 1, 0)


@pytest.mark.sqlite
def test_a_dry_run_needs_no_right_to_write(queue: QueueFile) -> None:
    """A reader's connection will do, and is a reader's still afterwards."""
    queue.apply([spec("fox")])
    reader = sqlite3.connect(f"{queue.path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    prepare_for_reading(reader, queue.path)

    report = apply_manifest(
        reader,
        JOB,
        placed([spec("owl", inputs=(image("/a", "aa"),))]),
        profile="local",
        now=NOW,
        options=DRY,
        diagnostic_at=diagnostic_at,
    )

    assert (report.new, report.missing) == (1, 1)
    assert reader.execute("PRAGMA query_only").fetchone()[0] == 1
    reader.close()


def test_a_dry_run_reports_mistakes_like_any_other(queue: QueueFile) -> None:
    """A manifest with mistakes has no plan."""
    with pytest.raises(InputError, match="no such column"):
        queue.apply(then_mistaken(placed([spec("fox")]), Diagnostic("no such column")), options=DRY)


def test_a_given_up_item_takes_its_new_request_and_stays_ended(queue: QueueFile) -> None:
    """What a person gave up before it was sent comes back by a retry only."""
    queue.apply([spec("fox")])
    queue.move("fox", Event.INPUT_LOST, code="input_lost")
    queue.move("fox", Event.GIVEN_UP, code="given_up")

    queue.apply([spec("fox", prompt="new")])

    assert (queue.item("fox")["state"], queue.item("fox")["prompt"]) == ("failed", "new")
