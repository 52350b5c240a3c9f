"""Programs that are run after each file: bounded in time and output, and ended with all that they started."""

import asyncio
import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from batchkiln.hooks.program import MAX_OUTPUT_BYTES, ProgramEnd, run_program


class Patient:
    """A clock whose time never comes."""

    def monotonic(self) -> float:
        return 0.0

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        assert at == 60
        await wake.wait()


class Over(Patient):
    """A clock whose time has come, once the program has opened a pipe."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign
        os.mkfifo(sign)

    async def sleep_until(self, at: float, wake: asyncio.Event) -> None:
        assert at == 60
        assert not wake.is_set()
        await asyncio.to_thread(self.sign.read_bytes)


async def run(folder: Path, source: str, *arguments: str, clock: Patient | None = None) -> ProgramEnd:
    (folder / "hook.py").write_text(source)
    return await run_program(
        [sys.executable, "hook.py", *arguments],
        json.dumps({"item": "fox"}).encode(),
        folder=folder,
        environment={"PATH": "/usr/bin", "MOOD": "calm"},
        clock=clock or Patient(),
        timeout_seconds=60,
    )


@pytest.mark.parametrize("status", [0, 3, 10, 12])
async def test_the_exit_status_is_returned(tmp_path: Path, status: int) -> None:
    """Whoever runs the program decides what it means."""
    assert (await run(tmp_path, f"raise SystemExit({status})")).status == status


async def test_arguments_and_input_arrive_as_they_are(tmp_path: Path) -> None:
    """There is no shell: an argument stays one argument. The item is on the standard input."""
    source = "import json, os, sys; print(sys.argv[1:], json.load(sys.stdin)['item'], os.environ['MOOD'])"

    end = await run(tmp_path, source, "$(touch x) `y`; *", "")

    assert end == ProgramEnd(0, output="['$(touch x) `y`; *', ''] fox calm")


async def test_a_program_need_not_read_its_input(tmp_path: Path) -> None:
    """A closed input is no error."""
    assert (await run(tmp_path, "import sys; sys.stdin.close()")).status == 0


async def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    """Also one that ignores to be asked."""
    source = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('begun', flush=True)\nopen('sign', 'w').close()\ntime.sleep(1000)"
    )

    end = await run(tmp_path, source, clock=Over(tmp_path / "sign"))

    assert end == ProgramEnd(None, "it had not ended after 60 seconds, and was ended", "begun")


async def test_a_program_that_floods_is_ended(tmp_path: Path) -> None:
    """Of what it wrote, the end is kept."""
    end = await run(tmp_path, "while True: print('x' * 1000)")

    assert end.status is None
    assert end.reason == f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes, and was ended"
    assert len(end.output) == 200


async def test_a_program_that_dies_is_told(tmp_path: Path) -> None:
    """A signal is no exit status."""
    end = await run(tmp_path, "import os; os.kill(os.getpid(), 11)")

    assert end == ProgramEnd(None, "it was ended by signal 11")


async def test_a_program_that_ends_its_group_is_told(tmp_path: Path) -> None:
    """Its exit status counts, as of a script that ends its children. A SIGKILL leaves none."""
    source = "import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(0, 15); raise SystemExit(10)"

    assert (await run(tmp_path, source)).status == 10
    assert await run(tmp_path, "import os; os.kill(0, 9)") == ProgramEnd(None, "it was ended by signal 9")


@pytest.mark.parametrize("number", [1, 13, 15])
async def test_a_program_gets_signals_as_usual(tmp_path: Path, number: int) -> None:
    """Python ignores the signal of a closed pipe, and the guard those that ask it to end; programs do not."""
    command = ["/bin/sh", "-c", f"kill -{number} $$"]

    end = await run_program(command, b"{}", folder=tmp_path, environment={}, clock=Patient(), timeout_seconds=60)

    assert end == ProgramEnd(None, f"it was ended by signal {number}")


async def test_a_program_that_does_not_start_is_told(tmp_path: Path) -> None:
    """The reason is the system's."""
    end = await run_program(["./missing"], b"{}", folder=tmp_path, environment={}, clock=Patient(), timeout_seconds=60)

    assert end == ProgramEnd(None, "it does not start: No such file or directory")


CHILD = """
import fcntl, subprocess, sys, time
if len(sys.argv) > 1:
    lock = open("lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    open("sign", "w").close()
    time.sleep(1000)
child = subprocess.Popen([sys.executable, "hook.py", "child"], stdout=subprocess.PIPE)
child.stdout.readline()
"""


async def is_unlocked(path: Path) -> bool:
    with path.open("w") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        return True


async def test_what_a_program_leaves_behind_is_ended(tmp_path: Path) -> None:
    """Its process group is, so that nothing piles up."""
    assert (await run(tmp_path, CHILD)).status == 0

    assert await is_unlocked(tmp_path / "lock")


async def test_a_cancelled_run_ends_the_program_and_its_children(tmp_path: Path) -> None:
    """The end of a run leaves no process."""
    os.mkfifo(tmp_path / "sign")
    running = asyncio.create_task(run(tmp_path, CHILD + "time.sleep(1000)"))
    await asyncio.to_thread((tmp_path / "sign").read_bytes)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await is_unlocked(tmp_path / "lock")
