"""The HTTP interface on a queue in PostgreSQL: the same operations as on a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchkiln.api.app_context import AppContext
from batchkiln.api.queue import opened
from batchkiln.config import Config, Profile
from batchkiln.store import DatabaseUrl
from integration.dashboard.interface import serving
from integration.dashboard.test_http_enqueueing import MANIFEST
from support import postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty queue in a database."""
    postgres.require()
    with postgres.server().database() as lent:
        yield DatabaseUrl(lent.secret, may_lose_commits=True)


async def test_queue_in_a_database_is_served(url: DatabaseUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, enqueue, list, follow and cancel."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with opened(AppContext(url, Config({"local": Profile("local")}, "local"))):
        pass
    async with serving(url) as client:
        planned = await client.manifest(MANIFEST, "?dry_run=true")
        first = await client.manifest(MANIFEST)
        again = await client.manifest(MANIFEST)
        items = await client.get("/jobs/foxes/items?state=queued&limit=1")
        shown = await client.get("/jobs/foxes/items/red")
        jobs = await client.get("/jobs")
        asked = await client.post("/jobs/foxes/cancel?dry_run=true")
        canceled = await client.post("/jobs/foxes/cancel", {"items": ["red"]})
        events = await client.get("/events?job=foxes")

    assert planned.json["jobs"][0]["to_send"] == 2
    assert [answer.json["jobs"][0]["new"] for answer in (first, again)] == [2, 0]
    assert [item["item"] for item in items.json["items"]] == ["red"]
    assert items.json["next"] is not None
    assert shown.json["state"] == "queued"
    assert [job["job"] for job in jobs.json["jobs"]] == ["foxes"]
    assert asked.json["number"] == 2
    assert canceled.json["canceled"] == 1
    assert events.json["events"][-1]["state"] == "canceled"
