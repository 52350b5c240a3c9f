"""A folder with a hurried local service, in which commands are run as a person would run them."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from support.programs import environment, start

TIMEOUT_SECONDS: Final = 120  # only what hangs takes so long
HURRIED: Final = "profiles:\n  local:\n    time_scale: 600\n"
UNHURRIED: Final = "profiles:\n  local:\n    time_scale: 10\n"
MANIFEST: Final = """\
version: 1
job: {job}
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {{resolution: 512x512, aspect_ratio: "1:1"}}
{more}
output: {{dir: out}}
items:
  - matrix: {{n: [{numbers}]}}
    id: "fox-{{{{ n }}}}"
    prompt: "fox {{{{ n }}}}"
"""


@dataclass(frozen=True)
class Result:
    """What a command came to."""

    exit: int
    out: str
    err: str

    @property
    def document(self) -> Any:  # noqa: ANN401  JSON
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Terminal:
    """What a person sees: the process's standard error is the other end of this."""

    descriptor: int
    _unread: str = ""

    def until(self, piece: str) -> str:
        """Read on until `piece` was shown, and return what came before it."""
        while piece not in self._unread:
            more = self._read()
            assert more, f"{piece!r} never came: {self._unread}"
            self._unread += more
        before, _, self._unread = self._unread.partition(piece)
        return before

    def rest(self) -> str:
        """Read until the process has closed its end."""
        while more := self._read():
            self._unread += more
        return self._unread

    def _read(self) -> str:
        assert select.select([self.descriptor], [], [], TIMEOUT_SECONDS)[0], f"nothing more came: {self._unread}"
        try:
            return os.read(self.descriptor, 65536).decode()
        except OSError:  # the way in which a terminal tells its end
            return ""


@dataclass(frozen=True)
class Workspace:
    """The folder, and the environment of its commands, which are forked from a process that has imported all."""

    folder: Path
    is_forked: bool = True
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    terminals: list[int] = field(default_factory=list)

    def starting_anew(self) -> "Workspace":
        """Give the same folder for commands with a start and an end of their own: a test that is about one of these."""
        return replace(self, is_forked=False)

    def end_all(self) -> None:
        """End what a failed test left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for descriptor in self.terminals:
            os.close(descriptor)

    def manifest(self, job: str = "foxes", *, items: int = 2, more: str = "") -> str:
        """Write a manifest of small pictures and return its name."""
        name = f"{job}.yaml"
        numbers = ", ".join(str(number) for number in range(1, items + 1))
        (self.folder / name).write_text(MANIFEST.format(job=job, numbers=numbers, more=more), encoding="utf-8")
        return name

    def configure(self, text: str) -> None:
        (self.folder / "batchkiln.yaml").write_text(text, encoding="utf-8")

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Begin a command in a process of its own."""
        return self._start(arguments, environment, subprocess.PIPE)

    def start_at_terminal(self, *arguments: str, **environment: str) -> tuple[subprocess.Popen[str], Terminal]:
        """Begin a command whose standard error is a terminal."""
        ours, theirs = pty.openpty()
        self.terminals.append(ours)
        try:
            return self._start(arguments, environment, theirs), Terminal(ours)
        finally:
            os.close(theirs)

    def _start(self, arguments: Sequence[str], more: dict[str, str], stderr: int) -> subprocess.Popen[str]:
        surroundings = environment(XDG_CONFIG_HOME=str(self.folder)) | more
        process = start(arguments, cwd=self.folder, env=surroundings, stderr=stderr, is_forked=self.is_forked)
        self.started.append(process)
        return process

    def call(self, *arguments: str, stdin: str = "", **environment: str) -> Result:
        """Run a command to its end."""
        return finished(self.start(*arguments, **environment), stdin)


def finished(process: subprocess.Popen[str], stdin: str = "") -> Result:
    """Wait for a process that was begun."""
    try:
        out, err = process.communicate(stdin, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Result(process.returncode, out, err or "")


def on_a_terminal(
    workspace: Workspace,
    *arguments: str,
    answer: str,
    question: str = "Continue?",
    meanwhile: Callable[[], object] = lambda: None,
) -> tuple[int, str]:
    """Run a command with a terminal as its standard streams, and answer what it asks; return exit and output.

    `meanwhile` happens between the question and the answer.
    """
    terminal, theirs = pty.openpty()
    surroundings = environment()
    process = start(arguments, cwd=workspace.folder, env=surroundings, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, is_answered = b"", False
    with process, os.fdopen(terminal, "r+b", buffering=0) as stream:
        while True:
            try:
                piece = stream.read(4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
            if not is_answered and question.encode() in shown:
                meanwhile()
                stream.write(answer.encode() + b"\n")
                is_answered = True
    return process.returncode, shown.decode()


def until_line(process: subprocess.Popen[str], piece: str) -> str:
    """Read a process's standard output up to a line that holds `piece`."""
    assert process.stdout is not None
    for line in process.stdout:
        if piece in line:
            return line
    raise AssertionError(f"{piece!r} never came: {process.stderr.read() if process.stderr else ''}")


def interrupt(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> None:
    process.send_signal(number)
