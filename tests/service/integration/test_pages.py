"""The pages of the service for people, and the relay by which a browser may try the API."""

import re
from urllib.parse import urljoin

import pytest

from batchkiln_service.api.openapi import operations

from .service_world import IMAGE, World, WorldMaker


def page_url(world: World, path: str) -> str:
    return urljoin(world.service.base_url, path)


async def test_landing_page_says_what_it_is_and_where(world: World) -> None:
    """A stranger finds the base URL, the description, and every endpoint."""
    page = await world.send("GET", page_url(world, "/"), key=None)
    text = page.content.decode()

    assert page.status == 200
    assert world.service.base_url in text
    assert 'href="/docs"' in text
    assert [each.path for each in operations() if f"<code>{each.path}</code>" not in text] == []


async def test_landing_page_carries_the_speed(make_world: WorldMaker) -> None:
    """The exports are those that the command prints."""
    world = await make_world(time_scale=60)

    assert b"BATCHKILN_TIME_SCALE=60" in (await world.send("GET", page_url(world, "/"), key=None)).content


@pytest.mark.parametrize("is_on", [True, False])
async def test_landing_page_names_the_header_of_faults(make_world: WorldMaker, *, is_on: bool) -> None:
    """Or that the service was started without it."""
    world = await make_world(request_faults=is_on)

    page = (await world.send("GET", page_url(world, "/"), key=None)).content.decode()

    assert "X-Batchkiln-Fault" in page
    assert ("request_faults: false" in page) is not is_on


async def test_landing_page_names_the_operators_port(make_world: WorldMaker) -> None:
    """Its address, to be copied."""
    world = await make_world(operator_port=0)

    shown = (await world.send("GET", page_url(world, "/"), key=None)).content.decode()

    assert f"<code>{world.service.operator_url}</code>" in shown


async def test_landing_page_says_what_is_usual(make_world: WorldMaker) -> None:
    """No operator's port, and a clock of real time, which is not "1 times as fast"."""
    world = await make_world(operator_port=None, time_scale=1)

    shown = (await world.send("GET", page_url(world, "/"), key=None)).content.decode()

    assert "None is open; <code>--operator-port</code> opens one" in shown
    assert "at the speed of real time" in shown
    assert "1 times" not in shown


async def test_landing_page_says_which_rules_are_off(make_world: WorldMaker) -> None:
    """No limits, and files that show no prompt."""
    world = await make_world(no_limits=True, instant=True)

    shown = " ".join((await world.send("GET", page_url(world, "/"), key=None)).content.decode().split())

    assert "It applies the service's rules and none of its limits." in shown
    assert "its pictures and clips are ready at once, all of a format the same." in shown


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_every_file_of_a_page_comes_from_the_service(world: World, path: str) -> None:
    """No page names another host, and what it names is there."""
    page = (await world.send("GET", page_url(world, path), key=None)).content.decode()

    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    replies = {name: await world.send("GET", page_url(world, name), key=None) for name in named}

    assert [name for name in named if not name.startswith("/")] == []
    assert {name: reply.status for name, reply in replies.items()} == dict.fromkeys(named, 200)


async def test_browsers_get_no_error_for_the_icon_that_they_ask_for(world: World) -> None:
    """They ask for it beside each page."""
    assert (await world.send("GET", page_url(world, "/favicon.ico"), key=None)).status == 204


async def test_wrong_paths_lead_to_the_pages(world: World) -> None:
    """Whoever opens the address for clients in a browser reads where the pages are."""
    for path in ("/api/v1", "/api/v1/modles", "/doc"):
        refused = await world.send("GET", page_url(world, path), key=None)

        assert refused.status == 404
        assert "GET / lists its endpoints, and /docs describes them" in refused.content.decode()


async def test_pages_may_load_nothing_from_elsewhere(world: World) -> None:
    """The browser is told so, and no script stands in a page."""
    for path in ("/", "/docs"):
        page = await world.send("GET", page_url(world, path), key=None)

        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "http" not in policy
        assert "<script>" not in page.content.decode()


async def test_the_licence_of_the_viewer_is_kept(world: World) -> None:
    """Swagger UI is under the Apache License 2.0, whose text and notice go with it."""
    licence = await world.send("GET", page_url(world, "/docs/assets/LICENSE"), key=None)

    assert licence.headers["Content-Type"].startswith("text/plain")
    assert b"Apache License" in licence.content


@pytest.mark.parametrize("name", ["swagger.html", "..%2F..%2Fpages.py", "nothing"])
async def test_only_the_files_of_the_pages_are_served(world: World, name: str) -> None:
    """A path does not lead out of the two folders."""
    assert (await world.send("GET", page_url(world, f"/docs/assets/{name}"), key=None)).status == 404


async def test_relay_takes_what_the_browser_adds_away(world: World) -> None:
    """A request of the page reaches the API as a client's, and its reply comes back. Service rule 5.5."""
    origin = page_url(world, "/").rstrip("/")
    headers = {"Origin": origin, "Idempotency-Key": "idempotency-key-1"}

    created = await world.send("POST", page_url(world, "/docs/try/api/v1/images"), body=IMAGE, headers=headers)
    read = await world.send("GET", page_url(world, f"/docs/try/api/v1/generations/{created.body['id']}"))
    refused = await world.send("GET", page_url(world, f"/docs/try/api/v1/generations/{created.body['id']}"))

    assert (created.status, read.status) == (202, 200)
    assert (refused.status, refused.retry_after) == (429, 10)


@pytest.mark.parametrize("origin", ["https://example.com", "null", "http://127.0.0.1:1"])
async def test_relay_serves_no_other_page(world: World, origin: str) -> None:
    """Another site cannot use it, whatever key it has."""
    path = page_url(world, "/docs/try/api/v1/quotes")

    refused = await world.send("POST", path, body=IMAGE, headers={"Origin": origin})

    assert refused.status == 403
    assert await world.service.requests() == []


async def test_relay_shows_a_lost_reply_as_such(world: World) -> None:
    """The fault is the API's; the page still gets an answer."""
    world.service.faults.add("reset_after", "quote")

    lost = await world.send("POST", page_url(world, "/docs/try/api/v1/quotes"), body=IMAGE)

    assert lost.status == 502


@pytest.mark.parametrize("path", ["/docs/try/storage/outputs/x/0.png", "/docs/try/", "/docs/try/api/v1/"])
async def test_relay_leads_to_the_api_alone(world: World, path: str) -> None:
    """Not to the storage, nor to another address."""
    assert (await world.send("GET", page_url(world, path))).status == 404
