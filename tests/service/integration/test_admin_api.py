"""The operator's port: who may use it, and what can be done there."""

import asyncio
import json
from pathlib import Path

import pytest

from batchkiln_service import LocalService, ServiceConfig, open_account_admin
from batchkiln_service.admin_api import MAX_BODY_BYTES, MAX_RULES
from batchkiln_service.clock import iso

from .conftest import ACCOUNTS
from .service_world import IMAGE, START_MS, Reply, World, WorldMaker, image_with


@pytest.fixture
async def world(make_world: WorldMaker) -> World:
    """Start a service with an operator's port."""
    return await make_world(operator_port=0, tiny_media=True)


async def ask(
    world: World, method: str, path: str, *, body: object = None, headers: dict[str, str] | None = None
) -> Reply:
    """Send a request to the operator's port."""
    assert world.service.operator_url is not None
    return await world.send(method, world.service.operator_url + path, body=body, key=None, headers=headers)


async def test_port_is_opened_only_when_asked_for(make_world: WorldMaker) -> None:
    """An embedded service has no second port by default."""
    world = await make_world()

    assert world.service.operator_url is None
    assert not (world.config.state_dir / "operator-port").exists()


async def test_port_is_on_loopback_and_remembered(make_world: WorldMaker) -> None:
    """Wherever the API listens; after a restart at the same port, which the state folder tells."""
    world = await make_world(operator_port=0, host="0.0.0.0")
    before = world.service.operator_url
    await world.stop()

    await world.start()

    assert before is not None
    assert before.startswith("http://127.0.0.1:")
    assert world.service.operator_url == before
    assert (world.config.state_dir / "operator-port").read_text() == before.rpartition(":")[2] + "\n"


async def test_port_that_is_taken_gives_way(make_world: WorldMaker, tmp_path: Path) -> None:
    """A remembered port that another program has now is no reason not to start; one that was asked for is."""
    world = await make_world(operator_port=0)
    taken = str(world.service.operator_url).rpartition(":")[2]
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "operator-port").write_text(taken)

    second = await make_world(operator_port=0, state_dir=tmp_path / "second")

    assert second.service.operator_url not in {None, world.service.operator_url}
    with pytest.raises(OSError, match="address already in use"):
        await make_world(operator_port=int(taken), state_dir=tmp_path / "third")


@pytest.mark.parametrize("path", ["/", "/report", "/faults", "/health", "/nowhere"])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "https://example.com"}, "origin_not_allowed"),
        ({"Origin": "null"}, "origin_not_allowed"),
        ({"Host": "example.com"}, "host_not_allowed"),
        ({"Host": "127.0.0.1.example.com"}, "host_not_allowed"),
        ({"Host": "192.0.2.1:80"}, "host_not_allowed"),
        ({"Host": "[::2]:80"}, "host_not_allowed"),
        ({"Host": "localhost:80@example.com"}, "host_not_allowed"),
    ],
)
async def test_web_pages_are_refused(world: World, path: str, headers: dict[str, str], code: str) -> None:
    """Neither a page of another site nor one whose name was made to lead here gets anything."""
    refused = await ask(world, "GET", path, headers=headers)

    assert (refused.status, refused.code) == (403, code)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.9:1", "[::1]:80", "[::1]", "::1"])
async def test_names_of_this_machine_are_accepted(world: World, host: str) -> None:
    """However the operator calls it."""
    assert (await ask(world, "GET", "/", headers={"Host": host})).status == 200


async def test_index_lists_what_there_is(world: World) -> None:
    """The root names every endpoint, and each of them exists."""
    index = await ask(world, "GET", "/")

    endpoints = index.body["endpoints"]
    assert isinstance(endpoints, dict)
    assert index.body["bodies"] == "JSON, with the header Content-Type: application/json"
    for endpoint in endpoints:
        method, path = endpoint.split()
        reply = await ask(world, method, path.replace("{number}", "0").replace("{id}", "gen_0"))
        assert reply.status not in {405, 500}, endpoint
        assert reply.status != 404 or "{number}" in path, endpoint


async def test_a_misspelt_kind_of_fault_names_the_one_that_was_meant(world: World) -> None:
    """The suggestion stands before the list of all kinds."""
    refused = await ask(world, "POST", "/faults", body={"kind": "throtle"})

    assert refused.status == 422
    assert "kind: did you mean `throttle`? must be 'reset_before', " in refused.content.decode()


async def test_health_asks_the_books(world: World) -> None:
    """Healthy is a service whose database answers."""
    await world.create()
    healthy = await ask(world, "GET", "/health")
    await world.service.query("ALTER TABLE accounts RENAME TO lost")

    ill = await ask(world, "GET", "/health")

    assert (healthy.body["status"], healthy.body["active_generations"]) == ("ok", 1)
    assert (healthy.body["base_url"], healthy.body["now"]) == (world.service.base_url, "2026-09-21T00:00:00.000Z")
    assert (ill.status, ill.code) == (500, "internal_error")
    assert b"sql" not in ill.content.lower()


async def test_report_is_the_services(world: World) -> None:
    """The admin port returns the same report as `report`; the request does not count as a client's."""
    await world.create(image_with(prompt="A fox"))

    first = await ask(world, "GET", "/report")
    second = await ask(world, "GET", "/report")

    assert first.body == second.body == json.loads((await world.service.report()).as_json())
    assert first.body["creates"] == {"accepted": 1, "new": 1, "replays": 0}


async def test_fault_is_switched_on_and_off(world: World) -> None:
    """A rule strikes from its arrival on, shows what it has done, and goes when it is withdrawn."""
    rule = {"kind": "unavailable", "endpoint": "models", "times": None, "every": 2, "match": {"account": "main"}}
    added = await ask(world, "POST", "/faults", body=rule)
    statuses = [(await world.send("GET", "/models")).status for _ in range(3)]
    listed = await ask(world, "GET", "/faults")

    withdrawn = [await ask(world, "DELETE", "/faults/0") for _ in range(2)]

    assert (added.status, added.body["number"]) == (201, 0)
    assert statuses == [200, 503, 200]
    assert listed.body == {"faults": [{"number": 0, "rule": rule, "met": 3, "struck": 1}]}
    assert [reply.status for reply in withdrawn] == [200, 404]
    assert (await world.send("GET", "/models")).status == 200


async def test_all_faults_are_switched_off(make_world: WorldMaker) -> None:
    """DELETE withdraws the configuration's rules as well."""
    world = await make_world(operator_port=0, faults=[{"kind": "html"}, {"kind": "throttle"}])

    cleared = await ask(world, "DELETE", "/faults")

    assert cleared.body == {"withdrawn": 2}
    assert (await world.send("GET", "/models")).status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "kind: Field required"),
        ({"kind": "explode"}, "kind: must be 'reset_before'"),
        ({"kind": "html", "colour": "red"}, "unknown field `colour`"),
        ({"kind": "link_dies_early", "endpoint": "create"}, "link_dies_early cannot occur at the endpoint create"),
        ({"kind": "html", "match": {"path": 5}}, "match.path: must be a valid string"),
        ([], "should be a mapping of fields"),
        ("html", "should be a mapping of fields"),
    ],
)
async def test_senseless_fault_is_refused(world: World, body: object, message: str) -> None:
    """422 names the field; nothing is switched on."""
    refused = await ask(world, "POST", "/faults", body=body)

    assert (refused.status, refused.code) == (422, "invalid_request")
    assert message in refused.content.decode()
    assert (await ask(world, "GET", "/faults")).body == {"faults": []}


async def test_bodies_that_are_no_json_are_refused(world: World) -> None:
    """400, 413 and 415, each as JSON."""
    url = f"{world.service.operator_url}/faults"
    seen = []
    for content, content_type in [
        (b"{", "application/json"),
        (b"\xff", "application/json"),
        (b" " * (MAX_BODY_BYTES + 1), "application/json"),
        (b'{"kind": "html"}', "text/plain"),
    ]:
        async with world.session.post(url, data=content, headers={"Content-Type": content_type}) as response:
            seen.append((response.status, (await response.json())["error"]["code"]))

    assert seen == [
        (400, "invalid_json"),
        (400, "invalid_json"),
        (413, "body_too_large"),
        (415, "unsupported_media_type"),
    ]


async def test_number_of_rules_is_bounded(world: World) -> None:
    """Every request is held against every rule, so there are only so many."""
    for _ in range(MAX_RULES):
        world.service.faults.add("html", "openapi")

    assert (await ask(world, "POST", "/faults", body={"kind": "html"})).code == "too_many_faults"


@pytest.mark.parametrize(
    ("outcome", "balance"), [("success", 10_000 - 2), ("failed", 10_000), ("canceled", 10_000 - 2)]
)
async def test_support_ends_what_stays_pending(world: World, outcome: str, balance: int) -> None:
    """A generation that nothing else would end ends at once, is settled as any, and the slot is free. Rule 4.5."""
    created = await world.create(image_with(prompt="A fox [stay-pending]"))
    world.clock.advance(86_400 * 2)

    ended = await ask(world, "POST", f"/generations/{created.body['id']}/end", body={"outcome": outcome})

    assert ended.body == {"id": created.body["id"], "outcome": outcome, "has_ended": True}
    assert (await world.poll(created.body["id"])).body["status"] == outcome
    assert await world.balance() == balance
    assert (await world.create()).status == 202


async def test_success_by_hand_of_what_was_to_fail_is_drawn(make_world: WorldMaker) -> None:
    """Nobody had begun to draw it; it must not keep the slot for ever."""
    world = await make_world(operator_port=0)
    created = await world.create(image_with(prompt="A fox [stay-pending] [fail]"))

    await ask(world, "POST", f"/generations/{created.body['id']}/end", body={"outcome": "success"})
    await world.service.idle()

    assert (await world.poll(created.body["id"])).body["status"] == "success"
    assert (await world.create()).status == 202


async def test_ended_generation_stays_as_it_is(world: World) -> None:
    """What has ended is not changed, also when no request has noticed the end; one that is not there is not found."""
    created = await world.create()
    world.clock.advance(3600)

    refused = await ask(world, "POST", f"/generations/{created.body['id']}/end", body={"outcome": "failed"})
    unknown = await ask(world, "POST", "/generations/gen_0/end", body={"outcome": "failed"})
    senseless = await ask(world, "POST", f"/generations/{created.body['id']}/end", body={"outcome": "expired"})

    assert (refused.status, refused.code) == (409, "already_ended")
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert (senseless.status, senseless.code) == (422, "invalid_request")
    assert (await world.poll(created.body["id"])).body["status"] == "success"


async def test_success_waits_for_its_picture(make_world: WorldMaker) -> None:
    """A generation that was ended while it is being drawn succeeds once it is drawn."""
    world = await make_world(operator_port=0)
    created = await world.create()

    await ask(world, "POST", f"/generations/{created.body['id']}/end", body={"outcome": "success"})
    await world.service.idle()

    assert (await world.poll(created.body["id"])).body["status"] == "success"


async def test_opened_port_takes_any_host_name_but_no_web_page(make_world: WorldMaker) -> None:
    """Containers reach it by the name of its container; a page of a browser still does not."""
    world = await make_world(operator_port=0, operator_host="0.0.0.0")

    named = await ask(world, "POST", "/reset", headers={"Host": "service:8081"})
    paged = await ask(world, "POST", "/reset", headers={"Host": "service:8081", "Origin": "http://service:8081"})

    assert named.status == 200
    assert paged.code == "origin_not_allowed"


async def test_time_advances_on_request(world: World) -> None:
    """Two weeks pass at once: a generation ends, its file is drawn before, and it expires."""
    created = await world.create()

    moved = await ask(world, "POST", "/clock", body={"advance": 600})
    ended = await world.poll(created.body["id"])
    await ask(world, "POST", "/clock", body={"advance": 15 * 86_400})
    expired = await world.poll(created.body["id"])

    assert moved.body == {"now": iso(START_MS + 600_000)}
    assert (ended.body["status"], expired.body["status"]) == ("success", "expired")


async def test_time_is_told(world: World) -> None:
    """With its speed, before and after it was advanced."""
    await ask(world, "POST", "/clock", body={"advance": 600})

    told = await ask(world, "GET", "/clock")

    assert told.body == {"now": iso(START_MS + 600_000), "time_scale": 1.0}


@pytest.mark.parametrize("body", [{"advance": 0}, {"advance": -1}, {"advance": 1e12}, {"advance": "soon"}, {}])
async def test_time_neither_goes_back_nor_leaves_the_calendar(world: World, body: object) -> None:
    """422 names the field, and the clock stands where it was."""
    refused = await ask(world, "POST", "/clock", body=body)

    assert (refused.status, refused.code) == (422, "invalid_request")
    assert world.clock.now_ms() == START_MS


async def test_time_ends_with_the_calendar(world: World) -> None:
    """Ten years at a time do not lead to an instant that no reply can show."""
    moved = [await ask(world, "POST", "/clock", body={"advance": 10 * 365 * 86_400}) for _ in range(100)]

    assert moved[-1].status == 422
    assert (await world.send("GET", "/models")).status == 200


async def test_advanced_time_is_kept_over_a_restart(tmp_path: Path) -> None:
    """The running clock is moved on disk as well, so it does not go back at the next start."""
    config = ServiceConfig(state_dir=tmp_path, accounts=ACCOUNTS)
    async with LocalService(config) as service:
        begun_ms = service.clock.now_ms()
        await service.advance(86_400)
        moved_ms = service.clock.now_ms()
    async with LocalService(config) as service:
        restarted_ms = service.clock.now_ms()

    assert moved_ms - begun_ms >= 86_400_000
    assert restarted_ms >= moved_ms


async def test_a_new_beginning_is_like_a_new_folder(make_world: WorldMaker, png: bytes) -> None:
    """Generations, uploads, requests and counts are gone; keys, time and ports stay; a seed repeats its ids."""
    rule = {"kind": "html", "endpoint": "models"}
    world = await make_world(operator_port=0, seed=5, faults=[rule])
    first = await world.create(idempotency_key="idempotency-key-1")
    await world.upload(png)
    done = await world.finish(first)
    await world.send("GET", "/models")
    await ask(world, "POST", "/faults", body={"kind": "throttle"})
    before_ms = world.clock.now_ms()

    replied = await ask(world, "POST", "/reset")

    assert (replied.status, replied.body["now"]) == (200, iso(before_ms))
    assert (await ask(world, "GET", "/report")).body["requests"] == []
    assert (await ask(world, "GET", "/faults")).body["faults"] == [{"number": 0, "rule": rule, "met": 0, "struck": 0}]
    assert (await world.poll(first.body["id"])).status == 404
    assert await world.balance() == 10_000
    async with world.session.get(done.output["url"]) as gone:
        assert gone.status == 404
    again = await world.create(idempotency_key="idempotency-key-1")
    assert (again.status, again.body["id"]) == (202, first.body["id"])
    assert (await world.finish(again)).body["status"] == "success"
    assert (await world.service.report()).audit.entries == ()
    assert sorted(path.name for path in (world.config.state_dir / "assets").iterdir()) == []


async def test_made_and_revoked_keys_stay_over_a_new_beginning(make_world: WorldMaker) -> None:
    """A key that a person revoked never works again, and a made one goes on. Service rule 5.6."""
    world = await make_world(operator_port=0)
    with open_account_admin(world.config) as admin:
        kept, gone = admin.create("main"), admin.create("main")
        admin.revoke(gone.id)

    await ask(world, "POST", "/reset")

    statuses = [(await world.send("GET", "/models", key=key.secret)).status for key in (kept, gone)]
    assert statuses == [200, 401]


async def test_unknown_paths_and_methods_are_json(world: World) -> None:
    """404 and 405, with what would be allowed."""
    missing, wrong = await ask(world, "GET", "/nothing"), await ask(world, "PUT", "/faults")

    assert (missing.status, missing.code) == (404, "not_found")
    assert (wrong.status, wrong.code) == (405, "method_not_allowed")
    assert wrong.headers["Allow"] == "DELETE,GET,HEAD,POST"


async def test_api_answers_while_a_report_is_made(world: World) -> None:
    """Several reports at once wait for each other, not the API for them."""
    await world.create()

    replies = await asyncio.gather(
        *(ask(world, "GET", "/report") for _ in range(5)), world.send("POST", "/quotes", body=IMAGE)
    )

    assert [reply.status for reply in replies] == [200] * 6
