"""A service that succeeds without what was asked for, met by the whole program over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from integration.cli.workspace import Workspace

CONFIG = """\
profiles:
  strange:
    base_url: http://127.0.0.1:{port}/api/v1
    time_scale: 600
    accounts: [{{name: main, keys: [{{env: STRANGE_KEY}}]}}]
"""


class Strange(BaseHTTPRequestHandler):
    """Answers each request with 200 and words that nobody asked for."""

    protocol_version = "HTTP/1.1"
    asked: list[str]

    def do_GET(self) -> None:
        self._answer({"openapi": "3.1.0", "paths": {}} if self.path.endswith("openapi.json") else {"note": "hello"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append(self.path)
        self._answer({"note": "thank you"})

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def asked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give the paths that were posted to a strange service, which the workspace is configured for."""
    paths: list[str] = []
    handler = type("Handler", (Strange,), {"asked": paths})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("STRANGE_KEY", "a-key-of-the-strange-service")
    (workspace.folder / "batchkiln.yaml").write_text(CONFIG.format(port=server.server_port), "utf-8")
    yield paths
    server.shutdown()
    thread.join()
    server.server_close()


def test_strange_service_costs_two_quotes_and_a_clear_sentence(workspace: Workspace, asked: list[str]) -> None:
    """Law 10: the run ends with 4 and says what came; later runs ask nothing, until a person says so."""
    manifest = workspace.manifest(items=3, more="profile: strange")

    first = workspace.call("run", manifest)
    again = workspace.call("work")

    assert first.exit == again.exit == 4
    assert len(asked) == 2
    for said in (first.err, again.err, workspace.call("status").out):
        assert "Not understood on account strange/main" in said
        assert "shape {note: text}" in said
        assert "usable answer" not in said
    assert workspace.call("ask-again").exit == 0
    assert workspace.call("work").exit == 4
    assert len(asked) == 4
