"""What befalls a fleet: its processes, their connections to the database and to the service, and the database."""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.replicated import Pair
from support.tcp_gate import Gate

DATABASE: Final = "database"

SECONDS: Final[dict[str, tuple[float, float]]] = {
    "kill": (0.2, 3.0),
    "stop": (0.2, 3.0),
    "freeze": (16.0, 20.0),
    "doze": (0.5, 10.0),
    "cut": (0.0, 0.0),
    "refuse": (0.5, 8.0),
    "hold": (0.3, 8.0),
    "long hold": (14.0, 18.0),
    "silence": (1.0, 18.0),
    "fast restart": (0.0, 0.0),
    "immediate restart": (0.0, 0.0),
    "failover": (0.0, 0.0),
    "standby away": (0.5, 6.0),
    "waits canceled": (1.0, 3.0),
}
"""How long each takes, in seconds of real time. A lease holds for 15 seconds."""

OF_WORKERS: Final = ("kill", "kill", "stop", "freeze", "doze")
OF_DATABASE_LINKS: Final = ("cut", "cut", "refuse", "hold", "long hold", "silence")
OF_SERVICE_LINKS: Final = ("cut", "cut", "refuse", "hold", "silence")
OF_THE_DATABASE: Final = ("fast restart", "immediate restart", "failover", "standby away", "waits canceled")


@dataclass(frozen=True)
class Blow:
    """One misadventure. `target` is hit by no other until `end` is called, after `seconds`, and returns True."""

    name: str
    target: str
    seconds: float
    begin: Callable[[], None]
    end: Callable[[], bool]


class Fate:
    """Draws misadventures by a seed."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def of_worker(self, name: str, process: subprocess.Popen[str], back: Callable[[], bool]) -> Blow:
        """Return what befalls a process; `back` starts it again or lets it go on."""
        kind = self._draw.choice(OF_WORKERS)
        sent = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}.get(kind, signal.SIGSTOP)
        return Blow(kind, name, self._seconds(kind), lambda: process.send_signal(sent), back)

    def of_link(self, target: str, kinds: tuple[str, ...], gates: tuple[Gate, ...]) -> Blow:
        """Return what befalls a machine's connections: all of its gates alike."""
        kind = self._draw.choice(kinds)
        work = {"long hold": Gate.hold, "hold": Gate.hold, "cut": Gate.cut, "refuse": Gate.refuse}.get(
            kind, Gate.silence
        )

        def begin() -> None:
            for each in gates:
                work(each)

        def end() -> bool:
            for each in gates:
                each.mend()
            return True

        place = "service" if kinds is OF_SERVICE_LINKS else "database"
        return Blow(f"{kind} ({place} link)", target, self._seconds(kind), begin, end)

    def of_database(self, pair: Pair) -> Blow:
        """Return what befalls the database."""
        kind = self._draw.choice(OF_THE_DATABASE)
        begin: dict[str, Callable[[], None]] = {
            "fast restart": lambda: pair.restart(signal.SIGINT),
            "immediate restart": lambda: pair.restart(signal.SIGQUIT),
            "failover": lambda: pair.fail_over(self._draw.choice((signal.SIGKILL, signal.SIGQUIT))),
            "standby away": pair.stop_standby,
            "waits canceled": pair.stop_standby,
        }
        end: dict[str, Callable[[], None]] = {
            "failover": pair.add_standby,
            "standby away": pair.start_standby,
            "waits canceled": lambda: _cancel_and_start(pair),
        }

        def end_and_tell() -> bool:
            if kind in end:
                end[kind]()
            return True

        return Blow(kind, DATABASE, self._seconds(kind), begin[kind], end_and_tell)

    def _seconds(self, kind: str) -> float:
        return self._draw.uniform(*SECONDS[kind])


def _cancel_and_start(pair: Pair) -> None:
    pair.cancel_waits()
    pair.start_standby()


def let_go_on(process: subprocess.Popen[str]) -> bool:
    """Continue a process that is stopped by a signal; return whether it was."""
    with suppress(OSError, IndexError):
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            os.kill(process.pid, signal.SIGCONT)
            return True
    return False
