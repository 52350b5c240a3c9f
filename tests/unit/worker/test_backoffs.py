"""How long failures make requests wait, and whom they hold up."""

from batchkiln.core.calls import Call
from batchkiln.core.responses import EdgeBlocked
from batchkiln.core.waits import WaitReason
from batchkiln.worker.backoffs import Backoff, Backoffs, is_content


def test_only_the_third_refusal_by_the_firewall_is_about_the_content() -> None:
    """Two refusals of one request, while others pass, may be the firewall's minute. Service section 7."""
    backoffs, own = Backoffs(), [Backoff(alone_reason=WaitReason.NO_PRICE)]

    judged = []
    for passed in range(1, 4):
        is_alone = backoffs.fail(
            EdgeBlocked(),
            Call.QUOTE,
            own,
            now=100.0 * passed,
            draws=[0.5, 0.5],
            reason=WaitReason.EDGE_FIREWALL,
            answered=passed,
        )
        judged.append(is_alone and is_content(own))

    assert judged == [False, False, True]
