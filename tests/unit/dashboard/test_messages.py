"""What the pages say about an action."""

import pytest
from msgspec.structs import replace

from batchkiln.api.changes import Action
from batchkiln.core.job import AttemptState
from batchkiln.core.states import ItemState
from batchkiln.dashboard.messages import button_label, next_step
from batchkiln.store import ProblemGroup
from support.view_builders import job_view


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


@pytest.mark.parametrize(
    ("state", "attempt", "words"),
    [
        (ItemState.FAILED, AttemptState.FAILED, "“Retry” tries again, at the price of a new attempt"),
        (ItemState.EXPIRED, AttemptState.EXPIRED, "“Retry” generates it again, and pays again"),
        (
            ItemState.REJECTED,
            AttemptState.REFUSED,
            "change the request, cap or budget in the manifest, then `batchkiln run 'my birds.yaml'`",
        ),
        (ItemState.HELD, None, "open each item, and resolve it"),
    ],
)
def test_next_step_fits_the_state(state: ItemState, attempt: AttemptState | None, words: str) -> None:
    """A request that the service rejects is rejected again: a retry is no advice."""
    summary = replace(job_view({state: 1}).summary, manifest_path="my birds.yaml")

    assert next_step(ProblemGroup(state, "any_code", 1, None, attempt), summary) == words


def test_next_step_of_a_canceled_generation_is_that_of_its_item() -> None:
    """The service charged it, as far as is known: a person looks before it is paid again."""
    summary = job_view({ItemState.FAILED: 1}).summary
    problem = ProblemGroup(ItemState.FAILED, "generation_canceled", 1, None, AttemptState.CANCELED)

    assert next_step(problem, summary).startswith("check the account first")
