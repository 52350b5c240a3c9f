"""What `status JOB --json` promises (contract, section 4), and its warnings."""

from datetime import timedelta

from batchkiln.core.states import ItemState
from batchkiln.presentation.job_documents import job_document
from batchkiln.presentation.overview import alerts_of
from batchkiln.store.jobs import Credits
from support.view_builders import NOW, job_view, under_way


def test_the_promised_names_are_there() -> None:
    """job, a count for each state and the total, credits, finished."""
    document = job_document(job_view({ItemState.DONE: 2, ItemState.FAILED: 1}, money=Credits(1, 20, 5)))

    assert document["job"] == "birds"
    assert document["items"] == dict.fromkeys(ItemState, 0) | {"done": 2, "failed": 1, "total": 3}
    assert document["credits"] == {"reserved": 1, "charged": 20, "refunded": 5}
    assert document["finished"] is True


def test_a_job_with_something_under_way_is_not_finished() -> None:
    """An active generation may still change the job without a person."""
    assert job_document(job_view({ItemState.ACTIVE: 1}))["finished"] is False


def test_a_paid_output_near_the_end_of_its_retention_is_warned_of() -> None:
    """Two days before the service may delete it, a person hears of it. Service section 8."""
    near = under_way(ItemState.DOWNLOADING, retention_ends_at=NOW + timedelta(days=2))
    far = under_way(ItemState.DOWNLOADING, retention_ends_at=NOW + timedelta(days=4))

    (warning,) = alerts_of(job_view({}, under_way=[near, far]))

    assert "2030-01-03" in warning


def test_a_generation_that_stays_pending_is_for_the_support() -> None:
    """It is reported with its id, still polled, and never replaced. Service rule 4.5."""
    stuck = under_way(ItemState.ACTIVE, since=NOW - timedelta(hours=2), status="pending")

    (warning,) = alerts_of(job_view({}, under_way=[stuck]))

    assert "support" in warning
    assert "gen_1" in warning
    assert "never replaced" in warning


def test_a_generation_of_some_minutes_is_harmless() -> None:
    """A clip may well take that long."""
    assert alerts_of(job_view({}, under_way=[under_way(ItemState.ACTIVE, since=NOW - timedelta(minutes=5))])) == []
