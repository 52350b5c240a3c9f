"""The replies of the HTTP interface that no command prints: pages, and questions about the cost."""

from typing import TypedDict

from batchkiln.api.changes import Question
from batchkiln.presentation.item_documents import (
    EventDocument,
    ItemDocument,
    SkippedDocument,
    skipped_document,
)
from batchkiln.presentation.job_documents import JobDocument
from batchkiln.presentation.show_documents import ReviewStepDocument


class AccessDocument(TypedDict):
    """The name and the scopes of the token that a request carries."""

    name: str
    scopes: list[str]


class JobsPage(TypedDict):
    """Some jobs as `status JOB --json` prints each. `next` is the `after` of the next page, null at the end."""

    jobs: list[JobDocument]
    next: str | None


class ItemsPage(TypedDict):
    """Some items as `items --json` prints each.

    `next` is the `after` of the next page, null at the end. A page of a filtered list may be short or empty before the
    end, because a page examines a limited number of items.
    """

    items: list[ItemDocument]
    next: int | None


class EventsPage(TypedDict):
    """Some events as `run --json` prints each. `next` is the `after` of the next page; `more` tells whether to go on.

    A page of one job may be short or empty before the end.
    """

    events: list[EventDocument]
    next: int
    more: bool


class ReviewPage(TypedDict):
    """A step of a review, null if there is none, with the places of its neighbours.

    `decided` tells whether nothing of the step is left to decide, and `left` counts the steps with something.
    """

    step: ReviewStepDocument | None
    at: int | None
    next: int | None
    previous: int | None
    decided: bool
    left: int


class QuestionDocument(TypedDict):
    """The effect and the possible cost of an action. `agreed` confirms these figures."""

    job: str
    cost: str
    number: int
    agreed: str
    skipped: list[SkippedDocument]


def question_document(job: str, question: Question) -> QuestionDocument:
    """Return a question about the cost of an action."""
    return {
        "job": job,
        "cost": question.cost,
        "number": question.number,
        "agreed": question.agreed,
        "skipped": skipped_document(question.skipped),
    }
