"""A service in a dialect, over HTTP: what enters is translated, what leaves is dressed, what it serves describes it."""

from typing import Any

import aiohttp
import jsonschema_rs
import pytest

from batchkiln_service import Limits
from batchkiln_service.dialects import TRAITS, Dialect
from batchkiln_service.dialects.endpoints import Endpoint, success_status
from batchkiln_service.dialects.naming import generation_ids

from .service_world import CLIP, IMAGE, World, WorldMaker

SEEDS = (3, 14, 15, 92, 65, 35)


class Visitor:
    """Sends requests, and holds each reply against the description that the service serves."""

    def __init__(self, world: World, document: dict[str, Any]) -> None:
        self._world = world
        self._document = document

    async def send(self, method: str, route: str, body: object = None, **headers: str) -> tuple[int, Any]:
        path = headers.pop("path", route)
        sent = {"Authorization": "Bearer key-one-of-main"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        url = self._world.service.base_url + path
        async with self._world.session.request(method, url, json=body, headers=sent) as response:
            text = await response.text()
            described = self._document["paths"][route][method.lower()]["responses"][str(response.status)]
            assert response.content_type in described["content"]
            schema = described["content"][response.content_type]["schema"]
            if not response.content_type.endswith("json"):
                return response.status, text
            document = await response.json(content_type=None)
        whole = {**schema, "components": self._document["components"]}
        assert [error.message for error in jsonschema_rs.validator_for(whole).iter_errors(document)] == []
        return response.status, document


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_service_in_a_dialect_is_as_it_describes_itself(make_world: WorldMaker, seed: int) -> None:
    """The whole way of a generation: each status, media type and body is in the document at /openapi.json."""
    world = await make_world(dialect=seed)
    dialect = Dialect.draw(seed)
    async with world.session.get(world.service.base_url + "/openapi.json") as response:
        document = await response.json()
    visitor = Visitor(world, document)

    for route in ("/models", "/credits/balance"):
        assert (await visitor.send("GET", route))[0] == 200
    status, _ = await visitor.send("POST", "/quotes", IMAGE)
    assert status == success_status(dialect, Endpoint.QUOTE)
    refused, _ = await visitor.send("POST", "/images", {**IMAGE, "mode": "x"}, Idempotency_Key="k" * 20)
    assert 400 <= refused < 500
    created, _ = await visitor.send("POST", "/videos", CLIP, Idempotency_Key="v" * 20)
    assert created == 202
    (own,) = await world.service.query("SELECT id FROM generations")
    generation_id = str(generation_ids(dialect).shown(str(own["id"])))
    status, _ = await visitor.send("GET", "/generations/{id}", path=f"/generations/{generation_id}")
    assert status == 200
    unknown, _ = await visitor.send("GET", "/generations/{id}", path="/generations/nobody")
    assert unknown in {404, 410}


async def test_a_dialect_without_any_of_its_traits_is_the_plain_service(make_world: WorldMaker) -> None:
    """The dress adds nothing by itself."""
    world = await make_world(dialect=3, dialect_without=tuple(TRAITS))

    created = await world.create()
    assert created.status == 202
    assert set(created.body) == {"id", "model", "status", "created_at", "credits", "outputs", "error"}
    assert (await world.finish(created)).body["status"] == "success"


async def test_an_asset_is_known_by_the_name_that_was_told(make_world: WorldMaker, png: bytes) -> None:
    """Numbers are told as numbers, and are taken back as such only. Service section 2.3."""
    plain = tuple(trait for trait in TRAITS if trait != "asset_id")
    seed = next(seed for seed in range(1000) if Dialect.draw(seed)["asset_id"] == "int")
    world = await make_world(dialect=seed, dialect_without=plain)
    files = [{"name": "owl.png", "type": "image/png", "size": len(png)}]
    prepared = await world.send("POST", "/uploads", body={"files": files})
    ticket: Any = prepared.body["uploads"]
    number = ticket[0]["asset_id"]
    async with world.session.put(ticket[0]["upload_url"], data=png, headers=ticket[0]["upload_headers"]) as stored:
        assert stored.status == 200

    as_text = await _complete(world, [str(number)])
    as_number = await _complete(world, [number])

    assert isinstance(number, int)
    assert (as_text.status, as_number.status) == (404, 200)


async def _only(make_world: WorldMaker, trait: str, option: str, **limits: int) -> World:
    """Return a service that is plain but for one trait."""
    plain = tuple(each for each in TRAITS if each != trait)
    seed = next(seed for seed in range(1000) if Dialect.draw(seed)[trait] == option)
    return await make_world(dialect=seed, dialect_without=plain, limits=Limits(**limits))


async def _read_after(world: World, seconds: float) -> int:
    world.clock.advance(seconds)
    return (await world.send("GET", "/models")).status


async def test_fixed_minute_ends_for_all_of_its_requests(make_world: WorldMaker) -> None:
    """The window of a full minute has room again when the next begins, and says so. Service section 8."""
    world = await _only(make_world, "minutes", "fixed", reads_per_minute=2)

    statuses = [await _read_after(world, seconds) for seconds in (50, 1)]
    refused = await world.send("GET", "/models")
    statuses += [await _read_after(world, seconds) for seconds in (8, 1, 0, 0)]

    assert (refused.status, refused.retry_after) == (429, 9)
    assert statuses == [200, 200, 429, 200, 200, 429]


@pytest.mark.parametrize(("option", "last"), [("free", 200), ("counted", 429)])
async def test_refused_request_may_take_a_place_of_its_window(make_world: WorldMaker, option: str, last: int) -> None:
    """Where refused requests are counted, asking too early makes the wait longer. Service section 8."""
    world = await _only(make_world, "refused_requests", option, reads_per_minute=2)

    statuses = [await _read_after(world, seconds) for seconds in (0, 0, 30, 29, 1)]

    assert statuses == [200, 200, 429, 429, last]


@pytest.mark.parametrize(("option", "status"), [("free", 404), ("counted", 429)])
async def test_completion_may_be_no_upload_request(make_world: WorldMaker, option: str, status: int) -> None:
    """Whether it takes a place among the ten of a minute is open. Service section 8."""
    world = await _only(make_world, "completions", option, creates_per_minute=1)
    files = [{"name": "owl.png", "type": "image/png", "size": 100}]

    prepared = await world.send("POST", "/uploads", body={"files": files})
    completed = await world.send("POST", "/uploads/complete", body={"asset_ids": ["ast_nobody"]})

    assert (prepared.status, completed.status) == (200, status)


async def _complete(world: World, asset_ids: list[object]) -> aiohttp.ClientResponse:
    url = world.service.base_url + "/uploads/complete"
    headers = {"Authorization": "Bearer key-one-of-main"}
    async with world.session.post(url, json={"asset_ids": asset_ids}, headers=headers) as response:
        await response.read()
        return response
