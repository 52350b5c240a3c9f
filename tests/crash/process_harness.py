"""A proving ground: the service and batchkiln as processes of their own, killed at random moments."""

import contextlib
import csv
import hashlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
from PIL import Image

from crash.service_books import Books
from crash.small_disk import SmallDisk
from support.programs import environment, start
from support.tcp_gate import free_port

PATIENCE_SECONDS = 600.0
JOB = "proof"

SERVICE_CONFIG = """
state_dir: service
port: {port}
public_url: http://127.0.0.1:{door}
time_scale: {scale}
accounts: [{{name: main, credits: 100000}}]
"""

CONFIG = """
default_profile: proof
profiles:
  proof:
    base_url: http://127.0.0.1:{door}/api/v1
    accounts: [{{name: main, keys: [{{file: service/key-main}}]}}]
    time_scale: {scale}
"""

MANIFEST = """
version: 1
job: {job}
output: {{dir: {out}}}
items:
  - from: {table}
    prompt: "{{{{ Prompt }}}}"
    id: "image-{{{{ row }}}}"
    model: epsilon-2
    mode: text-to-image
    parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}
"""

CLIPS = """
  - from: clips.txt
    id: "clip-{{ row }}"
    model: alpha-2.5-lite
    mode: text-to-video
    parameters: {resolution: 480p, duration_seconds: 5, aspect_ratio: "16:9"}
"""


@dataclass
class Ground:
    """One folder with a service, a queue, and the results. Every process it starts, it ends."""

    folder: Path
    image_prompts: list[str]
    clip_prompts: list[str]
    scale: float = 60.0
    port: int = field(default_factory=free_port)
    door: int | None = None  # the port where clients reach the service; None: its own
    disk: SmallDisk | None = None  # whose mounts batchkiln sees; None: those of everybody
    queue: str = ".batchkiln/queue.db"
    out: str = "out"
    is_forked: bool = False  # true where neither a start nor a signal is what a test is about

    def prepare(self) -> None:
        """Write the configurations and the manifest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        where = {"port": self.port, "door": self.door or self.port, "scale": self.scale}
        (self.folder / "service.yaml").write_text(SERVICE_CONFIG.format(**where))
        (self.folder / "batchkiln.yaml").write_text(CONFIG.format(**where))
        self.write_manifest("manifest.yaml", job=JOB, image_prompts=self.image_prompts)
        if self.clip_prompts:
            (self.folder / "clips.txt").write_text("\n".join(self.clip_prompts) + "\n")
            with (self.folder / "manifest.yaml").open("a") as stream:
                stream.write(CLIPS)

    def write_manifest(self, name: str, *, job: str, image_prompts: list[str]) -> None:
        """Write a manifest of images, and the table of its prompts beside it."""
        table = "images.tsv" if job == JOB else f"{job}.tsv"
        (self.folder / name).write_text(MANIFEST.format(job=job, out=self.out, table=table))
        with (self.folder / table).open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t")
            writer.writerow(["Prompt"])
            writer.writerows([prompt] for prompt in image_prompts)

    @property
    def prompts(self) -> list[str]:
        """All prompts of the manifest."""
        return [*self.image_prompts, *self.clip_prompts]

    def serve(self) -> subprocess.Popen[str]:
        """Start the service and wait until it listens."""
        process = self._begin(["serve", "--config", "service.yaml"], log="serve.log")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return process
            if process.poll() is not None:
                raise AssertionError((self.folder / "serve.log").read_text())
            time.sleep(0.02)
        raise AssertionError("the service did not start")

    def run(self) -> subprocess.Popen[str]:
        """Start batchkiln on the manifest."""
        return self.start("run", "manifest.yaml")

    def start(self, *arguments: str, log: str = "run.log") -> subprocess.Popen[str]:
        """Start a command of batchkiln on the queue."""
        entrance = self.disk.entrance(self.folder) if self.disk else []
        return self._begin([*arguments, "--queue", self.queue, "-q"], log=log, entrance=entrance)

    def _begin(self, arguments: list[str], *, log: str, entrance: Sequence[str] = ()) -> subprocess.Popen[str]:
        with (self.folder / log).open("ab") as stream:
            given: dict[str, Any] = {"cwd": self.folder, "env": environment(), "stdin": subprocess.DEVNULL}
            given |= {"stdout": stream.fileno(), "stderr": stream.fileno()}
            if not entrance:
                return start(arguments, is_forked=self.is_forked, **given)
            return subprocess.Popen([*entrance, sys.executable, "-m", "batchkiln", *arguments], text=True, **given)

    def log(self, name: str = "run.log") -> str:
        """Return what commands have written."""
        return (self.folder / name).read_text()

    def status(self) -> dict[str, object]:
        """Ask batchkiln how far it is."""
        entrance = self.disk.entrance(self.folder) if self.disk else []
        command = [*entrance, sys.executable, "-m", "batchkiln", "status", JOB, "--json", "--queue", self.queue]
        output = subprocess.run(command, cwd=self.folder, env=environment(), capture_output=True, check=True).stdout
        status: dict[str, object] = json.loads(output)
        return status

    def violations(self) -> list[str]:
        """Join the service's books, the queue and the disk, and name whatever does not fit."""
        found = Books.read(self.folder / "service").violations(self.prompts)
        files = self.files()
        if len(files) != len(self.prompts):
            found.append(f"{len(files)} files for {len(self.prompts)} prompts")
        if Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files) != self._made():
            found.append("the files are not those that the service has made")
        for file in files:
            try:
                open_media(file)
            except Exception as error:  # noqa: BLE001  whatever keeps a file from opening is the finding
                found.append(f"{file} does not open: {error}")
        return found

    def _made(self) -> Counter[str]:
        """Count the files that the service has made, by their hashes."""
        with contextlib.closing(sqlite3.connect(self.folder / "service" / "service.db")) as connection:
            return Counter(sha256 for (sha256,) in connection.execute("SELECT sha256 FROM outputs"))

    def files(self) -> list[Path]:
        """Return whatever stands in the folder of the outputs, temporary files as well."""
        folder = self.seen(self.out)
        return [path for path in sorted(folder.rglob("*")) if path.is_file()]

    def seen(self, name: str) -> Path:
        """Return where this process finds a file that batchkiln finds at `name`."""
        return self.disk.seen(self.folder / name) if self.disk else self.folder / name


def open_media(path: Path) -> None:
    """Decode an image whole, or the first frame of a clip."""
    if path.suffix == ".mp4":
        with av.open(str(path)) as container:
            next(container.decode(video=0))
    else:
        with Image.open(path) as image:
            image.load()


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, and collect."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def run_with_kills(ground: Ground, *, kills: int, target: str, seed: int, expected_seconds: float) -> int:
    """Run to the end, killing `target` ("run" or "serve") at random moments; return how many kills there were.

    The moments are spread over three quarters of `expected_seconds`, what a run without kills takes.
    """
    draw = random.Random(seed)
    ground.prepare()
    service, run = ground.serve(), ground.run()
    deadline = time.monotonic() + PATIENCE_SECONDS
    done = 0
    try:
        while time.monotonic() < deadline:
            pause = draw.uniform(0.2, 1.8) * 0.75 * expected_seconds / kills if done < kills else PATIENCE_SECONDS
            code = _wait(run, pause)
            if code is not None:
                assert code == 0, (ground.folder / "run.log").read_text()
                return done
            done += 1
            if target == "run":
                kill(run)
                run = ground.run()
            else:
                kill(service)
                time.sleep(draw.uniform(0.0, 0.5))
                service = ground.serve()
        raise AssertionError("the run did not end in time")
    finally:
        kill(run)
        kill(service)


def _wait(process: subprocess.Popen[str], seconds: float) -> int | None:
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
