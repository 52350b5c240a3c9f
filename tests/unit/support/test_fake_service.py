"""The service of the tests: it charges once per key, and sees whoever breaks a rule."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from batchkiln.core.rate_limits import Limits
from batchkiln.core.responses import (
    Accepted,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    Quoted,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
)
from support.fake_clock import FakeClock
from support.fake_service import FakeAccount, FakeService


@pytest.fixture
def service() -> FakeService:
    return FakeService(FakeClock())


def body(prompt: str = "x", *, cost: int = 10, most: int | None = 10) -> bytes:
    fields: dict[str, Any] = {"model": f"cost-{cost}", "prompt": prompt}
    return json.dumps(fields if most is None else fields | {"max_cost_credits": most}).encode()


async def create(account: FakeAccount, key: str = "key-a", content: bytes | None = None) -> object:
    return await account.service.clock.run(
        account.create(is_video=False, body=content or body(), idempotency_key=key, key_fingerprint="key-1")
    )


async def test_replay_is_accepted_and_charged_once(service: FakeService) -> None:
    """The same key and bytes give the same generation. Service rule 4.2."""
    account = service.account("main")

    first, second = await create(account), await create(account)

    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert first.record.id == second.record.id
    assert service.charged == 10


async def test_other_bytes_under_one_key_conflict(service: FakeService) -> None:
    """A changed body is a 409, and noted. Service rule 4.3."""
    account = service.account("main")
    await create(account)

    assert isinstance(await create(account, content=body("y")), IdempotencyConflict)
    assert len(service.violations) == 1


async def test_second_active_generation_is_refused_and_noted(service: FakeService) -> None:
    """One generation is active per account. Service section 8."""
    account = service.account("main")
    await create(account)

    assert isinstance(await create(account, "key-b"), Throttled)
    assert len(service.violations) == 1


async def test_price_above_the_maximum_is_refused(service: FakeService) -> None:
    """Nothing is created above `max_cost_credits`. Service rule 4.6."""
    reply = await create(service.account("main"), content=body(cost=12))

    assert isinstance(reply, Refused)
    assert reply.kind is RefusalKind.OVER_QUOTE
    assert service.charged == 0


async def test_lost_reply_has_its_effect(service: FakeService) -> None:
    """A reply that is lost was given; a request that is lost was never there."""
    account = service.account("main")
    service.lose_request()
    service.lose_reply()

    assert isinstance(await create(account), NoResponse)
    assert service.charged == 0
    assert isinstance(await create(account), NoResponse)
    assert service.charged == 10


async def test_failure_is_refunded(service: FakeService) -> None:
    """A verified failure gives its credits back once. Service rule 3.1."""
    service.outcomes.append(GenerationStatus.FAILED)
    await create(service.account("main"))
    service.clock.advance(60)

    reply = await service.clock.run(service.account("main").read_generation("gen-1", key_fingerprint="key-1"))

    assert isinstance(reply, RecordRead)
    assert reply.record.status is GenerationStatus.FAILED
    assert service.charges_of("x") == 0


@pytest.mark.parametrize(
    "break_a_rule",
    [
        lambda service: [service.count("main", "create") for _ in range(11)],
        lambda service: [service.count("main", "upload") for _ in range(11)],
        lambda service: [service.count("main", "read") for _ in range(61)],
        lambda service: [service.count(str(n % 9), "read") for n in range(121)],
    ],
)
async def test_overstepped_minute_is_noted(service: FakeService, break_a_rule: Callable[[FakeService], object]) -> None:
    """A client that sends too fast is found out."""
    break_a_rule(service)

    assert service.violations


async def test_overstepped_day_is_noted() -> None:
    """So is one that spends too much."""
    service = FakeService(FakeClock(), limits=Limits(credits_per_day=15))
    account = service.account("main")
    await create(account)
    service.clock.advance(60)

    await create(account, "key-b")

    assert any("credits" in violation for violation in service.violations)


async def test_early_poll_is_noted(service: FakeService) -> None:
    """And one that polls too soon. Service rule 4.4."""
    account = service.account("main")
    await create(account)

    await service.clock.run(account.read_generation("gen-1", key_fingerprint="key-1"))

    assert any("was read after" in violation for violation in service.violations)


async def test_scripted_replies_come_first(service: FakeService) -> None:
    """What a test says is answered, without any effect."""
    service.say("quote", Quoted(99))
    account = service.account("main")

    assert await service.clock.run(account.quote(body(most=None))) == Quoted(99)
    assert await service.clock.run(account.quote(body(most=None))) == Quoted(10)
    assert service.clock.instant - service.clock.start == timedelta(seconds=4 * service.latency_seconds)
