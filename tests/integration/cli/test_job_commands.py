"""`retry`, `cancel`, `pause`, `unpause` and `resolve`: they say what it costs, and change what they say."""

import sqlite3
from contextlib import closing

import pytest

from batchkiln.core.calls import Call, Misunderstood
from batchkiln.core.queue_types import Circumstances
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import Event, ItemState
from batchkiln.core.timestamps import EPOCH
from batchkiln.store.misunderstood import record_misunderstood
from batchkiln.store.sqlite.file_session import prepare_for_writing
from batchkiln.store.transitions import transition
from integration.cli.workspace import Workspace, on_a_terminal


@pytest.fixture
def queued(workspace: Workspace) -> Workspace:
    """Give a workspace with a job of three queued items."""
    workspace.call("enqueue", workspace.manifest(items=3))
    return workspace


def hold(workspace: Workspace, item: str) -> None:
    """Have an item held, as if its image had gone."""
    path = workspace.folder / ".batchkiln" / "queue.db"
    connection = sqlite3.connect(path, isolation_level=None)
    prepare_for_writing(connection, path)
    item_id = connection.execute("SELECT id FROM item WHERE name = ?", (item,)).fetchone()[0]
    error = ErrorInfo("input_gone", "the image is gone")
    transition(connection, item_id=item_id, expected=ItemState.QUEUED, event=Event.INPUT_LOST, now=0, error=error)
    connection.close()


def states(workspace: Workspace) -> dict[str, str]:
    return {item["item"]: item["state"] for item in workspace.call("items", "foxes", "--json").lines}


def test_cancel_names_its_cost_and_takes_the_items_out(queued: Workspace) -> None:
    """Only the named item is canceled, and it is said that this costs nothing."""
    result = queued.call("cancel", "foxes", "fox-2")

    assert result.exit == 0
    assert "costs nothing" in result.err
    assert states(queued) == {"fox-1": "queued", "fox-2": "canceled", "fox-3": "queued"}


def test_retry_brings_canceled_items_back_when_named(queued: Workspace) -> None:
    """Retry tells what it did, and what it left alone and why."""
    queued.call("cancel", "foxes", "--yes")

    result = queued.call("retry", "foxes", "fox-1", "--json")

    assert result.document["requeued"] == {"canceled": 1}
    assert result.document["unquoted"] == 1
    assert states(queued)["fox-1"] == "queued"


def test_an_item_that_is_not_there_is_named_with_the_nearest(queued: Workspace) -> None:
    """Exit 2, nothing changed."""
    result = queued.call("cancel", "foxes", "fox-1", "fix-2")

    assert result.exit == 2
    assert "fox-2" in result.err
    assert set(states(queued).values()) == {"queued"}


def test_the_file_of_a_job_is_not_its_name(queued: Workspace) -> None:
    """Exit 2; the name that is wanted stands in the file."""
    result = queued.call("status", "foxes.yaml")

    assert result.exit == 2
    assert "did you mean 'foxes'? this is the name of a file" in result.err


def test_pause_and_unpause_are_reported_in_status(queued: Workspace) -> None:
    """A paused job is paused until it is unpaused; doing it twice changes nothing."""
    assert queued.call("pause", "foxes", "--json").document == {"job": "foxes", "paused": True, "changed": True}
    assert queued.call("status", "foxes", "--json").document["paused"] is True
    assert queued.call("pause", "foxes", "--json").document["changed"] is False

    unpaused = queued.call("unpause", "foxes")

    assert "3 items queued" in unpaused.err
    assert queued.call("status", "foxes", "--json").document["paused"] is False
    again = queued.call("unpause", "foxes")
    assert (again.out, again.err) == ("foxes was not paused; nothing was changed.\n", "")


def test_show_shows_why_an_item_is_held_and_what_to_do(queued: Workspace) -> None:
    """The reason and the way out are in plain words."""
    hold(queued, "fox-1")

    told = queued.call("show", "foxes", "fox-1").out

    assert "a local image is gone" in told
    assert "batchkiln resolve" in told


def test_show_does_not_blame_the_service_for_a_damaged_disk(queued: Workspace) -> None:
    """What the disk no longer gives as it was sent is another case than a key that the service knows otherwise."""
    hold(queued, "fox-1")
    queue = queued.folder / ".batchkiln" / "queue.db"
    with closing(sqlite3.connect(queue, isolation_level=None)) as connection:
        connection.execute("UPDATE item SET error_code = 'attempt_damaged' WHERE name = 'fox-1'")

    assert "check the disk" in queued.call("show", "foxes", "fox-1").out


def test_resolve_without_a_terminal_needs_the_items_id(queued: Workspace) -> None:
    """Nobody can be asked: exit 2, and nothing is changed."""
    hold(queued, "fox-1")

    result = queued.call("resolve", "foxes", "fox-1", "--as", "failed")

    assert result.exit == 2
    assert "--confirm fox-1" in result.err
    assert states(queued)["fox-1"] == "held"


def test_resolve_with_a_wrong_confirmation_changes_nothing(queued: Workspace) -> None:
    """Another item's id is no consent."""
    hold(queued, "fox-1")

    assert queued.call("resolve", "foxes", "fox-1", "--as", "failed", "--confirm", "fox-2").exit == 2
    assert states(queued)["fox-1"] == "held"


@pytest.mark.parametrize(("decision", "state"), [("failed", "failed"), ("not-created", "queued")])
def test_resolve_with_the_items_id_ends_the_hold(queued: Workspace, decision: str, state: str) -> None:
    """The decision is carried out, and its cost was said."""
    hold(queued, "fox-1")

    result = queued.call("resolve", "foxes", "fox-1", "--as", decision, "--confirm", "fox-1", "--json")

    assert result.document["state"] == state
    assert result.err
    assert states(queued)["fox-1"] == state


def test_resolve_ends_only_the_hold_that_was_asked_about(queued: Workspace) -> None:
    """Law 2: while a person thinks, another lets the item go on, and it is held once more for what may be paid."""
    hold(queued, "fox-1")

    def hold_again() -> None:
        queued.call("resolve", "foxes", "fox-1", "--as", "not-created", "--confirm", "fox-1")
        hold(queued, "fox-1")

    question = "Type the item's id"
    arguments = ("resolve", "foxes", "fox-1", "--as", "not-created")
    refused = on_a_terminal(queued, *arguments, question=question, answer="fox-1", meanwhile=hold_again)
    still = states(queued)["fox-1"]
    ended = on_a_terminal(queued, *arguments, question=question, answer="fox-1")

    assert (refused[0], still) == (2, "held")
    assert "has changed since you were asked" in refused[1]
    assert (ended[0], states(queued)["fox-1"]) == (0, "queued")


def test_resolve_takes_a_generation_id_only_with_that_decision(queued: Workspace) -> None:
    """--as generation needs the id, and no other decision has one."""
    hold(queued, "fox-1")

    assert queued.call("resolve", "foxes", "fox-1", "--as", "generation", "--confirm", "fox-1").exit == 2
    assert queued.call("resolve", "foxes", "fox-1", "--as", "failed", "--generation-id", "g").exit == 2


def test_a_failed_item_is_retried_without_naming_it(queued: Workspace) -> None:
    """Retry JOB takes what failed, was rejected or expired, and nothing else."""
    hold(queued, "fox-1")
    queued.call("resolve", "foxes", "fox-1", "--as", "failed", "--confirm", "fox-1")
    queued.call("cancel", "foxes", "fox-2")

    result = queued.call("retry", "foxes")

    assert "1 item queued again" in result.out
    assert "`batchkiln work foxes` makes them now with 1 other queued item" in result.out
    assert states(queued) == {"fox-1": "queued", "fox-2": "canceled", "fox-3": "queued"}


def test_a_held_item_is_not_retried_and_its_way_out_is_named(queued: Workspace) -> None:
    """Why it is held decides what ends that, so that `show` comes first; nothing is said to be queued."""
    hold(queued, "fox-1")

    result = queued.call("retry", "foxes", "fox-1")

    assert "`batchkiln show foxes fox-1`" in result.out
    assert "batchkiln work" not in result.out
    assert states(queued)["fox-1"] == "held"


def misunderstand(workspace: Workspace) -> None:
    """Have quotes rest, as after two replies that name no price."""
    path = workspace.folder / ".batchkiln" / "queue.db"
    connection = sqlite3.connect(path, isolation_level=None)
    prepare_for_writing(connection, path)
    connection.execute("INSERT INTO account (profile, name) VALUES ('local', 'main')")
    entry = Misunderstood(Call.QUOTE, EPOCH, "names no price", '{"amount": string}', 200)
    record_misunderstood(connection, 1, entry, Circumstances())
    connection.close()


def test_status_says_what_is_not_understood(queued: Workspace) -> None:
    """Law 10: with what the reply lacks and its shape, for people and for programs, and never as an outage."""
    misunderstand(queued)

    said = queued.call("status").out
    (account,) = queued.call("status", "--json").document["accounts"]

    assert "not understood" in said.lower()
    assert "names no price" in said
    assert "usable answer" not in said
    assert [(entry["call"], entry["shape"]) for entry in account["not_understood"]] == [("quote", '{"amount": string}')]
    assert "reply that the program understands" in queued.call("show", "foxes", "fox-1").out


def test_ask_again_ends_the_rest(queued: Workspace) -> None:
    """A person says so: what was not understood is asked again; a second time there is nothing to ask."""
    misunderstand(queued)

    result = queued.call("ask-again", "local/main", "--json")

    asked = [{"profile": "local", "account": "main", "call": "quote"}]
    assert result.document == {"asked_again": asked, "waits_ended": []}
    assert queued.call("status", "--json").document["accounts"][0]["not_understood"] == []
    assert "nothing to ask again" in queued.call("ask-again").out


def test_ask_again_for_an_unknown_account_changes_nothing(queued: Workspace) -> None:
    """Exit 2, with the accounts that there are."""
    misunderstand(queued)

    result = queued.call("ask-again", "local/mian")

    assert result.exit == 2
    assert "local/main" in result.err
    assert queued.call("status", "--json").document["accounts"][0]["not_understood"] != []
