"""What is known of the workers that share a queue."""

import pytest
from msgspec.structs import replace

from batchkiln.core.lease_types import AccountRest
from batchkiln.core.rate_limits import DayUsage
from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo
from batchkiln.core.waits import WaitReason
from batchkiln.store.accounts import AccountSummary
from support.view_builders import NOW, shared_by

REFUSED = AccountBlocked(AccountProblem.KEY_REFUSED, ErrorInfo("invalid_api_key", "No such key"))


@pytest.mark.parametrize(
    ("reported_by", "silent_seconds", "is_known"),
    [("its driver", 1.0, True), ("another one", 1.0, False), ("its driver", 3_600.0, False)],
)
def test_refusal_is_known_to_every_process(reported_by: str, silent_seconds: float, *, is_known: bool) -> None:
    """So that the dashboards of all machines call for a person alike. A worker that is gone says nothing."""
    shared = shared_by(silent_seconds=silent_seconds)
    name = shared.workers[0].name if reported_by == "its driver" else "other/1-1"
    worker = replace(shared.workers[0], name=name, rests={1: AccountRest(WaitReason.NOTHING, REFUSED)})
    account = AccountSummary(1, "studio", "anna", NOW, DayUsage(), None, None)

    assert (replace(shared, workers=(worker,)).refusal_of(account) == REFUSED) is is_known
