"""Several worker processes on one PostgreSQL queue, against one local service, each from an address of its own."""

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchkiln.store.location import DatabaseUrl
from support import programs
from support.tcp_gate import Gate, free_port, gate

PATIENCE_SECONDS = 120.0

_SERVICE = """
state_dir: service
port: {port}
public_url: http://127.0.0.1:{files}
time_scale: {scale}
tiny_media: true
accounts: [{accounts}]
limits: {{requests_per_minute_per_ip: 1000{limits}}}  # all machines' downloads come from one address
"""

_CONFIG = """
queue: {url}
allow_lost_commits: {lossy}
shared_dir: .
default_profile: studio
profiles:
  studio:
    base_url: http://127.0.0.1:{door}/api/v1
    time_scale: {scale}
    accounts: [{accounts}]
    limits: {{requests_per_minute_per_ip: {limit}{limits}}}
"""

_MANIFEST = """
version: 1
job: {job}
accounts: [{accounts}]
output: {{dir: out}}
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}
items:
  - matrix: {{n: [{numbers}]}}
    id: "{job}-{{{{ n }}}}"
    prompt: "{job} {{{{ n }}}}, ink on paper"
"""


@dataclass
class SharedQueue:
    """A folder with the service, a configuration for each machine, and the results."""

    folder: Path
    url: DatabaseUrl
    accounts: Sequence[str]
    scale: float = 60.0
    credits: int = 100_000  # of each account
    limits: str = ""  # of each account, for the service and its clients, as ", NAME: VALUE"
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    gates: dict[str, Gate] = field(default_factory=dict)  # between each machine and the service
    files: Gate | None = None  # before the links to files
    stack: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def serving(self) -> Iterator["SharedQueue"]:
        """Run the service; at the end, end all processes."""
        accounts = ", ".join(f"{{name: {name}, credits: {self.credits}}}" for name in self.accounts)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with self.stack:
                self.files = self.stack.enter_context(gate(self.port, delivers_requests=True))
                text = _SERVICE.format(
                    port=self.port,
                    files=self.files.port,
                    scale=self.scale,
                    accounts=accounts,
                    limits=self.limits,
                )
                (self.folder / "service.yaml").write_text(text)
                self.start("serve", "--config", "service.yaml", log="serve.log")
                wait_until(self._is_serving, self.said)
                yield self
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                process.wait()

    def _is_serving(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return (self.folder / "service" / f"key-{self.accounts[-1]}").exists()
        return False

    def machine(
        self, name: str, accounts: Sequence[str] | None = None, *, limit: int = 120, url: DatabaseUrl | None = None
    ) -> str:
        """Write the configuration of a machine with the keys of some accounts; return the file's name.

        `url` is the machine's own way to the database.
        """
        url = url or self.url
        if name not in self.gates:
            source = f"127.0.0.{2 + len(self.gates)}"
            self.gates[name] = self.stack.enter_context(gate(self.port, source=source, delivers_requests=True))
        keys = {account: f"service/key-{account}" for account in self.accounts}
        if accounts is not None:
            keys |= {account: "no-key-here" for account in self.accounts if account not in accounts}
        entries = ", ".join(f"{{name: {account}, keys: [{{file: {file}}}]}}" for account, file in keys.items())
        text = _CONFIG.format(
            url=url.secret,
            lossy=str(url.may_lose_commits).lower(),
            door=self.gates[name].port,
            scale=self.scale,
            accounts=entries,
            limit=limit,
            limits=self.limits,
        )
        (self.folder / f"{name}.yaml").write_text(text)
        return f"{name}.yaml"

    def manifest(self, job: str, *, items: int, accounts: Sequence[str] | None = None) -> str:
        """Write a manifest of small pictures and return its name."""
        numbers = ", ".join(str(number) for number in range(1, items + 1))
        text = _MANIFEST.format(job=job, accounts=", ".join(accounts or self.accounts), numbers=numbers)
        (self.folder / f"{job}-manifest.yaml").write_text(text)
        return f"{job}-manifest.yaml"

    def start(self, *arguments: str, log: str = "run.log") -> subprocess.Popen[str]:
        """Start a command."""
        with (self.folder / log).open("a") as stream:
            process = self._begin(arguments, stream.fileno(), stream.fileno())
        self.processes.append(process)
        return process

    def work(self, name: str, *, config: str | None = None, log: str | None = None) -> subprocess.Popen[str]:
        """Start `work --forever` on a machine."""
        config = config or self.machine(name)
        return self.start("work", "--forever", "--egress", name, "--config", config, "-v", log=log or f"{name}.log")

    def call(self, *arguments: str, config: str) -> tuple[int, str, str]:
        """Run a command to its end; return its exit status, standard output and standard error."""
        with self._begin([*arguments, "--config", config], subprocess.PIPE, subprocess.PIPE) as process:
            try:
                out, said = process.communicate(timeout=PATIENCE_SECONDS)
            except BaseException:
                process.kill()
                raise
        return process.returncode, out, said

    def _begin(self, arguments: Sequence[str], stdout: int, stderr: int) -> subprocess.Popen[str]:
        """Start a command on the machine that its configuration belongs to, whose journals are its own."""
        machine = Path(arguments[arguments.index("--config") + 1]).stem
        env = programs.environment(XDG_STATE_HOME=str(self.folder / "state" / machine))
        return programs.start(
            arguments, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
        )

    def document(self, *arguments: str, config: str) -> Any:  # noqa: ANN401  JSON
        """Run a command with --json and return its document."""
        status, out, said = self.call(*arguments, "--json", config=config)
        assert status == 0, said
        return json.loads(out)

    def done(self, config: str) -> int:
        """Return how many items are done, of all jobs."""
        return sum(job["items"]["done"] for job in self.document("status", config=config)["jobs"])

    def said(self) -> str:
        """Return the end of what all processes wrote."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))


def wait_until(
    is_so: Callable[[], bool], said: Callable[[], str], seconds: float = PATIENCE_SECONDS, *, pause_seconds: float = 0.1
) -> None:
    """Wait for something that other processes do; fail with what they said. A look that is a process wants a pause."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, said()
        time.sleep(pause_seconds)
