"""`dashboard`, and `--dashboard` of `run`: as a person starts them, and as they end."""

import json
import re
import signal
import socket
import subprocess
from urllib.request import Request, urlopen

import pytest

from integration.cli.workspace import TIMEOUT_SECONDS, UNHURRIED, Workspace, finished, interrupt


def link_of(process: subprocess.Popen[str]) -> str:
    """Read standard error up to the link."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line):
            return found[0]
    raise AssertionError("no link was printed")


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


def test_a_run_has_a_dashboard_that_knows_what_only_the_run_knows(workspace: Workspace) -> None:
    """How long replies take is told by the process that waits for them; and the run ends as ever."""
    workspace.configure(UNHURRIED)
    process = workspace.start("run", workspace.manifest(items=2), "--dashboard", "-q")
    link = link_of(process)

    page, metrics = read(link, "/"), ""
    while (
        'batchkiln_requests_total{endpoint="images",status="202"}' not in metrics
    ):  # or the run ends, and a read fails
        metrics = read(link, "/metrics")
    result = finished(process)

    assert "runs this queue" in page
    assert 'batchkiln_request_duration_seconds_count{endpoint="images"}' in metrics
    assert result.exit == 0


def test_without_a_queue_there_is_nothing_to_show(workspace: Workspace) -> None:
    """A mistyped path makes no empty queue and no token."""
    result = workspace.call("dashboard", "--no-open")

    assert result.exit == 2
    assert "the queue does not exist" in result.err
    assert not (workspace.folder / ".batchkiln").exists()


def test_a_port_that_is_taken_is_named(workspace: Workspace) -> None:
    """A port that was asked for is not silently another one."""
    workspace.call("enqueue", workspace.manifest())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = workspace.call("dashboard", "--no-open", "--port", str(port))

    assert result.exit == 2
    assert f"127.0.0.1:{port}" in result.err
    assert "--port" in result.err
