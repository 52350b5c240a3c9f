"""Commands of the program as processes that begin at once: copies of one that has imported everything already.

`ForkedProgram` is a `subprocess.Popen` in all that tests see, its pid and exit status included. `program_server.py`
beside this forks; the process is handed to the one that asked, by the system's rules for orphans.
"""

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import batchkiln

SOURCE: Final = str(Path(batchkiln.__file__).parents[1])
_SERVER: Final = Path(__file__).with_name("program_server.py")
_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "NO_COLOR", "FORCE_COLOR", "OTEL_", "HOME")
_PR_SET_CHILD_SUBREAPER: Final = 36


def environment(**more: str) -> dict[str, str]:
    """Give what a command finds around it: this process's environment without settings of the program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BATCHKILN_")}
    return kept | {"PYTHONPATH": SOURCE} | more


def start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int = subprocess.PIPE,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    is_forked: bool = True,
    module: str = "batchkiln",
) -> subprocess.Popen[str]:
    """Begin `python -m batchkiln` with arguments; with `is_forked` false, as a process with a start of its own.

    A variable that is read while Python or a library starts is none that a copy could still follow, so it has a start
    of its own as well.
    """
    is_forked = is_forked and sys.platform == "linux" and _server().is_like(env)
    kind = ForkedProgram if is_forked else subprocess.Popen
    command = [sys.executable, "-m", module, *arguments]
    return kind(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, text=True)


class ForkedProgram(subprocess.Popen[str]):
    """`python -m MODULE …`, forked from a process that has imported it. Takes what `start` gives, and no more."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:  # noqa: ANN401  the base class's own call
        """Take the place of fork and exec, and leave what these leave behind."""
        cwd, env = rest[4:6]
        pipes: tuple[int, ...] = rest[9:15]
        theirs = [own if given == -1 else given for own, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        base: Any = self
        base.pid = _server().fork({"arguments": list(args)[2:], "cwd": str(cwd), "env": dict(env)}, theirs)
        base._child_created = True
        base._close_pipe_fds(*pipes)


class _Server:
    """The process that forks. It ends with its end of the socket, so also when this process is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number, env = theirs.fileno(), environment()
            self._read_at_start = _read_at_start(env)
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, str(_SERVER), str(number)],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[number],
            )

    def is_like(self, env: Mapping[str, str]) -> bool:
        """Tell whether what is read once, at the start, is the same there."""
        return _read_at_start(env) == self._read_at_start

    def fork(self, request: Mapping[str, object], descriptors: list[int]) -> int:
        """Have a process with these as its standard streams, and return its pid: it is a child of this process."""
        with self._lock:
            _adopt_orphans(wanted=True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                pid = int(self._socket.recv(32) or 0)
            finally:
                _adopt_orphans(wanted=False)
        assert pid, "the server of programs has ended"
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises where it is no child of ours
        return pid

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.end)
    return server


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


def _adopt_orphans(*, wanted: bool) -> None:
    """Become the parent of what descendants leave behind, or no longer."""
    failed: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    assert not failed
