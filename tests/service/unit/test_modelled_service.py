"""The model of the service refuses nothing: where the server would, it says that it is no model of that."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchkiln_service import AccountConfig, Limits, ModelledService, NotModelledError, ServiceConfig

DAY_MS = 86_400_000
FOX = {"model": "epsilon-2", "mode": "text-to-image", "prompt": "A fox", "parameters": {"resolution": "512x512"}}


def modelled(**limits: Any) -> ModelledService:  # noqa: ANN401
    accounts = (AccountConfig(name="main"), AccountConfig(name="other"))
    return ModelledService(ServiceConfig(state_dir=Path(), seed=1, accounts=accounts, limits=Limits(**limits)))


def body(**changes: object) -> bytes:
    return json.dumps(FOX | changes).encode()


def long_prompt(service: ModelledService) -> None:
    service.quote("main", body(prompt="A fox" * 1000), 0)


def blank_prompt(service: ModelledService) -> None:
    service.quote("main", body(), 0)
    service.quote("main", body(prompt=" "), 1)


def above_the_maximum(service: ModelledService) -> None:
    service.create("main", body(max_cost_credits=1), 0)


def second_generation(service: ModelledService) -> None:
    service.create("main", body(), 0)
    service.create("main", body(), 1)


def beyond_the_minute(service: ModelledService) -> None:
    service.quote("main", body(), 0)
    service.quote("main", body(), 59_999)


def beyond_the_day(service: ModelledService) -> None:
    service.create("main", body(), 0)
    service.create("main", body(), DAY_MS - 1)


def early_poll(service: ModelledService) -> None:
    made = service.create("main", body(prompt="A fox [slow]"), 0)
    service.read(made, 1)
    service.read(made, 5000)


def no_end(service: ModelledService) -> None:
    service.create("main", body(prompt="A fox [stay-pending]"), 0)


@pytest.mark.parametrize(
    ("ask", "limits"),
    [
        (long_prompt, {}),
        (blank_prompt, {}),
        (above_the_maximum, {}),
        (second_generation, {}),
        (beyond_the_minute, {"reads_per_minute": 1}),
        (beyond_the_day, {"creates_per_day": 1}),
        (beyond_the_day, {"credits_per_day": 3}),
        (early_poll, {}),
        (no_end, {}),
    ],
)
def test_what_the_server_would_refuse_is_not_modelled(
    ask: Callable[[ModelledService], None], limits: dict[str, int]
) -> None:
    """A rehearsal then runs the whole program."""
    with pytest.raises(NotModelledError):
        ask(modelled(**limits))


def test_limits_end() -> None:
    """A minute after a request its place is free, and a day begins at its reset; accounts have limits of their own."""
    service = modelled(reads_per_minute=1, creates_per_day=1)

    assert service.quote("main", body(), 0) == service.quote("other", body(), 0) == 2
    assert service.quote("main", body(prompt="An owl"), 60_000) == 2
    assert service.create("main", body(), 0).cost_credits == 2
    assert service.create("main", body(), DAY_MS).cost_credits == 2


def test_report_is_the_servers() -> None:
    """It finds nothing wrong with the tables: the ledger adds up, and no rule is broken."""
    service = modelled()
    service.describe(0)
    done = service.create("main", body(), 0)
    service.read(done, done.finish_at_ms)
    failed = service.create("main", body(prompt="A fox [fail]"), done.finish_at_ms)
    active = service.create("other", body(), failed.finish_at_ms)

    report = service.report(active.created_at_ms)

    assert report.ok
    assert report.audit.entries == ()
    main, other = report.accounts
    assert (main.charged_credits, main.reserved_credits, main.succeeded_generations, main.failed_generations) == (
        2,
        0,
        1,
        1,
    )
    assert (other.charged_credits, other.reserved_credits, other.active_generations) == (0, 2, 1)
    assert service.error_of(done) is None
    assert service.error_of(failed) == ("generation_failed", "The generation failed; its credits were refunded.")
