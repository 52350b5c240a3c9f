"""`dashboard`, and `--dashboard` of `run`: as a person starts them, and as they end."""

import hashlib
import json
import re
import signal
import socket
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from integration.cli.workspace import TIMEOUT_SECONDS, UNHURRIED, Workspace, finished, interrupt


def link_of(process: subprocess.Popen[str]) -> str:
    """Read standard error, which is no terminal, up to the address; return it with the token of the named file."""
    assert process.stderr is not None
    for line in process.stderr:
        assert "?token=" not in line
        if found := re.search(r"(http://127\.0\.0\.1:\d+) \(sign in with the token in (\S+)\)", line):
            return f"{found[1]}/?token={Path(found[2]).read_text('ascii').strip()}"
    raise AssertionError("no address was printed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def read(link: str, path: str) -> str:
    base, _, token = link.partition("/?token=")
    with urlopen(Request(base + path, headers={"Authorization": f"Bearer {token}"}), timeout=TIMEOUT_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_shows_the_queue_until_a_signal(workspace: Workspace, number: signal.Signals) -> None:
    """Without any process that drives; a server that was asked to stop has done its work."""
    workspace.call("enqueue", workspace.manifest())
    process = workspace.start("dashboard", "--no-open")

    page = read(link_of(process), "/")
    interrupt(process, number)
    result = finished(process)

    assert "foxes" in page
    assert "No process runs this queue" in page
    assert (result.exit, result.out) == (0, "")


def test_link_that_signs_in_is_for_a_terminal_alone(workspace: Workspace) -> None:
    """The output of a container or a service is kept in a log, which others may read."""
    workspace.call("enqueue", workspace.manifest())

    process, terminal = workspace.start_at_terminal("dashboard", "--no-open")
    shown = terminal.until("has access)")
    token = (workspace.folder / ".batchkiln" / "queue.db.dashboard").read_text().strip()
    interrupt(process)
    logged = workspace.start("dashboard", "--no-open")
    link_of(logged)
    interrupt(logged)

    assert finished(process).exit == 0
    assert token in "".join(shown.split())
    assert token not in finished(logged).err


def test_json_shows_where_it_is_and_not_the_token(workspace: Workspace) -> None:
    """Standard output may be kept in a log; the token's file is for its owner."""
    workspace.call("enqueue", workspace.manifest())
    process = workspace.start("dashboard", "--no-open", "--json")
    assert process.stdout is not None

    lines = "".join(iter(process.stdout.readline, "}\n")) + "}"
    interrupt(process)
    result = finished(process)

    document = json.loads(lines)
    token = (workspace.folder / ".batchkiln" / "queue.db.dashboard").read_text().strip()
    assert document["url"].startswith("http://127.0.0.1:")
    assert document["token_file"].endswith("queue.db.dashboard")
    assert token not in lines + result.out + result.err


@pytest.mark.long
def test_a_run_has_a_dashboard_that_knows_what_only_the_run_knows(workspace: Workspace) -> None:
    """How long replies take is told by the process that waits for them; and the run ends as ever."""
    workspace.configure(UNHURRIED)
    process = workspace.start("run", workspace.manifest(items=2), "--dashboard", "-q")
    link = link_of(process)
    assert process.stderr is not None
    told = process.stderr.readline()

    page, metrics = read(link, "/"), ""
    while (
        'batchkiln_requests_total{endpoint="images",status="202"}' not in metrics
    ):  # or the run ends, and a read fails
        metrics = read(link, "/metrics")
    result = finished(process)

    assert "runs this queue" in page
    assert 'batchkiln_request_duration_seconds_count{endpoint="images"}' in metrics
    assert result.exit == 0
    assert told == "It ends with this process; `batchkiln dashboard` serves the queue without one.\n"


@pytest.mark.long
def test_the_dashboard_of_a_run_on_a_terminal_stays_until_it_is_closed(workspace: Workspace) -> None:
    """An open page goes on by the same connection, the queue is free for others, Ctrl-C ends it."""
    workspace.configure(UNHURRIED)
    process, terminal = workspace.start_at_terminal("run", workspace.manifest(), "--dashboard", "--yes")
    base = re.findall(r"http://127\.0\.0\.1:\d+", terminal.until("has access)"))[-1]
    token = (workspace.folder / ".batchkiln" / "queue.db.dashboard").read_text().strip()
    request = Request(f"{base}/live", headers={"Authorization": f"Bearer {token}"})

    with urlopen(request, timeout=TIMEOUT_SECONDS) as stream:
        shown = terminal.until("until")  # a terminal may break the line after it
        other = workspace.call("work")
        workspace.call("enqueue", workspace.manifest("owls"))
        lines = iter(stream.readline, b"")
        assert any(b"owls" in line for line in lines)
    interrupt(process)

    assert f"dashboard stays at {base}" in shown
    assert other.exit == 0
    assert finished(process).exit == 0


def test_without_a_queue_a_page_says_what_to_do_and_then_shows_it(workspace: Workspace) -> None:
    """A mistyped path makes no empty queue and no token; the queue is shown at the same address once it is there."""
    process = workspace.start("dashboard", "--no-open", "--port", str(free_port()))
    assert process.stderr is not None
    told = process.stderr.readline()
    url = re.search(r"http://127\.0\.0\.1:\d+", told)
    assert url is not None
    page = read(f"{url[0]}/?token=none", "/")
    is_made = (workspace.folder / ".batchkiln").exists()

    workspace.call("enqueue", workspace.manifest())
    link = link_of(process)
    shown = read(link, "/")
    interrupt(process)

    assert "does not exist" in told
    assert "once=" not in told
    assert "<code>batchkiln enqueue manifest.yaml</code>" in page
    assert not is_made
    assert link.startswith(url[0])
    assert "foxes" in shown
    assert finished(process).exit == 0


def test_wait_for_a_queue_ends_by_a_signal(workspace: Workspace) -> None:
    """Nothing was made."""
    process = workspace.start("dashboard", "--no-open", "--port", str(free_port()))
    assert process.stderr is not None
    process.stderr.readline()

    interrupt(process)

    assert finished(process).exit == 0
    assert not (workspace.folder / ".batchkiln").exists()


def test_program_that_asks_for_the_address_is_told_that_no_queue_exists(workspace: Workspace) -> None:
    """It reads one document, and nobody looks at a page."""
    result = workspace.call("dashboard", "--no-open", "--json")

    assert result.exit == 2
    assert "the queue does not exist" in result.err


def test_a_port_that_is_taken_is_named(workspace: Workspace) -> None:
    """A port that was asked for is not silently another one."""
    workspace.call("enqueue", workspace.manifest())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = workspace.call("dashboard", "--no-open", "--port", str(port))

    assert result.exit == 2
    assert f"127.0.0.1:{port}" in result.err
    assert "--port" in result.err


@pytest.mark.long
def test_run_beside_a_dashboard_says_what_goes_on(workspace: Workspace) -> None:
    """`work` has no --port: the remedy is that of the configuration, and the run is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        workspace.configure(f"{UNHURRIED}\nhttp: {{port: {port}}}\n")
        result = workspace.call("run", workspace.manifest(), "--dashboard")

    assert result.exit == 0
    assert (
        f"The run continues without a dashboard of its own: the dashboard cannot be served at 127.0.0.1:{port}: another"
        in result.err
    )
    assert "change or remove http.port for a free one; nothing was served" in result.err
    assert "--port" not in result.err


HASH = "0" * 64
HTTP = f"""
http:
  tokens:
    team: {{sha256: {HASH}, scopes: [look]}}
"""


def test_server_for_other_machines_needs_a_token(workspace: Workspace) -> None:
    """Nothing is served, and the next step is named."""
    workspace.call("enqueue", workspace.manifest())

    result = workspace.call("dashboard", "--no-open", "--host", "0.0.0.0")

    assert result.exit == 2
    assert "other machines could reach this queue, and no token is configured; nothing was served" in result.err
    assert "batchkiln token NAME" in result.err


def test_server_for_other_machines_is_announced_without_its_link(workspace: Workspace) -> None:
    """The log of a container is read by others; it has a warning, and no token."""
    workspace.configure(UNHURRIED + HTTP)
    workspace.call("enqueue", workspace.manifest())
    process = workspace.start("dashboard", "--no-open", "--host", "0.0.0.0")
    assert process.stderr is not None

    lines = [process.stderr.readline() for _ in range(3)]
    interrupt(process)
    result = finished(process)

    token = (workspace.folder / ".batchkiln" / "queue.db.dashboard").read_text().strip()
    assert "Warning: other machines can reach this queue at http://0.0.0.0:" in lines[1]
    assert "with the tokens team" in lines[1]
    assert "unencrypted" in lines[2]
    assert token not in "".join(lines) + result.out + result.err
    assert result.exit == 0


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--host", "kiln", "an address to listen on is an IP address"),
        ("--public-url", "https://example.org/kiln", "has no user, path"),
        ("--trusted-proxy", "proxy", "neither an IP address nor a network"),
    ],
)
def test_wrong_address_is_named(workspace: Workspace, option: str, value: str, reason: str) -> None:
    workspace.call("enqueue", workspace.manifest())

    result = workspace.call("dashboard", "--no-open", option, value)

    assert result.exit == 2
    assert reason in result.err


def test_token_is_shown_once_with_its_hash(workspace: Workspace) -> None:
    """The token alone is on standard output; the configuration gets the hash."""
    result = workspace.call("token", "ci", "--scope", "look", "--scope", "enqueue")

    token = result.out.strip()
    assert f"ci: {{sha256: {hashlib.sha256(token.encode()).hexdigest()}, scopes: [look, enqueue]}}" in result.err
    assert token not in result.err
    assert len(token) > 40
    assert workspace.call("token", "ci", "--json").document["scopes"] == ["look"]
