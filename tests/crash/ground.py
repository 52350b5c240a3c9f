"""A proving ground: the service and batchkiln as processes of their own, killed at random moments."""

import contextlib
import csv
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import av
from PIL import Image

from crash.ledger import Books

PATIENCE_SECONDS = 600.0
JOB = "proof"

SERVICE_CONFIG = """
state_dir: service
port: {port}
time_scale: {scale}
accounts: [{{name: main, credits: 100000}}]
"""

CONFIG = """
default_profile: proof
profiles:
  proof:
    base_url: http://127.0.0.1:{port}/api/v1
    accounts: [{{name: main, keys: [{{file: service/key-main}}]}}]
    time_scale: {scale}
"""

MANIFEST = """
version: 1
job: {job}
items:
  - from: images.tsv
    prompt: "{{{{ Prompt }}}}"
    id: "image-{{{{ row }}}}"
    model: epsilon-2
    mode: text-to-image
    parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}
  - from: clips.txt
    id: "clip-{{{{ row }}}}"
    model: alpha-2.5-lite
    mode: text-to-video
    parameters: {{resolution: 480p, duration_seconds: 5, aspect_ratio: "16:9"}}
"""


@dataclass
class Ground:
    """One folder with a service, a queue, and the results. Every process it starts, it ends."""

    folder: Path
    image_prompts: list[str]
    clip_prompts: list[str]
    scale: float = 60.0
    port: int = field(default_factory=lambda: free_port())  # noqa: PLW0108  looked up late

    def prepare(self) -> None:
        """Write the configurations and the manifest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "service.yaml").write_text(SERVICE_CONFIG.format(port=self.port, scale=self.scale))
        (self.folder / "batchkiln.yaml").write_text(CONFIG.format(port=self.port, scale=self.scale))
        (self.folder / "manifest.yaml").write_text(MANIFEST.format(job=JOB))
        with (self.folder / "images.tsv").open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t")
            writer.writerow(["Prompt"])
            writer.writerows([prompt] for prompt in self.image_prompts)
        (self.folder / "clips.txt").write_text("\n".join(self.clip_prompts) + "\n")

    @property
    def prompts(self) -> list[str]:
        """All prompts of the manifest."""
        return [*self.image_prompts, *self.clip_prompts]

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the service and wait until it listens."""
        process = self._start(["serve", "--config", "service.yaml"], log="serve.log")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return process
            if process.poll() is not None:
                raise AssertionError((self.folder / "serve.log").read_text())
            time.sleep(0.02)
        raise AssertionError("the service did not start")

    def run(self) -> subprocess.Popen[bytes]:
        """Start batchkiln on the manifest."""
        return self._start(["run", "manifest.yaml", "-q"], log="run.log")

    def _start(self, arguments: list[str], *, log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as stream:
            return subprocess.Popen(
                [sys.executable, "-m", "batchkiln", *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    def status(self) -> dict[str, object]:
        """Ask batchkiln how far it is."""
        command = [sys.executable, "-m", "batchkiln", "status", JOB, "--json"]
        output = subprocess.run(command, cwd=self.folder, capture_output=True, check=True).stdout
        status: dict[str, object] = json.loads(output)
        return status

    def violations(self) -> list[str]:
        """Join the service's books, the queue and the disk, and name whatever does not fit."""
        found = Books.read(self.folder / "service").violations(self.prompts)
        files = list(self._files())
        if len(files) != len(self.prompts):
            found.append(f"{len(files)} files for {len(self.prompts)} prompts")
        for file in files:
            try:
                open_media(file)
            except Exception as error:  # noqa: BLE001  whatever keeps a file from opening is the finding
                found.append(f"{file} does not open: {error}")
        return found

    def _files(self) -> list[Path]:
        return [path for path in sorted((self.folder / "out").rglob("*")) if path.is_file()]


def open_media(path: Path) -> None:
    """Decode an image whole, or the first frame of a clip."""
    if path.suffix == ".mp4":
        with av.open(str(path)) as container:
            next(container.decode(video=0))
    else:
        with Image.open(path) as image:
            image.load()


def kill(process: subprocess.Popen[bytes]) -> None:
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


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
