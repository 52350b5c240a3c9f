"""The local service's refusals, in its own words and in drawn dialects, read as what the service means by them."""

import json

import pytest

from batchkiln.client.http_response import RawReply
from batchkiln.client.parse import parse_create
from batchkiln.core.outcomes import Answer, answer_of
from batchkiln_service.dialects import TRAITS, Dialect
from batchkiln_service.dialects.error_replies import body_shape, media_type, plain_text, refused

Refusal = tuple[int, str, str, Answer]
REFUSALS: list[Refusal] = [
    (402, "insufficient_credits", "the quote is 12 credits, more than the 3 that remain", Answer.BLOCKED),
    (403, "credits_required", "generation needs a subscription or remaining purchased credits", Answer.BLOCKED),
    (409, "idempotency_conflict", "this key was used with another request body", Answer.CONFLICT),
    (422, "asset_expired", "inputs[0].url has expired; upload the image again", Answer.ASSET_GONE),
    (422, "cost_exceeds_max", "the quote is higher than max_cost_credits by now", Answer.OVER_QUOTE),
    (422, "invalid_request", "prompt must have at most 4,000 characters", Answer.INVALID),
    (429, "credit_budget_exhausted", "the quote is 420 credits, 380 of 2000 remain this day", Answer.LIMITED),
    (429, "daily_limit", "1001 of 1000 creates this day", Answer.LIMITED),
    (429, "generation_active", "1 of 1 active generations", Answer.LIMITED),
    (429, "rate_limited", "11 of 10 creates in a minute", Answer.LIMITED),
    (503, "unavailable", "try again later", Answer.UNKNOWN),
]
PLAIN = Dialect.draw(0).without(TRAITS)


def answer(dialect: Dialect, refusal: Refusal) -> Answer:
    told = refused(dialect, *refusal[:3])
    kind = media_type(dialect, told)
    text = plain_text(told) if kind == "text/plain" else json.dumps(body_shape(dialect).make(told))
    return answer_of(parse_create(RawReply(told.status, {"content-type": kind}, text.encode())))


@pytest.mark.parametrize("refusal", REFUSALS, ids=[code for _, code, _, _ in REFUSALS])
def test_own_words_of_the_service_are_understood(refusal: Refusal) -> None:
    """A day's credits are a limit, which passes; credits that have to be bought are not. Service section 7."""
    assert answer(PLAIN, refusal) is refusal[3]


@pytest.mark.parametrize(
    "refusal", [each for each in REFUSALS if each[0] in {409, 429, 503} and each[1] != "generation_active"]
)
def test_status_that_the_description_fixes_is_understood_in_each_dialect(refusal: Refusal) -> None:
    """Whatever the code and the words. Service section 7."""
    answers = {seed: answer(Dialect.draw(seed), refusal) for seed in range(300)}

    assert {seed: found for seed, found in answers.items() if found is not refusal[3]} == {}


@pytest.mark.parametrize("refusal", [each for each in REFUSALS if each[3] in {Answer.INVALID, Answer.OVER_QUOTE}])
def test_refusal_of_one_request_hardly_ever_stops_the_account(refusal: Refusal) -> None:
    """Only a price that is refused with the status of missing payment does."""
    stopped = [seed for seed in range(300) if answer(Dialect.draw(seed), refusal) is Answer.BLOCKED]

    assert [seed for seed in stopped if refused(Dialect.draw(seed), *refusal[:3]).status != 402] == []
