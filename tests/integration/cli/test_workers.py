"""Several worker processes on one queue in PostgreSQL: who drives what, what is told of it, and what is refused."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cli.workspace import Workspace
from support import postgres
from support.shared_queue import SharedQueue, wait_until

ACCOUNTS = ("anna", "ben", "cleo", "dora")

pytestmark = [pytest.mark.postgres, pytest.mark.long]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedQueue]:
    """A queue with a service of four accounts."""
    postgres.require()
    with postgres.server().database() as url, SharedQueue(tmp_path, url, ACCOUNTS, scale=120.0).serving() as made:
        yield made


@pytest.fixture
def unhurried(tmp_path: Path) -> Iterator[SharedQueue]:
    """The same, for workers that are to be busy for a while: each picture is drawn, which takes this machine's time."""
    postgres.require()
    with postgres.server().database() as url, SharedQueue(tmp_path, url, ACCOUNTS, scale=40.0).serving() as made:
        yield made


def drivers(shared: SharedQueue, config: str) -> dict[str, str | None]:
    """Return who drives each account, as `status` tells."""
    return {each["account"]: each.get("driven_by") for each in shared.document("status", config=config)["accounts"]}


def egresses(shared: SharedQueue, config: str) -> list[str]:
    return sorted(str(worker).partition("/")[0] for worker in drivers(shared, config).values())


def test_two_workers_share_the_accounts_and_one_hands_over_at_its_end(unhurried: SharedQueue) -> None:
    """Each takes as many accounts as the other; after SIGTERM, the other has all of them within two renewals."""
    shared = unhurried
    one, two = shared.machine("fra-1"), shared.machine("fra-2")
    assert shared.call("enqueue", shared.manifest("birds", items=900), config=one)[0] == 0
    first, second = shared.work("fra-1", config=one), shared.work("fra-2", config=two)
    wait_until(lambda: egresses(shared, one) == ["fra-1", "fra-1", "fra-2", "fra-2"], shared.said, pause_seconds=0.5)
    table = shared.call("workers", config=one)
    listed = shared.document("workers", config=one)["workers"]
    checks = [shared.call("workers", "--check", name, config=one)[0] for name in ("fra-1", "fra-3")]
    queued = shared.call("show", "birds", "birds-900", config=one)
    looked = shared.call("doctor", config=one)

    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 143, shared.said()
    wait_until(lambda: egresses(shared, one) == ["fra-1"] * 4, shared.said, seconds=15, pause_seconds=0.5)
    drained = shared.call("workers", "drain", "fra-1", config=one)
    code = first.wait(30)

    assert table[0] == 0, table
    assert "2 of 4" in table[1]
    assert [(worker["egress"], worker["sends"], len(worker["accounts"])) for worker in listed] == [
        ("fra-1", True, 2),
        ("fra-2", True, 2),
    ]
    assert checks == [0, 1]
    assert "queued" in queued[1]
    assert "no process" not in queued[1]
    assert "run by 2 workers" in looked[1]
    assert drained[0] == 0
    assert drained[1].startswith("Draining fra-1/")
    assert code in {0, 3, 5}, shared.said()


def test_run_waits_for_its_job_while_its_address_is_anothers(shared: SharedQueue) -> None:
    """`run` enqueues and stands by; it ends when the worker of its address has made all files.

    `enqueue` says who takes the items: before, the commands; now, the worker.
    """
    config = shared.machine("fra-1")
    undriven = shared.call("enqueue", shared.manifest("foxes", items=1), config=config)
    worker = shared.work("fra-1", config=config)
    wait_until(
        lambda: shared.call("workers", "--check", "fra-1", config=config)[0] == 0, shared.said, pause_seconds=0.5
    )
    driven = shared.call("enqueue", shared.manifest("owls", items=1), config=config)

    code, out, said = shared.call("run", shared.manifest("birds", items=6), "--egress", "fra-1", config=config)

    assert code == 0, said + shared.said()
    assert "6 of 6 items done" in out
    assert worker.poll() is None
    assert "--forever foxes` also waits for more" in undriven[1]
    assert "1 worker shares this queue and takes them" in driven[1]


def test_run_joins_as_a_worker_where_its_address_is_free(shared: SharedQueue) -> None:
    """Without any worker the command does the job itself, and leaves no lease behind."""
    config = shared.machine("fra-1")

    code, out, said = shared.call("run", shared.manifest("birds", items=6), config=config)

    assert code == 0, said
    assert "6 of 6 items done" in out
    assert set(drivers(shared, config).values()) == {None}
    (journal,) = (shared.folder / "state").rglob("*.attempts")
    assert journal.read_bytes().count(b"\n") == 6


def test_account_without_a_key_here_is_left_and_reported(shared: SharedQueue) -> None:
    """A machine never drives what it has no key for, holds none of its items, and `status` warns of it."""
    config = shared.machine("fra-1", ("anna",))
    manifests = [shared.manifest(account, items=2, accounts=[account]) for account in ("anna", "ben")]
    assert shared.call("enqueue", *manifests, config=config)[0] == 0
    shared.work("fra-1", config=config)
    wait_until(lambda: shared.done(config) == 2, shared.said, pause_seconds=0.5)

    status = shared.call("status", config=config)[1]
    found = shared.document("workers", config=config)["undriven"]
    ben = next(job for job in shared.document("status", config=config)["jobs"] if job["job"] == "ben")

    assert found == [
        {"profile": "studio", "account": "ben", "reason": "no machine has an API key of it that works"},
    ]
    assert "nobody drives studio/ben" in status
    assert "DRIVEN BY" in status
    assert "1 worker shares this queue and drives 1 account" in status
    assert ben["items"]["queued"] == 2


def test_run_without_any_key_is_an_error_and_not_an_endless_wait(shared: SharedQueue) -> None:
    """The sentence is the one of a file's queue, and nothing was sent."""
    config = shared.machine("fra-1", ())

    code, _, said = shared.call("run", shared.manifest("birds", items=1, accounts=["anna"]), config=config)

    assert code == 2
    assert "account anna: no API key found in the file no-key-here" in said


def test_run_learns_from_the_queue_that_the_driven_accounts_have_no_credits(tmp_path: Path) -> None:
    """Another worker drives them and is refused; the command ends as it would have ended by itself."""
    postgres.require()
    with (
        postgres.server().database() as url,
        SharedQueue(tmp_path, url, ("anna", "ben"), scale=120.0, credits=0).serving() as shared,
    ):
        config = shared.machine("fra-1")
        shared.work("fra-1", config=config)
        wait_until(
            lambda: shared.call("workers", "--check", "fra-1", config=config)[0] == 0, shared.said, pause_seconds=0.5
        )

        code, _, said = shared.call("run", shared.manifest("birds", items=3), "--egress", "fra-1", config=config)

    assert code == 4, said + shared.said()
    assert "The account studio/anna cannot work: it has no credits left" in said
    assert "The same holds for studio/ben." in said


def test_run_learns_from_the_queue_that_the_key_of_the_driven_account_is_refused(shared: SharedQueue) -> None:
    """The worker of its address has let the account go; the command says why, and does not wait for it."""
    config = shared.machine("fra-1")
    text = (shared.folder / config).read_text()
    (shared.folder / config).write_text(text.replace("service/key-anna", "old-key"))
    (shared.folder / "old-key").write_text("an-api-key-that-nobody-issued")
    shared.work("fra-1", config=config)
    wait_until(
        lambda: shared.call("workers", "--check", "fra-1", config=config)[0] == 0, shared.said, pause_seconds=0.5
    )

    code, _, said = shared.call(
        "run", shared.manifest("birds", items=1, accounts=["anna"]), "--egress", "fra-1", config=config
    )

    assert code == 4, said + shared.said()
    assert "The account studio/anna cannot work: the service refuses its API key" in said


def test_run_with_one_key_for_two_accounts_is_an_error_and_not_an_endless_wait(shared: SharedQueue) -> None:
    """Service section 8: the limits are the account's, and both would count them apart."""
    config = shared.machine("fra-1", ())
    (shared.folder / "no-key-here").write_text("one-api-key")

    code, _, said = shared.call("run", shared.manifest("birds", items=1), config=config)

    assert code == 2
    assert "give each an API key of its own" in said


def test_another_limit_for_the_same_address_is_refused(shared: SharedQueue) -> None:
    """Both workers would count requests of the same address against different limits."""
    config = shared.machine("fra-1")
    shared.work("fra-1", config=config)
    wait_until(
        lambda: shared.call("workers", "--check", "fra-1", config=config)[0] == 0, shared.said, pause_seconds=0.5
    )

    code, _, said = shared.call("work", "--forever", "--egress", "fra-1", config=shared.machine("fra-9", limit=60))

    assert code == 2
    assert "egress fra-1: worker fra-1/" in said
    assert "nothing was sent" in said


def test_a_file_has_no_workers_and_no_egress(workspace: Workspace) -> None:
    """Both are refused with a sentence, and nothing is made."""
    refused = [workspace.call("work", "--egress", "fra-1"), workspace.call("workers")]
    asked = workspace.call("workers", "--help")

    assert [call.exit for call in refused] == [2, 2]
    assert "is a file, which one process runs; nothing was sent" in refused[0].err
    assert "has no workers" in refused[1].err
    assert asked.exit == 0
    assert "drain" in asked.out


def test_a_few_first_is_refused_where_workers_share(shared: SharedQueue) -> None:
    """Other workers would begin the rest; nothing is enqueued."""
    config = shared.machine("fra-1")

    code, _, said = shared.call("run", shared.manifest("birds", items=6), "--yes", "--limit", "2", config=config)

    assert code == 2
    assert "other workers would begin the rest; nothing was enqueued or sent" in said
    assert shared.document("status", config=config)["jobs"] == []


def test_run_waits_for_the_journals_of_a_machine_no_longer_than_allowed(shared: SharedQueue) -> None:
    """The machine is named, with the next command; `workers gone` ends the wait."""
    one = shared.machine("fra-1")
    assert shared.call("enqueue", shared.manifest("birds", items=2), config=one)[0] == 0
    journals = ("token", "another")  # of two folders on the same machine, which is named once
    machine = json.dumps({each: {"host": "vm-7", "seen_at": int(time.time() * 1000)} for each in journals})
    with postgres.server().admin(shared.url.name) as admin:
        for key in ("journal_machines", "awaited_machines"):
            admin.execute("INSERT INTO meta (key, value) VALUES (%s, %s)", [key, machine])

    code, _, said = shared.call("work", "--egress", "fra-1", "--wait-journals", "0", config=one)
    listed, told = (shared.call(command, config=one)[1] for command in ("workers", "status"))
    document = shared.document("workers", config=one)
    gone = shared.call("workers", "gone", "vm-7", config=one)
    done = shared.call("work", "--egress", "fra-1", "--wait-journals", "0", config=one)

    assert code == 6, said
    for text in (said, listed, told):
        assert "vm-7" in text
        assert " ".join(text.split()).count("workers gone vm-7") == 1
    assert "journals of vm-7 after" in " ".join(said.split())
    assert [each["host"] for each in document["awaited"]] == ["vm-7", "vm-7"]
    assert gone[0] == 0
    assert done[0] == 0, done
