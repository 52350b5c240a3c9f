"""The work left in a job, as a forecast needs it."""

from batchkiln.core.states import ItemState
from batchkiln.core.timestamps import to_milliseconds
from batchkiln.store.loads import Loads
from support.queue_file import QueueFile, spec


def test_items_under_way_are_told_with_their_average_beginning(queue: QueueFile) -> None:
    """Items of one recipe may be under way on several accounts; queued ones have not begun."""
    queue.apply([spec("a"), spec("b"), spec("c")])
    queue.send("a")
    queue.send("b", account="second")
    queue.connection.execute("UPDATE attempt SET recorded_at = recorded_at - 5000 WHERE id = 1")

    under_way, queued = Loads(queue.connection).recipe_counts(1, "local")

    begun = [at for (at,) in queue.all("SELECT recorded_at FROM attempt")]
    assert (under_way.count, queued.count, queued.state) == (2, 1, ItemState.QUEUED)
    assert under_way.began_at is not None
    assert to_milliseconds(under_way.began_at) == sum(begun) / 2
    assert queued.began_at is None
