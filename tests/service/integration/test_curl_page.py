"""`docs/service-with-curl.md`: its commands, run as they stand, make a clip on disk out of an uploaded image."""

import json
import os
import re
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import av
import pytest

from support.manual_commands import follow, put_program

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = (ROOT / "docs" / "service-with-curl.md").read_text("utf-8")
COMMANDS: Final = "\n".join(re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
# All that the page may use, beside what bash has built in.
TOOLS: Final = ("cat", "cmp", "curl", "grep", "sed", "sleep", "tee", "tr", "wc")
SPEED: Final = {"SPEED": "30", "PAUSE": "0.4"}  # twelve seconds of service time between two polls
TIMEOUT_SECONDS: Final = 120  # only a page that hangs takes so long

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")


@dataclass(frozen=True)
class Walk:
    """What following the page came to: its folder, and all that was shown."""

    folder: Path
    exit: int
    shown: str

    def text(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")

    def json(self, name: str) -> Any:  # noqa: ANN401  JSON
        return json.loads(self.text(name))


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """Follow the page once, in a folder that has the image, with no other tools than it says."""
    folder, tools = tmp_path_factory.mktemp("page"), tmp_path_factory.mktemp("tools")
    shutil.copy(ROOT / "jobs" / "images" / "owl.png", folder)
    for name in TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    put_program(tools)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BATCHKILN_", "CURL_"))}
    environment = kept | SPEED | {"PATH": str(tools), "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder)}
    bash = [str(shutil.which("bash")), "-c", f"set -euo pipefail\n{COMMANDS}"]
    status, shown = follow(bash, cwd=folder, env=environment, timeout_seconds=TIMEOUT_SECONDS)
    return Walk(folder, status, shown)


def test_every_command_succeeds(walk: Walk) -> None:
    """Nobody who follows the page meets an error."""
    assert walk.exit == 0, walk.shown


def test_clip_is_what_was_asked_for(walk: Walk) -> None:
    """H.264 of 480p in 16:9, two seconds long. Service sections 1 and 2.2."""
    with av.open(walk.folder / "clip.mp4") as clip:
        stream = clip.streams.video[0]
        frames = sum(1 for _ in clip.decode(stream))
        seconds = frames / float(stream.average_rate or 1)

    assert (stream.codec_context.name, stream.width, stream.height) == ("h264", 854, 480)
    assert seconds == pytest.approx(2, abs=0.1)


def test_replay_is_the_same_generation_and_costs_nothing(walk: Walk) -> None:
    """Accepted twice, charged once. Service rule 4.2."""
    before, after = (walk.json(f"balance-{when}.json")["balance"] for when in ("before", "after"))

    assert walk.json("replayed.json")["id"] == walk.json("created.json")["id"]
    assert before - after == walk.json("quote.json")["cost_credits"]
    assert walk.json("report.json")["creates"] == {"accepted": 2, "new": 1, "replays": 1}


def test_other_body_is_refused(walk: Walk) -> None:
    """The page shows the real refusal. Service rule 4.3."""
    assert walk.text("conflict.status").strip() == "409"
    assert walk.json("conflict.json")["error"]["code"] == "idempotency_conflict"


def test_polls_keep_their_distance(walk: Walk) -> None:
    """The loop of the page is one that the service never has to refuse. Service rule 4.4."""
    report = walk.json("report.json")

    assert report["poll_gaps"]["too_short"] == 0
    assert [refusal["code"] for refusal in report["refused"]] == ["idempotency_conflict"]


def test_secrets_stay_where_the_page_puts_them(walk: Walk) -> None:
    """Neither the key nor a signature is in the service's log, or on the screen."""
    key = walk.text("auth").split()[-1]
    signature = walk.json("generation.json")["outputs"][0]["url"].rpartition("=")[2]
    open_texts = walk.shown + walk.text("access.log")

    assert walk.folder.joinpath("auth").stat().st_mode & 0o077 == 0
    assert key not in open_texts
    assert signature not in open_texts


def test_service_is_gone_at_the_end(walk: Walk) -> None:
    """The page leaves no process behind."""
    address = urlsplit(walk.json("serve.json")["base_url"])
    assert address.port is not None

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", address.port), timeout=5)
