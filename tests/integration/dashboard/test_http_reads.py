"""What the HTTP interface tells: the documents of `--json`, page by page, events as they occur, and files."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
from msgspec.structs import replace
from yarl import URL

from batchkiln.dashboard import stream_places
from batchkiln.dashboard.http_api import event_stream
from integration.cli.workspace import Workspace
from integration.dashboard.interface import ALL, Client, serving
from integration.dashboard.sample_queue import STRANGE
from support.queue_file import JOB, QueueFile


@pytest_asyncio.fixture
async def client(queue: QueueFile) -> AsyncIterator[Client]:
    async with serving(queue.path) as client:
        yield client


@pytest.fixture
def workspace(tmp_path: Path, queue: QueueFile) -> Workspace:
    del queue
    return Workspace(tmp_path)


async def printed(workspace: Workspace, *arguments: str) -> str:
    result = await asyncio.to_thread(workspace.call, *arguments, "--queue", "queue.db", "--json")
    assert result.exit == 0, result.err
    return result.out


async def test_documents_are_those_of_the_commands(client: Client, workspace: Workspace) -> None:
    """One shape for both, so that a program can change from the one to the other."""
    items = await client.get("/jobs/birds/items")
    shown = await client.get("/jobs/birds/items/picture")

    lines = (await printed(workspace, "items", "birds")).splitlines()

    assert items.json == {"items": [json.loads(line) for line in lines], "next": None}
    show = json.loads(await printed(workspace, "show", "birds", "picture"))
    assert shown.json == show
    status = json.loads(await printed(workspace, "status", "birds"))
    job = (await client.get("/jobs/birds")).json
    assert job.keys() == status.keys()
    assert job["items"] == status["items"]


async def test_items_come_page_by_page_without_gaps(client: Client) -> None:
    """A page's `next` begins the following one, until it is null; with any number of states."""
    for query in ("", "&state=done", "&state=done&state=failed&state=queued"):
        whole = (await client.get(f"/jobs/birds/items?limit=1000{query}")).json["items"]
        names: list[str] = []
        after: int | None = 0
        while after is not None:
            page = (await client.get(f"/jobs/birds/items?limit=2&after={after}{query}")).json
            assert len(page["items"]) <= 2
            names += [item["item"] for item in page["items"]]
            after = page["next"]

        assert names == [item["item"] for item in whole]
        assert names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=failed", ["failed"]),
        ("state=failed&state=held", ["failed", "held"]),
        ("code=input_gone", ["held"]),
        ("where=metadata.kind=fox", []),
        ("verdict=unreviewed", ["picture", "clip", "gone"]),
    ],
)
async def test_items_are_chosen_as_by_the_command(client: Client, query: str, names: list[str]) -> None:
    answer = await client.get(f"/jobs/birds/items?{query}")

    assert [item["item"] for item in answer.json["items"]] == names


async def test_conditions_must_all_hold(client: Client, queue: QueueFile) -> None:
    """`where` can be repeated, as the option; two values of one key are a mistake, and not an empty page."""
    queue.connection.execute("UPDATE item SET metadata = ? WHERE name = 'clip'", ('{"kind":"fox","size":3}',))

    both = await client.get("/jobs/birds/items?where=metadata.kind=fox&where=metadata.size=3")
    one = await client.get("/jobs/birds/items?where=metadata.kind=fox&where=metadata.size=4")
    never = await client.get("/jobs/birds/items?where=metadata.kind=fox&where=metadata.kind=owl")

    assert [item["item"] for item in both.json["items"]] == ["clip"]
    assert one.json["items"] == []
    assert never.status == 404
    assert never.problem["detail"].startswith("metadata.kind=owl: no item matches, because metadata.kind=fox must")


async def test_id_with_slashes_is_percent_encoded(client: Client) -> None:
    """An id may contain anything; the path names it all the same."""
    answer = await client.session.get(
        URL(f"{client.served.url}/api/v1/jobs/birds/items/{quote(STRANGE, safe='')}", encoded=True),
        headers={"Authorization": f"Bearer {ALL}"},
    )

    assert answer.status == 200
    assert (await answer.json())["item"] == STRANGE


async def test_jobs_and_accounts_are_listed(client: Client, queue: QueueFile) -> None:
    queue.apply([], job=replace(JOB, name="foxes"))

    first = (await client.get("/jobs?limit=1")).json
    rest = (await client.get(f"/jobs?after={first['next']}")).json

    assert [job["job"] for job in first["jobs"] + rest["jobs"]] == ["birds", "foxes"]
    assert rest["next"] is None
    accounts = (await client.get("/accounts")).json
    assert [account["profile"] for account in accounts["accounts"]] == ["local"]
    assert accounts["driver"] is None


UNKNOWN = [
    "/jobs/foxes",
    "/jobs/foxes/items",
    "/jobs/birds/items/nobody",
    "/jobs/birds/items/nobody/outputs/1",
    "/jobs/birds/items/picture/outputs/2",
    "/jobs/birds/items/picture/outputs/1?version=9",
    "/jobs/birds/items/gone/outputs/1",
    "/jobs/foxes/review",
    "/jobs?after=foxes",
    "/events?job=foxes",
    "/events/stream?job=foxes",
    "/nothing",
]


@pytest.mark.parametrize("path", UNKNOWN)
async def test_unknown_name_is_not_found(client: Client, path: str) -> None:
    assert "not-found" in (await client.get(path)).problem["type"]


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?limit=0",
        "/jobs?limit=x",
        "/jobs?colour=red",
        "/jobs?limit=1&limit=2",
        "/jobs/birds/items?state=burnt",
        "/jobs/birds/items?where=kind",
        "/jobs/birds/items?after=-1",
        "/jobs/birds/items?after=99999999999999999999",
        "/events?after=x",
    ],
)
async def test_malformed_parameter_is_told(client: Client, path: str) -> None:
    """The mistake is named, and not ignored."""
    answer = await client.get(path)

    assert answer.status == 400
    assert answer.problem["detail"]


async def test_wrong_method_names_the_right_ones(client: Client) -> None:
    answer = await client.send("DELETE", "/jobs/birds")

    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"
    assert answer.problem["type"].endswith("method-not-allowed")


# --- files ---


async def test_file_is_sent_whole_or_in_part(client: Client, tmp_path: Path) -> None:
    """With its type, its hash, and ranges, so that a download can go on."""
    content = (tmp_path / "picture.png").read_bytes()
    path = "/jobs/birds/items/picture/outputs/1"

    whole = await client.get(path)
    part = await client.get(path, headers={"Range": "bytes=10-19"})
    beyond = await client.get(path, headers={"Range": f"bytes={len(content)}-"})
    named = await client.get(f"{path}?download=true")

    assert whole.body == content
    assert whole.headers["Content-Type"] == "image/png"
    assert whole.headers["Repr-Digest"].startswith("sha-256=:")
    assert (part.status, part.body) == (206, content[10:20])
    assert beyond.status == 416
    assert "picture.png" in named.headers["Content-Disposition"]


async def test_redo_while_a_file_is_read_disturbs_nothing(client: Client, tmp_path: Path) -> None:
    """A file is never overwritten: who downloads or exports it gets the version that was current."""
    content = (tmp_path / "picture.png").read_bytes()
    url = f"{client.served.url}/api/v1/jobs/birds/items/picture/outputs/1"
    async with client.session.get(url, headers={"Authorization": f"Bearer {ALL}"}) as response:
        asked = await client.post("/jobs/birds/redo?dry_run=true", {"items": ["picture"]})
        agreed = asked.json["agreed"]
        done = await client.post("/jobs/birds/redo", {"items": ["picture"], "agreed": agreed})
        body = await response.read()

    earlier = await client.get("/jobs/birds/items/picture/outputs/1?version=1")

    assert done.json["redone"] == 1
    assert body == content
    assert hashlib.sha256(earlier.body).digest() == hashlib.sha256(content).digest()


# --- events ---


async def test_history_comes_page_by_page(client: Client, queue: QueueFile) -> None:
    """Each event once, in order, as `run --json` prints it."""
    total = queue.one("SELECT count(*) FROM event")
    found, after, is_more = [], 0, True
    while is_more:
        page = (await client.get(f"/events?limit=7&after={after}")).json
        found += page["events"]
        after, is_more = page["next"], page["more"]

    assert len(found) == total
    assert found[0].keys() >= {"event", "at", "job", "item", "state"}


async def read_events(response: aiohttp.ClientResponse, number: int) -> list[tuple[int, dict[str, object]]]:
    """Read messages with data from a stream."""
    found: list[tuple[int, dict[str, object]]] = []
    last = 0
    async with asyncio.timeout(20):
        while len(found) < number:
            line = (await response.content.readline()).decode()
            if line.startswith("id: "):
                last = int(line[4:])
            if line.startswith("data: "):
                found.append((last, json.loads(line[6:])))
    return found


async def test_stream_goes_on_where_it_was_cut_off(client: Client, queue: QueueFile) -> None:
    """`Last-Event-ID` misses nothing and repeats nothing."""
    total = queue.one("SELECT count(*) FROM event")
    url = f"{client.served.url}/api/v1/events/stream"
    headers = {"Authorization": f"Bearer {ALL}"}
    async with client.session.get(f"{url}?after=0", headers=headers) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        before = await read_events(response, 5)
    async with client.session.get(url, headers={**headers, "Last-Event-ID": str(before[-1][0])}) as response:
        after = await read_events(response, total - 5)

    ids = [row[0] for row in queue.all("SELECT id FROM event ORDER BY id")]
    assert [number for number, _ in before + after] == ids


async def test_stream_tells_what_happens_from_now_on(
    client: Client, queue: QueueFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of other jobs are left out."""
    monkeypatch.setattr(event_stream, "CHECK_INTERVAL_SECONDS", 0.01)
    queue.apply([], job=replace(JOB, name="foxes"))
    url = f"{client.served.url}/api/v1/events/stream?job=birds"
    async with client.session.get(url, headers={"Authorization": f"Bearer {ALL}"}) as response:
        await response.content.readline()
        await client.post("/jobs/foxes/pause")
        await client.post("/jobs/birds/pause")
        ((_, event),) = await read_events(response, 1)

    assert event["job"] == "birds"
    assert event["event"] == "job_paused"


@pytest.mark.parametrize("last", ["x", "-1", "9" * 30, "\u0663"])
async def test_place_that_makes_no_sense_is_refused(client: Client, last: str) -> None:
    answer = await client.get("/events/stream", headers={"Last-Event-ID": last})

    assert answer.status == 400


async def test_streams_have_a_bound(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones are told when to come back."""
    monkeypatch.setattr(stream_places, "STREAMS_MAX", 0)

    answer = await client.get("/events/stream")

    assert answer.status == 503
    assert answer.headers["Retry-After"]


async def test_step_of_a_review_has_its_neighbours(client: Client) -> None:
    """As `review --json` prints it, with the places to go to."""
    first = (await client.get("/jobs/birds/review?all=true")).json
    second = (await client.get(f"/jobs/birds/review?all=true&at={first['next']}")).json

    assert [item["item"] for item in first["step"]["items"]] == ["picture"]
    assert first["previous"] is None
    assert second["previous"] == first["at"]
