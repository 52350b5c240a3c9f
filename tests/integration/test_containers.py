"""The images, where Docker or Podman has the base image and can run it: they are built, run and killed."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from dockerfile_parse import DockerfileParser

from support.one_container import ROOT, configuration, docker_run
from support.shared_queue import wait_until

FILES: Final = ROOT / "docs" / "containers"
TOKEN: Final = "0123456789abcdef" * 4
ITEMS: Final = 12
KILLS: Final = 3
START_SECONDS: Final = 120  # with other tests on the same processors
PAUSE_SECONDS: Final = 0.2  # each look is a process, which takes the time of those that it looks at

pytestmark = pytest.mark.long


class Engine:
    """Docker or Podman, whose commands are the same."""

    def __init__(self, program: str) -> None:
        self.program = program

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *words], capture_output=True, text=True, check=False)

    def said(self, *words: str) -> str:
        """Run a command that has to succeed."""
        done = self.call(*words)
        assert done.returncode == 0, f"{words}: {done.stderr[-3000:]}"
        return done.stdout

    def build(self, name: str) -> str:
        """Build the image of a container file; return its name."""
        image = f"batchkiln-test-{name}"
        self.said("build", "-q", "-f", str(FILES / f"{name}.Dockerfile"), "-t", image, str(ROOT))
        return image

    @contextmanager
    def container(self, *words: str) -> Iterator[str]:
        """Start a container, and remove it in the end."""
        container = self.said("run", "--detach", *words).strip()
        try:
            yield container
        finally:
            self.said("rm", "--force", container)

    def address(self, container: str, port: int) -> str:
        """Return where this machine reaches a port that the container publishes."""
        shown = self.said("port", container, f"{port}/tcp").split()[0]
        return f"http://127.0.0.1:{shown.rpartition(':')[2]}"


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return an engine that runs the base image, which no test fetches."""
    base = DockerfileParser(str(FILES / "batchkiln.Dockerfile")).baseimage
    for found in filter(None, map(shutil.which, ("docker", "podman"))):
        engine = Engine(found)
        if engine.call("image", "inspect", base).returncode == 0:
            tried = engine.call("run", "--rm", base, "python", "-c", "pass")
            if tried.returncode == 0:
                return engine
    pytest.skip(f"no container engine here runs the image {base}")


def test_image_serves(engine: Engine) -> None:
    """The local service answers at the port that the image names."""
    image = engine.build("serve")
    with engine.container("--publish", "127.0.0.1::8080", image, "--key", "test-key") as container:
        wait = "until [ -e /data/operator-port ]; do sleep 0.2; done"
        engine.said("exec", container, "timeout", str(START_SECONDS), "sh", "-c", wait)

        models = answered(f"{engine.address(container, 8080)}/api/v1/models", "test-key")

    assert models


def test_killed_container_of_the_guide_pays_for_nothing_twice(engine: Engine, tmp_path: Path) -> None:
    """It goes on after each kill, with the guide's options, and the service charged each item once (Laws 1 and 2)."""
    image = engine.build("batchkiln")
    data, words = laid_out(tmp_path, engine, image)
    with engine.container(*words) as container:

        def status() -> dict[str, Any]:
            done = engine.call("exec", container, "batchkiln", "status", "birds", "--json")
            return json.loads(done.stdout) if done.returncode == 0 else {"items": {"done": 0}, "finished": False}

        def logs() -> str:
            done = engine.call("logs", container)
            return done.stdout + done.stderr

        def has_done(least: int) -> bool:
            return bool(status()["items"]["done"] >= least)

        def is_served() -> bool:
            try:
                found = answered(f"{engine.address(container, 8642)}/api/v1/jobs", TOKEN, host="localhost:8642")
            except OSError:  # the program starts
                return False
            return [job["job"] for job in found["jobs"]] == ["birds"]

        for least in range(1, 2 * KILLS, 2):
            wait_until(partial(has_done, least), logs, seconds=START_SECONDS, pause_seconds=PAUSE_SECONDS)
            engine.said("kill", container)
            engine.said("start", container)
        wait_until(lambda: status()["finished"], logs, seconds=START_SECONDS, pause_seconds=PAUSE_SECONDS)
        wait_until(is_served, logs, seconds=START_SECONDS, pause_seconds=PAUSE_SECONDS)
        end = status()
        engine.said("stop", container)
    report = report_of(data / ".batchkiln" / "embedded" / "local")

    assert end["items"]["done"] == ITEMS == len(list((data / "out" / "birds").iterdir()))
    assert report["ok"], report["violations"]
    assert report["creates"]["new"] == ITEMS
    assert sum(account["charged_credits"] for account in report["accounts"]) == end["credits"]["charged"]


def laid_out(folder: Path, engine: Engine, image: str) -> tuple[Path, list[str]]:
    """Write the guide's files for the local service in place of a real one; return the data, and the words of `run`."""
    data, secrets = folder / "data", folder / "secrets"
    (data / "inbox").mkdir(parents=True)
    secrets.mkdir()
    (secrets / "person.token").write_text(TOKEN)
    config = {"http": yaml.safe_load(configuration())["http"], "profiles": {"local": {"time_scale": 20}}}
    (data / "batchkiln.yaml").write_text(yaml.safe_dump(config), "utf-8")
    item = {"matrix": {"bird": list("abcdefghijkl")}, "id": "{{ bird }}", "prompt": "bird {{ bird }}"}
    defaults = {"model": "epsilon-2", "mode": "text-to-image", "parameters": {"resolution": "512x512"}}
    manifest = {"version": 1, "job": "birds", "budget": {"credits": 100}, "defaults": defaults, "items": [item]}
    (data / "inbox" / "birds.yaml").write_text(yaml.safe_dump(manifest), "utf-8")

    own = {"$(id -u):$(id -g)": f"{os.getuid()}:{os.getgid()}", "127.0.0.1:8642:8642": "127.0.0.1::8642"}
    own |= {"batchkiln": image}
    words = [own.get(word, word).replace("$PWD", str(folder)) for word in docker_run()]
    place = words.index("--name")
    del words[place : place + 2]
    is_rootless_podman = os.getuid() != 0 and Path(engine.program).name == "podman"
    return data, [*(["--userns", "keep-id"] if is_rootless_podman else []), *words]


def report_of(state: Path) -> dict[str, Any]:
    """Return the report of the local service that a container ran within its process."""
    command = [sys.executable, "-m", "batchkiln", "serve", "report", "--state-dir", str(state)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def answered(url: str, token: str, host: str | None = None) -> dict[str, Any]:
    """Return what a server answers to a token."""
    headers = {"Authorization": f"Bearer {token}"} | ({} if host is None else {"Host": host})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as reply:
        found: dict[str, Any] = json.load(reply)
        return found
