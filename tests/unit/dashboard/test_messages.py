"""What the pages say about an action."""

import pytest

from batchkiln.api.changes import Action
from batchkiln.dashboard.messages import button_label


@pytest.mark.parametrize(
    ("action", "number", "label"),
    [
        (Action.CANCEL, 5, "Cancel 5 items"),
        (Action.REDO, 1, "Make 1 item again"),
        (Action.RETRY, 0, "Retry items"),
        (Action.PAUSE, 1, "Pause the job"),
    ],
)
def test_button_of_a_question_says_what_it_does(action: Action, number: int, label: str) -> None:
    """`Cancel` beside `Back` could mean either."""
    assert button_label(action, number) == label
