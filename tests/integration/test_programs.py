"""`support/programs.py`: a forked command finds what `python -m` would give it, and ends as that would."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from support.programs import ForkedProgram, environment, start

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every command has a start of its own")

TIMEOUT_SECONDS: Final = 60
FACTS: Final = """\
import gc, json, locale, logging, os, resource, signal, sys, threading
def facts_of(stream, original):
    raw = getattr(stream.buffer, "raw", stream.buffer)
    return [
        stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through,
        stream.seekable(), stream.isatty(), stream.fileno(), type(stream.buffer).__name__, raw.name, raw.closefd,
        stream is original,
    ]
print(json.dumps({
    "arguments": [sys.argv, sys.orig_argv, sys.flags, sys.warnoptions, sys.executable, sys.path],
    "module": [__name__, __file__, __package__, __spec__.name, sys.modules["__main__"].__dict__ is globals()],
    "place": [os.getcwd(), dict(os.environ), os.umask(0o22), os.nice(0), sorted(os.listdir("/proc/self/fd"))],
    "family": [os.getppid(), os.getpgrp(), os.getsid(0)],
    "signals": [str(signal.getsignal(number)).partition(" at ")[0] for number in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "limits": [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
    "interpreter": [gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit(), locale.setlocale(locale.LC_ALL)],
    "hooks": [sys.excepthook is sys.__excepthook__, threading.active_count(), str(logging.root.handlers)],
    "streams": [
        facts_of(sys.stdin, sys.__stdin__), facts_of(sys.stdout, sys.__stdout__), facts_of(sys.stderr, sys.__stderr__),
    ],
    "input": sys.stdin.read(),
}))
"""
ENDS: Final = {
    "nothing": "",
    "a status": "import sys; sys.exit(3)",
    "a large status": "import sys; sys.exit(300)",
    "no status": "import sys; print('half a line', end=''); sys.exit()",
    "a message": "import sys; sys.exit('told')",
    "an error": "print('before'); 1 / 0",
    "an interrupt": "import signal; signal.raise_signal(signal.SIGINT)",
    "a signal": "import os; os.kill(os.getpid(), 15)",
    "a kill": "import os; os.kill(os.getpid(), 9)",
    "a thread and a last word": (
        "import atexit, sys, threading\n"
        "atexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('a thread'))).start()\n"
        "sys.exit(4)"
    ),
    "a reader who is gone": "import sys; sys.stdin.read(); print('for nobody'); sys.exit(5)",
}


def ended(process: subprocess.Popen[str], text: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(text, timeout=TIMEOUT_SECONDS)
    return process.returncode, out, err or ""


@pytest.mark.parametrize("at_terminal", [False, True], ids=["pipes", "a terminal"])
def test_everything_is_found_as_after_a_start(tmp_path: Path, *, at_terminal: bool) -> None:
    (tmp_path / "facts.py").write_text(FACTS, "utf-8")

    def facts(*, is_forked: bool) -> Any:  # noqa: ANN401  JSON
        ours, theirs = pty.openpty() if at_terminal else (-1, subprocess.PIPE)
        process = start(
            ["one", "two words", "drei ä"],
            cwd=tmp_path,
            env=environment(COLUMNS="77", UMLAUT="ä"),
            stderr=theirs,
            is_forked=is_forked,
            module="facts",
        )
        status, out, err = ended(process, "read ö\n")
        if at_terminal:
            os.close(ours)
            os.close(theirs)
        assert (type(process), status, err) == (ForkedProgram if is_forked else subprocess.Popen, 0, "")
        return json.loads(out)

    assert facts(is_forked=True) == facts(is_forked=False)


@pytest.mark.parametrize("how", ENDS)
def test_every_end_is_seen(tmp_path: Path, how: str) -> None:
    """By status and output; a traceback may show from where the module was run."""
    (tmp_path / "end.py").write_text(ENDS[how], "utf-8")

    def end(*, is_forked: bool) -> tuple[int, str, list[str]]:
        process = start([], cwd=tmp_path, env=environment(), is_forked=is_forked, module="end")
        if how == "a reader who is gone":
            assert process.stdout is not None
            process.stdout.close()
            process.stdout = None
        status, out, err = ended(process)
        return status, out or "", err.splitlines()[-1:]

    assert end(is_forked=True) == end(is_forked=False)


def test_a_signal_that_comes_at_once_is_kept(tmp_path: Path) -> None:
    """Until the copy is what a new process would be; so it is never lost in what the copy was made from."""
    (tmp_path / "patient.py").write_text("import signal; signal.pause()", "utf-8")

    numbers = [signal.SIGTERM, signal.SIGKILL]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in what a shell starts in the background
        numbers.append(signal.SIGINT)
    for number in numbers:
        process = start([], cwd=tmp_path, env=environment(), module="patient")
        process.send_signal(number)
        assert ended(process)[0] == -number


def test_copies_draw_different_numbers(tmp_path: Path) -> None:
    (tmp_path / "draw.py").write_text("import random, tempfile, uuid; print(random.random(), uuid.uuid4())", "utf-8")

    drawn = [ended(start([], cwd=tmp_path, env=environment(), module="draw"))[1].split() for _ in range(3)]

    assert all(len(set(column)) == 3 for column in zip(*drawn, strict=True))


@pytest.mark.parametrize("name", ["PYTHONWARNINGS", "LC_NUMERIC", "TZ", "HOME", "OTEL_SDK_DISABLED"])
def test_what_is_read_at_a_start_needs_one(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds if a test changes its environment after the copied process has started."""
    ended(start(["--version"], cwd=tmp_path, env=environment()))
    monkeypatch.setenv(name, "C")
    process = start(["--version"], cwd=tmp_path, env=environment())

    assert type(process) is subprocess.Popen
    assert ended(process)[0] == 0


def test_nothing_is_left_of_a_test_run_that_was_killed(tmp_path: Path) -> None:
    """The server ends with the process that it forks for, however that ended."""
    program = (
        "from pathlib import Path; from support import programs; import signal\n"
        "programs.start([], cwd=Path(), env=programs.environment(), module='this').communicate()\n"
        "print(programs._server()._process.pid, flush=True); signal.pause()"
    )
    tests = str(Path(__file__).parents[1])
    env = environment(PYTHONPATH=os.pathsep.join([environment()["PYTHONPATH"], tests]))
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        server = os.pidfd_open(int(user.stdout.readline()))
        user.kill()
    assert select.select([server], [], [], TIMEOUT_SECONDS)[0], "the server still runs"
    os.close(server)
