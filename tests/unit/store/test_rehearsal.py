"""What a rehearsal asks of its queue: its name, and what was paid for whom."""

from batchkiln.core.states import ItemState
from batchkiln.store.generations import Generations, Paid, name_queue
from support.queue_file import QueueFile, spec


def test_refunded_generation_is_made_and_not_kept(queue: QueueFile) -> None:
    """A refunded charge is not a payment, and its item is not paid."""
    queue.apply([spec("a"), spec("b")])
    queue.finish("a")
    queue.fail("b")

    assert Generations(queue.connection).paid() == Paid(generations=2, kept=1, items=1, credits=5)


def test_states_are_those_of_the_items(queue: QueueFile) -> None:
    """By the ids of generations; an unknown one is left out."""
    queue.apply([spec("a"), spec("b")])
    queue.finish("a")
    queue.fail("b")

    states = Generations(queue.connection).item_states(["gen-a", "gen-b", "gen-unknown"])

    assert states == {"gen-a": ItemState.DONE, "gen-b": ItemState.FAILED}


def test_only_an_empty_queue_gets_another_name(queue: QueueFile) -> None:
    """Keys of attempts are derived from the name: one that has jobs keeps it."""
    name_queue(queue.connection, "first")
    queue.apply([spec("a")])

    name_queue(queue.connection, "second")

    assert queue.one("SELECT value FROM meta WHERE key = 'queue_uid'") == "first"
