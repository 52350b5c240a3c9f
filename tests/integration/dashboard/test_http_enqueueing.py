"""Manifests over HTTP: idempotent as the command, confined to what the owner allows, and bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from batchkiln.dashboard.http_api import bodies, enqueueing
from batchkiln.dashboard.http_api.bodies import BodyLimits
from integration.dashboard.interface import ALL, Client, serving, settings
from support.queue_file import QueueFile

MANIFEST = """\
version: 1
job: foxes
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items:
  - {id: red, prompt: A red fox}
  - {id: grey, prompt: A grey fox}
"""


@pytest_asyncio.fixture
async def client(queue: QueueFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.chdir(tmp_path)
    async with serving(queue.path) as client:
        yield client


def prompts(queue: QueueFile) -> list[str]:
    rows = queue.all("SELECT prompt FROM item JOIN job ON job.id = job_id WHERE job.name = 'foxes' ORDER BY item.id")
    return [row[0] for row in rows]


async def test_manifest_is_enqueued_once(client: Client, queue: QueueFile) -> None:
    """The answer is that of `enqueue --json`; a second request finds everything known."""
    first = await client.manifest(MANIFEST)
    again = await client.manifest(MANIFEST)

    assert first.status == 200, first.body
    assert (first.json["jobs"][0]["new"], first.json["jobs"][0]["known"]) == (2, 0)
    assert (again.json["jobs"][0]["new"], again.json["jobs"][0]["known"]) == (0, 2)
    assert prompts(queue) == ["A red fox", "A grey fox"]


async def test_manifests_that_arrive_together_are_applied_one_by_one(client: Client, queue: QueueFile) -> None:
    """Each item is enqueued by one of the requests."""
    answers = await asyncio.gather(*(client.manifest(MANIFEST) for _ in range(3)))

    assert sorted(answer.json["jobs"][0]["new"] for answer in answers) == [0, 0, 2]
    assert prompts(queue) == ["A red fox", "A grey fox"]


async def test_dry_run_is_the_plan(client: Client, queue: QueueFile) -> None:
    """Cost and days, and no change."""
    answer = await client.manifest(MANIFEST, "?dry_run=true")

    assert answer.json["jobs"][0]["to_send"] == 2
    assert answer.json["cost"]["credits"] > 0
    assert prompts(queue) == []


@pytest.mark.parametrize("is_ascii", [True, False])
async def test_manifest_may_be_json(client: Client, queue: QueueFile, *, is_ascii: bool) -> None:
    """With any escapes that JSON has: two for one character, and backslashes before them."""
    prompt = 'A fox \U0001f98a\U0001f98a says "\\ud83e" / \\'
    text = json.dumps(
        {
            "version": 1,
            "job": "foxes",
            "defaults": {"model": "epsilon-2", "mode": "text-to-image", "parameters": {"resolution": "512x512"}},
            "items": [{"prompt": prompt}],
        },
        ensure_ascii=is_ascii,
    )

    answer = await client.manifest(text, media_type="application/json; charset=utf-8")

    assert answer.status == 200, answer.body
    assert prompts(queue) == [prompt]


@pytest.mark.parametrize(
    ("text", "media_type", "line", "column", "reason"),
    [
        (MANIFEST.replace("prompt: A grey", "promt: A grey"), "application/yaml", 6, 16, "promt"),
        (MANIFEST.replace("{id: red", "{id: [red"), "text/yaml", 5, None, ""),
        (MANIFEST + "  - {id: red, prompt: B}\n", "application/yaml", 7, None, "red"),
        ("", "application/yaml", None, None, "empty"),
        ('{"version": 1,\n "job": }', "application/json", 2, 9, "not valid JSON"),
        ('{"version": 1,\n "job": "foxes",\n "items": [{"promt": "A"}]}', "application/json", 3, 13, "promt"),
    ],
)
async def test_mistake_is_told_with_its_place(  # noqa: PLR0917  a row of the table
    client: Client, queue: QueueFile, text: str, media_type: str, line: int | None, column: int | None, reason: str
) -> None:
    """All at once, as by the command, and nothing is enqueued."""
    answer = await client.manifest(text, media_type=media_type)

    assert answer.status == 422
    assert answer.problem["charged"] == "Nothing was enqueued, and nothing was charged."
    assert {mistake["file"] for mistake in answer.problem["mistakes"]} == {"<request>"}
    assert any(
        mistake["line"] == line and column in {None, mistake["column"]} and reason in mistake["reason"]
        for mistake in answer.problem["mistakes"]
    ), answer.problem["mistakes"]
    assert prompts(queue) == []


async def test_changed_item_is_updated_while_it_was_never_sent(client: Client, queue: QueueFile) -> None:
    """As by the command."""
    await client.manifest(MANIFEST)

    answer = await client.manifest(MANIFEST.replace("A red fox", "A red wolf"))

    assert answer.json["jobs"][0]["updated"] == 1
    assert prompts(queue) == ["A red wolf", "A grey fox"]


# --- what a stranger may name ---


@pytest.mark.parametrize(
    "item",
    [
        "{from: secret.txt}",
        "{from: 'file:///etc/hosts.txt'}",
        "{from: 'http://127.0.0.1:1/x.txt'}",
        "{prompt: A fox, mode: image-to-image, inputs: [picture.png]}",
    ],
)
@pytest.mark.parametrize("query", ["", "?dry_run=true"])
async def test_files_of_the_server_are_not_read(client: Client, queue: QueueFile, item: str, query: str) -> None:
    """Neither enqueueing nor a plan reads what a stranger names."""
    Path("secret.txt").write_text("the password\n")

    answer = await client.manifest(MANIFEST + f"  - {item}\n", query)

    assert answer.status == 422
    assert "which a manifest sent over HTTP may not read" in answer.problem["mistakes"][0]["reason"]
    assert b"password" not in answer.body
    assert prompts(queue) == []


async def test_files_of_the_allowed_folder_are_read(queue: QueueFile, tmp_path: Path) -> None:
    """The owner names the folder in the configuration."""
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "more.txt").write_text("A white fox\n")
    async with serving(queue.path, settings(files=tmp_path / "incoming")) as client:
        answer = await client.manifest(MANIFEST + "  - {from: more.txt}\n")
        outside = await client.manifest(MANIFEST + "  - {from: ../queue.txt}\n")

    assert answer.json["jobs"][0]["new"] == 3
    assert outside.status == 422


@pytest.mark.parametrize("folder", ["/etc", "../elsewhere"])
async def test_results_stay_below_the_working_folder(client: Client, queue: QueueFile, folder: str) -> None:
    """A stranger chooses no place of the server's disk."""
    answer = await client.manifest(f"output: {{dir: {folder}}}\n{MANIFEST}")

    assert answer.status == 422
    assert "`output.dir` is outside" in answer.problem["detail"]
    assert prompts(queue) == []


# --- bounds ---


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/yaml; charset=latin-1"]
)
async def test_other_content_types_are_refused(client: Client, media_type: str) -> None:
    answer = await client.manifest(MANIFEST, media_type=media_type)

    assert answer.status == 415
    assert "application/yaml" in answer.headers["Accept-Post"]


async def test_large_body_is_refused(client: Client, queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its announced size, and by what arrives."""
    monkeypatch.setattr(enqueueing, "MANIFEST_LIMITS", BodyLimits(100))

    async def pieces() -> AsyncIterator[bytes]:
        yield MANIFEST.encode()

    announced = await client.manifest(MANIFEST)
    streamed = await client.send("POST", "/jobs", data=pieces(), headers={"Content-Type": "application/yaml"})

    assert [announced.status, streamed.status] == [413, 413]
    assert "100 bytes" in announced.problem["detail"]
    assert prompts(queue) == []


async def test_slow_body_is_given_up(client: Client, queue: QueueFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops in the middle holds nothing."""
    monkeypatch.setattr(enqueueing, "MANIFEST_LIMITS", BodyLimits(1 << 20, idle_seconds=0.05))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(client.served.url.rpartition(":")[2]))
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ALL}\r\n"
    writer.write(f"{head}Content-Type: application/yaml\r\nContent-Length: 500\r\n\r\nversion: 1\n".encode())

    status = await reader.readline()
    writer.close()

    assert status.split()[1] == b"408"
    assert prompts(queue) == []


async def test_too_many_manifests_at_once_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueueing, "MANIFESTS_AT_ONCE", 0)

    answer = await client.manifest(MANIFEST)

    assert answer.status == 503
    assert answer.headers["Retry-After"]


async def test_packed_body_is_bounded_by_what_it_becomes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of gzip can be gigabytes."""
    import gzip  # noqa: PLC0415  of this test alone

    monkeypatch.setattr(enqueueing, "MANIFEST_LIMITS", BodyLimits(1 << 20))
    packed = gzip.compress(b"#" * (8 << 20))
    headers = {"Content-Type": "application/yaml", "Content-Encoding": "gzip"}

    answer = await client.send("POST", "/jobs", data=packed, headers=headers)

    assert answer.status == 413


async def test_large_decision_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "JSON_LIMITS", BodyLimits(100))

    answer = await client.post("/jobs/birds/keep", {"items": ["x" * 200]})

    assert answer.status == 413
