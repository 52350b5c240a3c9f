"""The interface description as it is served, and real replies against it."""

import json
from typing import Any

import jsonschema_rs

from batchkiln_service.api.fault_injection import FAULT_HEADER

from .service_world import CLIP, IMAGE, Reply, World, undescribed


async def described(world: World) -> Any:  # noqa: ANN401 - a JSON document
    return (await world.send("GET", "/openapi.json", key=None)).body


def fits(document: Any, reply: Reply, path: str, method: str) -> None:  # noqa: ANN401 - a JSON document
    """Raise unless the reply has a schema under its status, and fits it."""
    responses = document["paths"][path][method]["responses"]
    schema = responses[str(reply.status)]["content"]["application/json"]["schema"]
    jsonschema_rs.Draft202012Validator({**document, **schema}).validate(reply.body)


async def test_description_needs_no_key(world: World) -> None:
    """Public, OpenAPI 3.1, JSON, and the same wherever it is read. Service rules 5.9 and 9.2."""
    reply = await world.send("GET", "/openapi.json", key=None)

    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("application/json")
    assert str(reply.body["openapi"]).startswith("3.1")
    assert world.service.base_url not in json.dumps(reply.body)


async def test_successes_are_as_described(world: World, png: bytes) -> None:
    """Every reply of a whole walk through the API fits its schema."""
    document = await described(world)
    url = await world.upload(png)
    prepared = await world.send("POST", "/uploads", body={"files": [{"name": "a", "type": "image/png", "size": 1}]})
    clip = {**CLIP, "mode": "image-to-video", "inputs": [{"type": "image", "url": url}]}
    created = await world.create(clip)

    fits(document, await world.send("GET", "/models"), "/models", "get")
    fits(document, await world.send("GET", "/credits/balance"), "/credits/balance", "get")
    fits(document, await world.send("POST", "/quotes", body=clip), "/quotes", "post")
    fits(document, prepared, "/uploads", "post")
    fits(document, created, "/videos", "post")
    fits(document, await world.finish(created), "/generations/{id}", "get")


async def test_ends_of_generations_are_as_described(world: World) -> None:
    """Failed, canceled and expired records fit the schema, too. Service section 3."""
    document = await described(world)

    for prompt, status in (("[fail] fox", "failed"), ("[cancel] fox", "canceled"), ("fox", "success")):
        ended = await world.finish(await world.create({**IMAGE, "prompt": prompt}))
        assert ended.body["status"] == status
        fits(document, ended, "/generations/{id}", "get")
    world.clock.advance(15 * 86_400)
    expired = await world.poll(ended.body["id"])
    assert expired.body["status"] == "expired"
    fits(document, expired, "/generations/{id}", "get")


async def test_refusals_are_as_described(world: World) -> None:
    """Each refusal's status and code are those that the description has for the operation. Service section 7."""
    document = await described(world)
    absent = "https://assets.batchkiln.invalid/main/ast_000000000000000000000000"
    edit = {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": absent}]}
    refused = [
        (await world.create(key="nobody"), 401),
        (await world.create(key="old"), 403),
        (await world.create({**IMAGE, "max_cost_credits": 0}), 422),
        (await world.create({**IMAGE, "seed": 1}), 422),
        (await world.create(edit), 422),
        (await world.create(idempotency_key="short"), 400),
        (await world.send("POST", "/images", headers={"Idempotency-Key": "k" * 16}), 415),
    ]

    for reply, status in refused:
        assert reply.status == status
        fits(document, reply, "/images", "post")
    missing = await world.poll("gen_none")
    assert missing.status == 404
    fits(document, missing, "/generations/{id}", "get")


async def test_an_expired_image_cannot_be_completed(world: World, png: bytes) -> None:
    """The refusal is described: a client that is made from the description knows it."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)
    world.clock.advance(15 * 86_400)

    refused = await world.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})

    assert (refused.status, refused.code) == (422, "asset_expired")
    fits(await described(world), refused, "/uploads/complete", "post")


async def test_the_description_holds_nothing_of_faults(world: World) -> None:
    """They are no part of the interface, and a fuzzer that is told of the header would hang up on itself."""
    document = json.dumps(await described(world))

    assert [word for word in (FAULT_HEADER, "invalid_fault", "Fault") if word in document] == []


def test_a_refusal_that_is_not_described_is_found() -> None:
    """The check that every reply of these tests passes through can fail."""
    body: dict[str, object] = {"error": {"code": "teapot", "message": ""}}

    assert undescribed("GET", "/generations/gen_1", Reply(418, {}, b"", body)) == "readGeneration: teapot"
    assert undescribed("GET", "/models", Reply(404, {}, b"", {"error": {"code": "not_found"}})) is not None
    assert undescribed("GET", "/generations/gen_1", Reply(404, {}, b"", {"error": {"code": "not_found"}})) is None
