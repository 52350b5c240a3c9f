"""Each operation of the HTTP interface needs its scope, and nobody without a token gets anything."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

import aiohttp
import pytest
import pytest_asyncio

from batchkiln.config import AccessScope, HttpSettings
from batchkiln.dashboard import middleware
from batchkiln.dashboard.http_api.description import description
from batchkiln.dashboard.http_api.operation import Operation
from batchkiln.dashboard.http_api.routes import operations
from batchkiln.dashboard.server import ServedDashboard, application
from integration.dashboard.interface import ALL, TOKENS, Client, serving, token
from integration.dashboard.sample_queue import Browser
from support.queue_file import QueueFile

if TYPE_CHECKING:
    from batchkiln.dashboard.context import Context

PLACES = {"job": "birds", "item": "picture", "number": "1"}


def path_of(operation: Operation) -> str:
    path = operation.path.replace(r"{number:[1-9]\d{0,5}}", "1")
    return path.format(**PLACES)


@pytest_asyncio.fixture
async def client(queue: QueueFile) -> AsyncIterator[Client]:
    async with serving(queue.path) as client:
        yield client


def events(queue: QueueFile) -> object:
    return queue.all("SELECT count(*) FROM event")


@pytest.mark.parametrize("scope", AccessScope)
async def test_token_does_what_its_scope_permits_and_nothing_else(
    client: Client, queue: QueueFile, scope: AccessScope
) -> None:
    """Every operation with every scope: 403 names the missing one, and nothing is changed."""
    before, limited = events(queue), client.with_token(TOKENS[scope])

    for operation in operations():
        if operation.name == "stream" and scope is AccessScope.LOOK:
            continue  # it does not end
        answer = await limited.send(operation.method, path_of(operation))
        is_permitted = operation.scope in {None, scope}
        assert (answer.status == 403) is not is_permitted, (operation.name, answer.status)
        if not is_permitted:
            assert answer.problem["needed_scope"] == operation.scope
            assert f"no scope {operation.scope}" in answer.problem["detail"]

    if scope is not AccessScope.DECIDE:
        assert events(queue) == before


@pytest.mark.parametrize("bearer", [None, "wrong", "", ALL[:-1], "\u00e9" * 40])
async def test_no_operation_is_for_strangers(client: Client, queue: QueueFile, bearer: str | None) -> None:
    """Without a token, or with an unknown one, every operation answers 401, and discloses nothing."""
    before = events(queue)

    for operation in operations():
        answer = await client.with_token(bearer).send(operation.method, path_of(operation))
        assert answer.status == 401, operation.name
        assert answer.problem["type"] == "urn:batchkiln:problem:token-missing"
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert b"picture" not in answer.body

    assert events(queue) == before


async def test_interface_is_off_without_tokens(queue: QueueFile) -> None:
    """Also for the dashboard's own token, which scrapers of /metrics have."""
    async with serving(queue.path, HttpSettings()) as client:
        own = client.with_token(client.served.access.query.partition("=")[2])
        answers = [await own.send(each.method, path_of(each)) for each in operations()]

    assert {answer.status for answer in answers} == {404}
    assert answers[0].problem["type"] == "urn:batchkiln:problem:interface-off"


async def test_changed_items_and_pruning_need_a_decision(client: Client) -> None:
    """Who may only enqueue can neither pay for a done item again nor cancel queued ones."""
    limited = client.with_token(TOKENS[AccessScope.ENQUEUE])

    answers = [await limited.manifest("", query) for query in ("?on_change=redo", "?prune=true")]

    assert [answer.status for answer in answers] == [403, 403]
    assert [answer.problem["needed_scope"] for answer in answers] == ["decide", "decide"]


async def test_routes_and_description_are_the_same(client: Client) -> None:
    """What is described is served at the same path, and nothing else is served below the prefix."""
    app = application(cast("Context", None))  # the routes need no queue
    routes = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical.startswith("/api/")
    }
    document = description(operations())
    described = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "parameters"
    }

    assert routes == described
    assert (await client.get("/openapi.json")).json == document


@pytest.mark.parametrize("scope", [AccessScope.LOOK, AccessScope.DECIDE])
async def test_pages_obey_the_scopes_too(client: Client, queue: QueueFile, scope: AccessScope) -> None:
    """A person who signs in with a token sees and does what the token permits."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        browser = Browser(client.served, session)
        signed_in = await browser.submit("/sign-in", token=TOKENS[scope])
        page = await browser.get("/jobs/birds/pause")
        form = page.form if page.status == 200 else {"csrf_token": "x"}
        answer = await browser.submit("/jobs/birds/pause", **form)

    assert signed_in.status == 200
    assert page.status == (200 if scope is AccessScope.LOOK else 403)
    assert answer.status == 403
    assert queue.one("SELECT is_paused FROM job") == 0


PAGES = (
    *("", "/items", "/items?large=1", "/item?id=picture", "/item?id=held"),
    *("/review?all=1", "/pause", "/resolve?id=held"),
)
OFFERED = (
    r'<button(?!>Show| type="button" data-size)|type="checkbox"|class="again"'
    '|href="/jobs/birds/(?:pause|retry|redo|cancel|resolve)'
)


@pytest.mark.parametrize("scopes", [(AccessScope.LOOK,), (AccessScope.LOOK, AccessScope.DECIDE)])
async def test_pages_offer_only_what_the_token_may_do(queue: QueueFile, scopes: tuple[AccessScope, ...]) -> None:
    """A button that would be refused is not there, and the page says which scope is missing."""
    http = HttpSettings(tokens=(token("visitor", TOKENS[AccessScope.LOOK], *scopes),))
    may_decide = AccessScope.DECIDE in scopes
    async with (
        serving(queue.path, http) as client,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        browser = Browser(client.served, session)
        await browser.submit("/sign-in", token=TOKENS[AccessScope.LOOK])
        pages = [await browser.get(f"/jobs/birds{path}") for path in PAGES]
        pages.append(await browser.get("/failures"))
        question = await browser.get("/jobs/birds/pause")

    assert ("your token has no scope <code>decide</code>" in question.text) is not may_decide
    for page in pages:
        assert page.status == 200
        assert ("The token visitor may look." in page.text) is not may_decide
        changes = re.findall(OFFERED, page.text)
        assert bool(changes) is may_decide, page.text


async def test_sign_in_needs_a_token_and_the_own_page(client: Client) -> None:
    """A form of another site signs nobody in, and a wrong token does not either."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        browser = Browser(client.served, session)
        wrong = await browser.submit("/sign-in", token="wrong")
        foreign = await browser.send("POST", "/sign-in", data={"token": ALL}, headers={"Origin": "http://evil.example"})

    assert [wrong.status, foreign.status] == [401, 401]
    assert "Set-Cookie" not in wrong.headers
    assert "Set-Cookie" not in foreign.headers


async def test_slow_sign_in_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends it is unknown, and holds no connection."""
    monkeypatch.setattr(middleware, "FORM_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(client.served.url.rpartition(":")[2]))
    head = "POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\ntoken=".encode())

    status = await reader.readline()
    writer.close()

    assert status.split()[1] == b"408"


async def test_mark_of_one_session_does_not_fit_another(client: Client, queue: QueueFile) -> None:
    """What a person with few rights reads on a page is of no use in the session of another one."""
    marks = []
    for bearer in (ALL, TOKENS[AccessScope.LOOK]):
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            browser = Browser(client.served, session)
            await browser.submit("/sign-in", token=bearer)
            marks.append((await browser.get("/jobs/birds/pause")).form["csrf_token"])
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        browser = Browser(client.served, session)
        await browser.submit("/sign-in", token=ALL)
        answer = await browser.submit("/jobs/birds/pause", csrf_token=marks[1])

    assert marks[0] != marks[1]
    assert answer.status == 403
    assert queue.one("SELECT is_paused FROM job") == 0


async def test_change_by_a_session_needs_origin_and_mark(browser: Browser, queue: QueueFile) -> None:
    """The dashboard's scripts use the interface with the session's cookie; another site's cannot."""
    token = (await browser.get("/jobs/birds/pause")).form["csrf_token"]
    own = {"Origin": browser.served.url, "X-CSRF-Token": token}

    refused = [
        await browser.send("POST", "/api/v1/jobs/birds/pause", headers=headers)
        for headers in (
            {},
            {"Origin": own["Origin"]},
            {**own, "Origin": "http://evil.example"},
            {"X-CSRF-Token": token},
        )
    ]
    before = queue.one("SELECT is_paused FROM job")
    done = await browser.send("POST", "/api/v1/jobs/birds/pause", headers=own)

    assert [answer.status for answer in refused] == [403] * 4
    assert before == 0
    assert done.status == 200
    assert queue.one("SELECT is_paused FROM job") == 1


async def test_session_may_read_the_interface_without_tokens(browser: Browser, served: ServedDashboard) -> None:
    """The dashboard itself needs no configuration."""
    answer = await browser.get("/api/v1/jobs/birds")

    assert answer.status == 200
    assert not served.access.has_tokens
