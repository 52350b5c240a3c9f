"""The compose file, played without containers: its server, its commands and its health checks as processes."""

import contextlib
import json
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg
import pytest
import yaml

from support import postgres
from support.compose_files import FOLDER, merged
from support.shared_queue import wait_until
from support.tcp_gate import free_port

PATH: Final = FOLDER / "compose.yaml"
SERVICES: Final[dict[str, dict[str, Any]]] = merged("compose.yaml", "compose.override.yaml")["services"]
SECRETS: Final = {"KILN_TOKEN": "0123456789abcdef" * 3, "KILN_PASSWORD": "fedcba9876543210" * 3}
PAUSE_SECONDS: Final = 1.0  # each look is a process, which takes the time of those that it looks at
FIRST_JOB: Final = "first-job"  # what `init` writes
SOURCE: Final = str(PATH.parents[2] / "src")

pytestmark = [pytest.mark.postgres, pytest.mark.long]


class Composition:
    """The services of the file on this machine: containers' names are loopback ports, and volumes are folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("postgres", "service", "operator", "dashboard")}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("data", "service"):
            (folder / name).mkdir()
        for name, volume in (("batchkiln.yaml", "data"), ("service.yaml", "service")):
            text = PATH.with_name(name).read_text("utf-8")
            (folder / name).write_text(self.here(text, volume=volume), "utf-8")

    def here(self, text: str, *, volume: str) -> str:
        """Return a text of the file as it is for a process of this machine. `volume` is mounted at /data."""
        text = re.sub(r"\$\{(\w+):\?[^}]+\}", lambda found: SECRETS[found[1]], text)
        text = text.replace("service:8080", "127.0.0.1:8080").replace("0.0.0.0", "127.0.0.1")
        for port, name in (("8080", "service"), ("8081", "operator"), ("8642", "dashboard")):
            text = re.sub(rf"\b{port}\b", f"{{{name}}}", text)
        text = re.sub(r"\{(service|operator|dashboard)\}", lambda found: str(self.ports[found[1]]), text)
        text = text.replace("@postgres/", f"@127.0.0.1:{self.ports['postgres']}/")
        return text.replace("/etc/", f"{self.folder}/").replace("/data", f"{self.folder}/{volume}")

    def environment(self, name: str) -> dict[str, str]:
        """Return what a container's process sees."""
        found: Mapping[str, str] = SERVICES[name].get("environment", {})
        own = {key: self.here(value, volume=self.volume(name)) for key, value in found.items()}
        image = {"XDG_STATE_HOME": self.here("/data/state", volume=self.volume(name))}
        return {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "HOME": str(self.folder)} | image | own

    def volume(self, name: str) -> str:
        mounted, _ = SERVICES[name]["volumes"]
        return str(mounted).partition(":")[0]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a service's command."""
        command = [self.here(word, volume=self.volume(name)) for word in SERVICES[name]["command"]]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "batchkiln", *command],
                cwd=self.folder / self.volume(name),
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self.processes[name]

    def call(self, name: str, command: Sequence[str]) -> tuple[int, str]:
        """Run a command within a service's container; return its exit status and what it said."""
        program, *arguments = command
        words = [] if program == "python" else ["-m", program]
        done = subprocess.run(
            [sys.executable, *words, *arguments],
            cwd=self.folder / self.volume(name),
            env=self.environment(name),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def is_healthy(self, name: str) -> bool:
        """Run a service's health check."""
        kind, *command = SERVICES[name]["healthcheck"]["test"]
        words = shlex.split(command[0]) if kind == "CMD-SHELL" else command
        return self.call(name, [self.here(word, volume=self.volume(name)) for word in words])[0] == 0

    @contextlib.contextmanager
    def postgres(self, place: Path) -> Iterator[None]:
        """Run the server in a folder as the image does: with a role that has a password, and its database."""
        service = SERVICES["postgres"]
        names = {key: self.here(value, volume="postgres") for key, value in service["environment"].items()}
        place.chmod(0o755)
        (place / "password").write_text(names["POSTGRES_PASSWORD"])
        prefix: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            for path in (place, place / "password"):
                os.chown(path, user.pw_uid, user.pw_gid)
            prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        programs = postgres.binaries()
        assert programs is not None
        role = ["-U", names["POSTGRES_USER"], f"--pwfile={place / 'password'}", "-A", "scram-sha-256", "-E", "UTF8"]
        initdb = [*prefix, str(programs / "initdb"), "-D", str(place / "db"), *role, "--locale=C"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/")
        program, *settings = service["command"]
        where = ["-D", str(place / "db"), "-k", str(place), "-h", "127.0.0.1", "-p", str(self.ports["postgres"])]
        command = [*prefix, str(programs / program), *where, *settings]
        with (self.folder / "postgres.log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        try:
            wait_until(lambda: self._is_ready(programs), self.said, seconds=60)
            address = f"host=127.0.0.1 port={self.ports['postgres']} user={names['POSTGRES_USER']} dbname=postgres"
            with psycopg.connect(address, password=names["POSTGRES_PASSWORD"], autocommit=True) as admin:
                admin.execute(f'CREATE DATABASE "{names["POSTGRES_DB"]}"')
            yield
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()

    def _is_ready(self, programs: Path) -> bool:
        kind, command = SERVICES["postgres"]["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PGHOST": "127.0.0.1"}
        environment["PGPORT"] = str(self.ports["postgres"])
        done = subprocess.run(["sh", "-c", command], env=environment, stdout=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def said(self) -> str:
        """Return the end of what all services wrote."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def composition(tmp_path: Path) -> Iterator[Composition]:
    """A healthy server, and nothing else."""
    postgres.require()
    made = Composition(tmp_path)
    with TemporaryDirectory() as name, made.postgres(Path(name)):  # the server is another user, whom tmp_path shuts out
        try:
            yield made
        finally:
            for process in made.processes.values():
                process.kill()
                process.wait()


def test_services_work_as_the_guide_says(composition: Composition) -> None:
    """`migrate` ends, the workers become healthy, make the sample's files, and end in order."""
    assert composition.start("migrate").wait(60) == 0, composition.said()
    for name in ("service", "worker-1", "worker-2", "dashboard"):
        composition.start(name)
    for name in ("service", "worker-1", "worker-2", "dashboard"):
        is_healthy = partial(composition.is_healthy, name)
        wait_until(is_healthy, composition.said, seconds=60, pause_seconds=PAUSE_SECONDS)

    steps = [composition.call("worker-1", ["batchkiln", *step]) for step in (["init"], ["enqueue", "manifest.yaml"])]
    wait_until(lambda: _is_done(composition), composition.said, pause_seconds=PAUSE_SECONDS)
    workers = composition.call("worker-2", ["batchkiln", "workers"])
    for name in ("worker-1", "worker-2"):
        composition.processes[name].send_signal(signal.SIGTERM)
    ends = [composition.processes[name].wait(120) for name in ("worker-1", "worker-2")]

    assert [status for status, _ in steps] == [0, 0], steps
    assert workers[0] == 0
    assert "worker-1/" in workers[1]
    assert "worker-2/" in workers[1]
    assert ends == [143, 143]
    assert composition.processes["dashboard"].poll() is None, composition.said()
    assert jobs_over_http(composition) == [FIRST_JOB]
    (job,) = yaml.safe_load(composition.call("worker-1", ["batchkiln", "status", "--json"])[1])["jobs"]
    assert job["items"]["done"] == job["items"]["total"], composition.said()
    lines = composition.call("worker-2", ["batchkiln", "items", job["job"], "--json"])[1].splitlines()
    paths = [Path(output["path"]) for line in lines for output in json.loads(line)["outputs"]]
    assert len(paths) == job["items"]["total"]
    assert all(path.is_relative_to(composition.folder / "data") and path.is_file() for path in paths), paths


def jobs_over_http(composition: Composition) -> list[str]:
    """Return the jobs that the dashboard's server names to the file's token."""
    token = composition.environment("dashboard")["KILN_TOKEN"]
    url = f"http://127.0.0.1:{composition.ports['dashboard']}/api/v1/jobs"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return [each["job"] for each in json.load(reply)["jobs"]]


def _is_done(composition: Composition) -> bool:
    status, said = composition.call("worker-1", ["batchkiln", "status", "--json"])
    assert status == 0, said
    return all(job["finished"] for job in yaml.safe_load(said)["jobs"])
