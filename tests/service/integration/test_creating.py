"""POST /images and /videos: acceptance, replay, conflict, refusal."""

import asyncio

import pytest

from batchkiln_service import Limits

from .service_world import CLIP, IMAGE, World, WorldMaker, image_with

KEY = "an-idempotency-key"


async def test_create_answers_with_a_pending_record(world: World) -> None:
    """An accepted create is a 202 with the record of Service section 2.1."""
    created = await world.create()

    assert created.status == 202
    assert created.body == {
        "id": created.body["id"],
        "model": "epsilon-2",
        "status": "pending",
        "created_at": "2026-09-21T00:00:00.000Z",
        "credits": {"cost": 2},
        "outputs": [],
        "error": None,
    }


async def test_replay_returns_the_same_generation_and_charges_once(world: World) -> None:
    """The identical body under the same key is a replay, also while it is active. Service rule 4.2."""
    first = await world.create(idempotency_key=KEY)
    second = await world.create(idempotency_key=KEY)

    assert (second.status, second.body["id"]) == (202, first.body["id"])
    assert await world.balance() == 10_000 - 2


async def test_replay_is_known_after_a_restart(world: World) -> None:
    """An idempotency key outlives the process. Service rule 4.2."""
    first = await world.create(idempotency_key=KEY)

    await world.stop()
    await world.start()

    assert (await world.create(idempotency_key=KEY)).body["id"] == first.body["id"]


async def test_same_key_with_another_body_conflicts(world: World) -> None:
    """A changed body under a used key is a 409. Service rule 4.3."""
    await world.create(idempotency_key=KEY)

    conflict = await world.create(image_with(prompt="A blue fox"), idempotency_key=KEY)

    assert (conflict.status, conflict.code) == (409, "idempotency_conflict")


async def test_same_key_on_the_other_path_conflicts(world: World) -> None:
    """A request is its path, too. Service rule 4.3."""
    await world.create(idempotency_key=KEY)

    conflict = await world.send("POST", "/videos", body=IMAGE, headers={"Idempotency-Key": KEY})

    assert (conflict.status, conflict.code) == (409, "idempotency_conflict")


async def test_another_spelling_of_the_same_body_conflicts(world: World) -> None:
    """The bytes have to be identical, not only their meaning. Service rule 4.2."""
    await world.create(idempotency_key=KEY)

    conflict = await world.create(dict(reversed(IMAGE.items())), idempotency_key=KEY)

    assert (conflict.status, conflict.code) == (409, "idempotency_conflict")


@pytest.mark.parametrize(
    ("days", "prompt", "status"),
    [(1, "A red fox", "success"), (1, "[fail]", "failed"), (1, "[cancel]", "canceled"), (15, "A red fox", "expired")],
)
async def test_replay_after_the_end_shows_the_end(world: World, days: int, prompt: str, status: str) -> None:
    """A key is remembered for ever, and its replay neither makes nor charges anything. Service rule 4.2."""
    first = await world.create(image_with(prompt=prompt), idempotency_key=KEY)
    await world.service.idle()
    world.clock.advance(days * 86_400)
    balance = await world.balance()

    replayed = await world.create(image_with(prompt=prompt), idempotency_key=KEY)

    assert (replayed.status, replayed.body["id"], replayed.body["status"]) == (202, first.body["id"], status)
    assert await world.balance() == balance


async def test_replay_needs_no_credits(make_world: WorldMaker) -> None:
    """What was accepted is answered again when everything is spent. Service rule 4.2."""
    world = await make_world(accounts=({"name": "main", "credits": 2, "keys": ["key-one-of-main"]},))
    first = await world.create(idempotency_key=KEY)

    replayed = await world.create(idempotency_key=KEY)

    assert (replayed.status, replayed.body["id"]) == (202, first.body["id"])


async def test_replays_count_toward_the_windows(make_world: WorldMaker) -> None:
    """A replay is free of credits, not of requests. Service section 8."""
    world = await make_world(limits=Limits(creates_per_minute=2))
    for _ in range(2):
        await world.create(idempotency_key=KEY)

    refused = await world.create(idempotency_key=KEY)

    assert (refused.status, refused.code, refused.retry_after) == (429, "rate_limited", 60)


async def test_a_conflict_harms_nothing(world: World) -> None:
    """After a 409 the key still leads to its generation. Service rule 4.3."""
    first = await world.create(idempotency_key=KEY)
    await world.create(image_with(prompt="A blue fox"), idempotency_key=KEY)

    assert (await world.create(idempotency_key=KEY)).body["id"] == first.body["id"]
    assert await world.balance() == 10_000 - 2


async def test_rejected_create_leaves_its_key_free(world: World) -> None:
    """A key of a refused request may be used again. Service section 7."""
    await world.create(image_with(prompt=""), idempotency_key=KEY)

    assert (await world.create(idempotency_key=KEY)).status == 202


async def test_replay_needs_the_first_api_key(world: World) -> None:
    """A replay under another API key of the account is refused. Service rule 4.2."""
    await world.create(idempotency_key=KEY)

    refused = await world.create(idempotency_key=KEY, key="key-two-of-main")

    assert (refused.status, refused.code) == (403, "wrong_api_key")


async def test_accounts_do_not_share_idempotency_keys(world: World) -> None:
    """Another account's key of the same name is another key."""
    first = await world.create(idempotency_key=KEY)

    second = await world.create(idempotency_key=KEY, key="key-of-other")

    assert second.status == 202
    assert second.body["id"] != first.body["id"]


async def test_second_generation_has_to_wait(world: World) -> None:
    """One generation is active at a time, in an account. Service section 8."""
    first = await world.create()

    refused = await world.create()

    assert (refused.status, refused.code) == (429, "generation_active")
    assert (await world.finish(first)).body["status"] == "success"
    assert (await world.create()).status == 202


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**IMAGE, "seed": 1}, "invalid_request"),
        ({**IMAGE, "max_cost_credits": 1}, "cost_exceeds_max"),
        ({**CLIP, "model": "epsilon-2"}, "unsupported_option"),
    ],
)
async def test_refused_body_costs_nothing(world: World, body: dict[str, object], code: str) -> None:
    """What is refused before creation is neither charged nor active. Service sections 2.2 and 7."""
    refused = await world.create(body)

    assert (refused.status, refused.code) == (422, code)
    assert await world.balance() == 10_000
    assert (await world.create()).status == 202


async def test_create_needs_the_credits(make_world: WorldMaker) -> None:
    """An account without enough credits gets a 402. Service rule 5.8."""
    world = await make_world(accounts=({"name": "main", "credits": 1, "keys": ["key-one-of-main"]},))

    refused = await world.create()

    assert (refused.status, refused.code) == (402, "insufficient_credits")


@pytest.mark.parametrize("key", ["k" * 16, "k" * 128, "0123456789-_ABCabc"])
async def test_well_formed_idempotency_key_is_taken(world: World, key: str) -> None:
    """Both ends of the allowed length, and every kind of character. Service rule 4.1."""
    assert (await world.create(idempotency_key=key)).status == 202


@pytest.mark.parametrize(
    "key",
    [
        "",
        "fifteen-letters",
        "k" * 129,
        "sixteen letters and blanks",
        "é" * 16,
        "\N{CYRILLIC SMALL LETTER KA}" * 16,
        "\N{FULLWIDTH DIGIT ONE}" * 16,
        "\N{ARABIC-INDIC DIGIT ONE}" * 16,
        "sixteen-letters.",
        "sixteen/letters/",
    ],
)
async def test_malformed_idempotency_key_is_refused(world: World, key: str) -> None:
    """16 to 128 letters, digits, underscores and hyphens. Service rule 4.1."""
    refused = await world.send("POST", "/images", body=IMAGE, headers={"Idempotency-Key": key})

    assert (refused.status, refused.code) == (400, "invalid_idempotency_key")


async def test_failed_generation_is_refunded_once(world: World) -> None:
    """A verified failure gives the credits back, once, but not the day's budget. Service rule 3.1."""
    ended = await world.finish(await world.create(image_with(prompt="[fail] a fox")))
    world.clock.advance(10)
    again = await world.poll(ended.body["id"])

    assert (again.body["status"], again.body["outputs"]) == ("failed", [])
    assert await world.balance() == 10_000
    entries = await world.service.query("SELECT kind FROM transfers WHERE account = 'main' ORDER BY id")
    assert [entry["kind"] for entry in entries] == ["purchase", "reserve", "refund"]
    assert await world.service.query("SELECT credits FROM day_usage") == [{"credits": 2}]


async def test_canceled_generation_is_not_refunded(world: World) -> None:
    """Only a verified failure refunds. Service rule 3.1."""
    ended = await world.finish(await world.create(image_with(prompt="[cancel] a fox")))

    assert ended.body["status"] == "canceled"
    assert await world.balance() == 10_000 - 2


async def test_fail_once_prompt_succeeds_the_second_time(world: World) -> None:
    """A rehearsal's prompt may fail at first and work when tried again."""
    body = image_with(prompt="[fail-once] a fox")

    first = await world.finish(await world.create(body))
    second = await world.finish(await world.create(body))

    assert (first.body["status"], second.body["status"]) == ("failed", "success")


async def test_pending_generation_keeps_its_place_until_helped(world: World) -> None:
    """Time alone neither ends nor refunds a pending generation. Service rule 3.2."""
    world.service.faults.add("stay_pending")
    created = await world.create()

    late = await world.finish(created)
    refused = await world.create()
    await world.service.end_pending_generation(str(created.body["id"]))
    world.clock.advance(10)

    assert late.body["status"] == "pending"
    assert refused.code == "generation_active"
    assert (await world.poll(created.body["id"])).body["status"] == "success"


async def test_instant_service_answers_with_the_output(make_world: WorldMaker) -> None:
    """For benchmarks, a generation ends as it begins."""
    world = await make_world(instant=True, limits=Limits.lifted())

    created = await world.create()
    await world.create()

    assert created.body["status"] == "success"
    assert (await world.send("GET", created.output["url"], key=None)).status == 200


async def test_quote_is_what_a_create_charges(world: World) -> None:
    """Quote and charge agree, and a quote is free. Service section 4, pricing."""
    quoted = await world.send("POST", "/quotes", body=CLIP)
    created = await world.create({**CLIP, "max_cost_credits": quoted.body["cost_credits"]})

    assert quoted.body == {"cost_credits": 20}
    assert created.body["credits"] == {"cost": 20}


async def test_simultaneous_replays_make_one_generation(make_world: WorldMaker) -> None:
    """However many copies of a create arrive at once, there is one generation. Service rule 4.2."""
    world = await make_world(limits=Limits(creates_per_minute=100))

    replies = await asyncio.gather(*(world.create(idempotency_key=KEY) for _ in range(20)))

    assert {reply.status for reply in replies} == {202}
    assert len({str(reply.body["id"]) for reply in replies}) == 1
    assert await world.balance() == 10_000 - 2


async def test_simultaneous_creates_have_one_winner(make_world: WorldMaker) -> None:
    """The one active generation holds against a race. Service section 8."""
    world = await make_world(limits=Limits(creates_per_minute=100))

    replies = await asyncio.gather(*(world.create() for _ in range(20)))

    assert sorted(reply.status for reply in replies) == [202] + [429] * 19


async def test_failure_while_the_service_is_down_is_refunded(world: World) -> None:
    """A generation's end does not depend on anybody watching it. Service rule 3.1."""
    created = await world.create(image_with(prompt="[fail]"))
    await world.stop()
    world.clock.advance(600)
    await world.start()

    assert await world.balance() == 10_000
    assert (await world.poll(created.body["id"])).body["status"] == "failed"


async def test_balance_is_the_sum_of_its_entries(world: World) -> None:
    """The books agree with themselves after successes, failures and cancellations."""
    for prompt in ("a fox", "[fail]", "[cancel]"):
        await world.finish(await world.create(image_with(prompt=prompt)))

    summed = await world.service.query(
        "SELECT sum(CASE kind WHEN 'reserve' THEN -credits WHEN 'charge' THEN 0 ELSE credits END) AS credits"
        " FROM transfers WHERE account = 'main'"
    )

    assert summed == [{"credits": await world.balance()}]


async def test_tiny_media_keep_their_durations(make_world: WorldMaker) -> None:
    """Simulations skip the drawing, not the waiting."""
    world = await make_world(tiny_media=True)

    created = await world.create()
    ended = await world.finish(created)

    assert (created.body["status"], ended.body["status"]) == ("pending", "success")
    assert len((await world.send("GET", ended.output["url"], key=None)).content) < 2_000


@pytest.mark.parametrize("prompt", ["\x00", "\u202e fox \U0001f98a", "字" * 3000, "x" * 4000, "a\n\tb" * 900])
async def test_every_prompt_can_be_drawn(world: World, prompt: str) -> None:
    """No text that the API accepts breaks the drawing. Service section 2.2."""
    ended = await world.finish(await world.create(image_with(prompt=prompt)))

    assert ended.body["status"] == "success"


async def test_wait_for_the_active_generation_is_whole_polling_intervals(make_world: WorldMaker) -> None:
    """Rounded up, like every Retry-After: who obeys it does not come too early."""
    world = await make_world(limits=Limits(poll_interval_seconds=10.4))
    await world.create()

    refused = await world.create()

    assert (refused.code, refused.retry_after) == ("generation_active", 11)
