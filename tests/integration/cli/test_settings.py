"""Settings of a profile and of the log: a proxy, a file of environment variables, a log file."""

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from integration.cli.workspace import Workspace

STUDIO = """
default_profile: studio
profiles:
  studio:
    base_url: http://service.invalid/api/v1
    allow_http: true
    accounts: [{{name: main, keys: [{{env: STUDIO_KEY}}]}}]
{more}
"""
BALANCE = b'{"balance": 7, "credits": 7}'


class RecordingProxy:
    """A proxy that answers each request itself, and records the request lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = server.result()
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.lines.append(head.split(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(BALANCE), BALANCE))
        await writer.drain()
        writer.close()

    async def _close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def proxy() -> Iterator[RecordingProxy]:
    made = RecordingProxy()
    made.start()
    yield made
    made.stop()


def test_requests_go_through_the_proxy_of_the_profile(workspace: Workspace, proxy: RecordingProxy) -> None:
    """The host of the service need not resolve here: the proxy gets the whole address."""
    workspace.configure(STUDIO.format(more=f"    proxy: http://127.0.0.1:{proxy.port}"))

    balance = workspace.call("balance", "--json", STUDIO_KEY="k")
    doctor = workspace.call("doctor", "--json", STUDIO_KEY="k")

    assert balance.exit == 0
    assert '"credits": 7' in balance.out or '"balance": 7' in balance.out
    assert all(" http://service.invalid/" in line for line in proxy.lines)
    assert "could not be resolved" not in doctor.out + doctor.err
    assert len(proxy.lines) > 1


def test_the_environments_proxy_is_used_on_request_only(workspace: Workspace, proxy: RecordingProxy) -> None:
    """Without `proxy: environment` the usual variables are ignored, and NO_PROXY makes an exception."""
    variables = {"STUDIO_KEY": "k", "http_proxy": f"http://127.0.0.1:{proxy.port}"}
    workspace.configure(STUDIO.format(more=""))
    without = workspace.call("balance", **variables)
    workspace.configure(STUDIO.format(more="    proxy: environment"))
    exempt = workspace.call("balance", **variables, no_proxy="service.invalid")
    lines_before = list(proxy.lines)
    balance = workspace.call("balance", **variables)

    assert (without.exit, exempt.exit, balance.exit) == (4, 4, 0)
    assert lines_before == []
    assert proxy.lines != []


def test_a_run_goes_through_the_proxy(workspace: Workspace, proxy: RecordingProxy) -> None:
    """The engine's own session uses it, too."""
    workspace.configure(STUDIO.format(more=f"    proxy: http://127.0.0.1:{proxy.port}"))
    workspace.manifest("foxes")
    process = workspace.start("run", "foxes.yaml", "--yes", "--no-catalogue", STUDIO_KEY="k")
    try:
        while not any("POST http://service.invalid/" in line for line in proxy.lines) and process.poll() is None:
            threading.Event().wait(0.05)
    finally:
        process.kill()
        process.communicate()

    assert any("POST http://service.invalid/" in line for line in proxy.lines)


def test_a_proxy_that_is_not_there_is_told_without_its_address(workspace: Workspace) -> None:
    """The address may hold a password (Law 8)."""
    workspace.configure(STUDIO.format(more="    proxy: {env: STUDIO_PROXY}"))

    missing = workspace.call("balance", STUDIO_KEY="k")
    wrong = workspace.call("balance", STUDIO_KEY="k", STUDIO_PROXY="ftp://me:secret@proxy")

    assert "no URL of a proxy, http://HOST:PORT, was found in the environment variable STUDIO_PROXY" in missing.out
    assert "secret" not in wrong.err + wrong.out
    assert (missing.exit, wrong.exit) == (2, 2)


def test_variables_come_from_the_env_file_and_the_environment_has_precedence(
    workspace: Workspace, proxy: RecordingProxy
) -> None:
    """A key of `.env` is used; a missing file is an error that names it."""
    more = "    proxy: {env: STUDIO_PROXY}\nenv_file: .env"
    workspace.configure(STUDIO.format(more=more))
    missing = workspace.call("balance")
    (workspace.folder / ".env").write_text(
        f"# keys\nexport STUDIO_KEY='key-of-the-file'\nSTUDIO_PROXY=http://127.0.0.1:{proxy.port}\n"
    )
    balance = workspace.call("balance")
    overridden = workspace.call("balance", STUDIO_PROXY="http://127.0.0.1:1")

    assert "env_file: " in missing.err
    assert "No such file" in missing.err
    assert (missing.exit, balance.exit, overridden.exit) == (2, 0, 4)


def test_a_log_file_gets_the_log(workspace: Workspace) -> None:
    """Its level is that of --log-level; standard error keeps what the command tells, in the same form."""
    workspace.manifest("foxes")

    result = workspace.call(
        "run", "foxes.yaml", "--yes", "--log-file", "logs/run.log", "--log-level", "info", "--log-format", "json"
    )

    lines = [json.loads(line) for line in (workspace.folder / "logs" / "run.log").read_text("utf-8").splitlines()]
    assert result.exit == 0
    assert {line["level"] for line in lines} >= {"info"}
    assert not any(line["event"] in result.err for line in lines)
    assert [
        line for line in map(json.loads, result.err.splitlines()) if line["event"] not in {"status", "progress"}
    ] == []


def test_a_log_of_json_has_no_line_of_another_form(workspace: Workspace) -> None:
    """Progress, next steps and errors are objects as well, for a collector of logs; standard output stays as it is."""
    workspace.manifest("foxes", items=2)

    ran = workspace.call("run", "foxes.yaml", "--yes", "--max-credits", "2", "--log-format", "json")
    failed = workspace.call("run", "absent.yaml", "--log-format", "json")

    lines = [json.loads(line) for line in ran.err.splitlines()]
    (error,) = [json.loads(line) for line in failed.err.splitlines()]
    assert {line["event"] for line in lines} >= {"status"}
    assert all(line["level"] and line["timestamp"].endswith("Z") for line in lines)
    assert [line["message"] for line in lines if line["event"] == "status"][-1].startswith("Everything is saved.")
    assert ran.out.startswith("foxes: 1 of 2 items done")
    assert (error["event"], error["level"], failed.exit) == ("error", "error", 2)
    assert "absent.yaml" in error["message"]


def test_a_log_file_that_cannot_be_written_ends_the_command(workspace: Workspace) -> None:
    """Before anything is done."""
    workspace.manifest("foxes")
    (workspace.folder / "file").write_text("")

    result = workspace.call("run", "foxes.yaml", "--log-file", "file/run.log")

    assert result.exit == 2
    assert "--log-file: file/run.log cannot be written" in result.err
    assert not (workspace.folder / ".batchkiln").exists()
