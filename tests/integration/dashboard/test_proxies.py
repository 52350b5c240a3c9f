"""The server behind a proxy, and for other machines: names, cookies, forms, and the refusal without a token."""

from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from msgspec.structs import replace

from batchkiln.config import Config, HttpSettings, Profile
from batchkiln.core.errors import InputError
from batchkiln.dashboard.server import serving_dashboard
from integration.dashboard.interface import ALL, Client, serving, settings
from integration.dashboard.sample_queue import Browser
from support.queue_file import QueueFile

NAME = "kiln.example.org"
FORWARDED = {"Host": "127.0.0.1", "X-Forwarded-Host": NAME, "X-Forwarded-Proto": "https"}
ORIGIN = {"Origin": f"https://{NAME}"}


@pytest_asyncio.fixture
async def client(queue: QueueFile) -> AsyncIterator[Client]:
    """A server behind a proxy with TLS on this machine."""
    http = settings(public_url=f"https://{NAME}", trusted_proxies=(ip_network("127.0.0.1"),))
    async with serving(queue.path, http) as client:
        yield client


async def test_form_behind_a_proxy_is_the_own_one(client: Client, queue: QueueFile) -> None:
    """Its origin is the public URL; the cookie is for encrypted connections alone."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        base = Browser(replace(client.served, url=client.served.listens_at), session)
        signed_in = await base.send("POST", "/sign-in", data={"token": ALL}, headers=FORWARDED | ORIGIN)
        cookie = {"Cookie": signed_in.headers["Set-Cookie"].partition(";")[0]}
        page = await base.get("/jobs/birds/pause", headers=FORWARDED | cookie)
        foreign = await base.send(
            "POST", "/jobs/birds/pause", data=page.form, headers=FORWARDED | cookie | {"Origin": "http://127.0.0.1"}
        )
        own = await base.send("POST", "/jobs/birds/pause", data=page.form, headers=FORWARDED | cookie | ORIGIN)

    assert "Secure" in signed_in.headers["Set-Cookie"]
    assert foreign.status == 403
    assert own.status == 303
    assert queue.one("SELECT is_paused FROM job") == 1


async def test_headers_of_strangers_do_not_count(queue: QueueFile) -> None:
    """Without a trusted proxy, a request is what its connection says."""
    async with serving(queue.path, settings(public_url=f"https://{NAME}")) as client:
        answer = await client.get("/jobs", headers={"X-Forwarded-Host": "evil.example"})
        foreign = await client.get("/jobs", headers={"Host": "evil.example", "X-Forwarded-Host": NAME})

    assert answer.status == 200
    assert foreign.status == 421
    assert foreign.problem["type"].endswith("foreign-host")


@pytest.mark.parametrize("host", ["evil.example", f"{NAME}.evil.example"])
async def test_foreign_name_is_refused_with_a_valid_token(client: Client, host: str) -> None:
    """DNS rebinding."""
    answer = await client.get("/jobs", headers={"Host": host})

    assert answer.status == 421


async def test_server_for_others_needs_a_token(queue: QueueFile) -> None:
    """Nothing is served before."""
    config = Config({"local": Profile("local")}, "local", http=HttpSettings(host="0.0.0.0"))

    with pytest.raises(InputError, match="no token is configured; nothing was served"):
        async with serving_dashboard(queue.path, config, port=0):
            pass


async def test_server_for_others_answers_to_addresses(queue: QueueFile) -> None:
    """A name would have to be set."""
    async with serving(queue.path, settings(host="0.0.0.0")) as client:
        port = client.served.listens_at.rpartition(":")[2]
        headers = {"Authorization": f"Bearer {ALL}"}
        statuses = []
        for host in ("127.0.0.1", "192.0.2.1", "kiln"):
            url = f"http://127.0.0.1:{port}/api/v1/access"
            async with client.session.get(url, headers=headers | {"Host": f"{host}:{port}"}) as response:
                statuses.append(response.status)

    assert statuses == [200, 200, 421]


async def test_no_answer_permits_other_sites(client: Client) -> None:
    """A token in a page of another site is of no use in a browser: no answer names an allowed origin."""
    answer = await client.get("/jobs", headers={"Origin": "https://evil.example"})

    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "batchkiln"  # no versions, which tell a stranger what to try


async def test_tokens_are_in_no_log_and_no_answer(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a right one nor a wrong one (Law 8)."""
    wrong = "bk_wrong-0123456789abcdef0123456789abcdef"
    answers = [await client.get("/access"), await client.with_token(wrong).get("/access"), await client.get("/none")]

    told = (
        "".join(str(answer.body) + str(answer.headers) for answer in answers) + caplog.text + str(capsys.readouterr())
    )
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert ALL not in told
    assert wrong not in told
    assert ALL.encode() not in files
