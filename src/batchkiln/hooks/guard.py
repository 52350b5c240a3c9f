"""Runs one program for `program.run_program`, and ends it if the process of the run dies.

This is a separate process, in a process group with the program: `python -I -S guard.py HANDLE PROGRAM ARGUMENT…`.
`HANDLE` is a socket whose other end only the run holds. The system closes that end when the run dies, also by SIGKILL,
and this process then ends the whole group. Otherwise the program would continue unattended, beside the one that the
next run starts for the same file. This module imports only the standard library, so that it starts within milliseconds.
"""

import os
import signal
import sys
import threading

_ASKED_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(handle: int, command: list[str]) -> None:
    """Run the program; write its exit status, its signal (negative) or `errno N` to `handle`, and end the group."""
    for number in _ASKED_TO_END:  # a script may send one to its group, and its exit status counts nevertheless
        signal.signal(number, signal.SIG_IGN)
    reset = (*_ASKED_TO_END, signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores the last two
    try:
        private = [(os.POSIX_SPAWN_CLOSE, handle)]
        program = os.posix_spawnp(command[0], command, os.environ, file_actions=private, setsigdef=reset)
        threading.Thread(target=_end_with_the_run, args=(handle,), daemon=True).start()
        _, status = os.waitpid(program, 0)
        os.write(handle, str(os.waitstatus_to_exitcode(status)).encode())
    except OSError as error:
        os.write(handle, f"errno {error.errno}".encode())
    finally:
        _end_group()


def _end_with_the_run(handle: int) -> None:
    try:
        os.read(handle, 1)  # the run writes nothing: this returns at its end
    finally:
        _end_group()


def _end_group() -> None:
    os.killpg(os.getpid(), signal.SIGKILL)  # the group is this process's own, or there is none of this number


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
