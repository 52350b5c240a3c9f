"""What a report reads of each item."""

from batchkiln.core.states import Event, ItemState
from batchkiln.store.exports import Exports
from batchkiln.store.jobs import Jobs
from support.queue_file import RECIPE, QueueFile, capped, image, spec


def test_rows_tell_request_images_and_money(queue: QueueFile) -> None:
    """Each item has its own recipe, its images in their order, and each attempt's credits."""
    pair = (image("/in/b.png", "bb"), image("/in/a.png", "aa"))
    queue.apply([spec("plain"), spec("pair", recipe=capped(9, inputs_count=2), inputs=pair), spec("waits")])
    queue.end(queue.send("plain", generation_id="first"), "failed")
    queue.move("plain", Event.GENERATION_FAILED)
    queue.finish("plain")
    queue.send("pair", quote=7)

    plain, both, waits = Exports(queue.connection).report_page("birds")

    assert [(one.charged, one.refunded, one.reserved) for one in plain.charges] == [(5, 5, 0), (5, 0, 0)]
    assert [(one.charged, one.refunded, one.reserved) for one in both.charges] == [(0, 0, 7)]
    assert (waits.charges, waits.inputs, waits.recipe) == ((), (), RECIPE)
    assert both.inputs == ("/in/b.png", "/in/a.png")
    assert both.recipe.max_cost_credits == 9


def test_what_rows_cost_is_what_the_job_counts(queue: QueueFile) -> None:
    """Charged, refunded and reserved of all rows come to the job's own counters, whatever became of the items."""
    queue.apply([spec(name) for name in ("done", "failed", "refused", "disputed", "sent")])
    queue.finish("done")
    queue.fail("failed")
    queue.refuse("refused")
    queue.end(queue.send("disputed", quote=3), "disputed")
    queue.move("disputed", Event.KEY_CONFLICT, code="conflict")
    queue.send("sent", quote=4)

    charges = [charge for row in Exports(queue.connection).report_page("birds") for charge in row.charges]
    summary = Jobs(queue.connection).summary("birds")

    assert summary is not None
    assert sum(charge.charged for charge in charges) == summary.credits.charged == 10
    assert sum(charge.refunded for charge in charges) == summary.credits.refunded == 5
    assert sum(charge.reserved for charge in charges) == summary.credits.reserved == 7


def test_pages_follow_each_other(queue: QueueFile) -> None:
    """A page begins after the id that the last one ended with; behind the last item there is none."""
    queue.apply([spec(name) for name in "abc"])

    first = Exports(queue.connection).report_page("birds", limit=2)
    second = Exports(queue.connection).report_page("birds", after_id=first[-1].item.id, limit=2)

    assert [row.item.name for row in (*first, *second)] == ["a", "b", "c"]
    assert {row.item.state for row in second} == {ItemState.QUEUED}
    assert Exports(queue.connection).report_page("birds", after_id=second[-1].item.id) == []
