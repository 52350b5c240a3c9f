"""SIGINT and SIGTERM: the first finishes what is in hand, the second stops at once (contract, section 4)."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batchkiln.cli.output import print_status
from batchkiln.cli.streams import ignore_closed_output

_FIRST = "Stopping: finishing what is in hand, and beginning nothing new; again to stop at once."


class Signals:
    """What was received. Until `stop` is set there is nothing in hand, and the first signal ends at once."""

    def __init__(self) -> None:
        """Begin with none."""
        self.received: signal.Signals | None = None
        self.stop: Callable[[], None] | None = None

    @property
    def exit_status(self) -> int | None:
        """The exit status that a signal asks for: 128 and its number."""
        return None if self.received is None else 128 + self.received

    def receive(self, number: signal.Signals) -> None:
        """Act on a signal: everything is on disk at any moment, so that leaving at once is as safe as any crash."""
        if self.stop is None or self.received is not None:
            print_status("Stopped; everything is saved.")
            ignore_closed_output()
            sys.stdout.flush()
            os._exit(128 + number)
        self.received = number
        print_status(_FIRST)
        self.stop()


@contextmanager
def handle_signals() -> Iterator[Signals]:
    """Receive SIGINT and SIGTERM in the running loop."""
    signals, loop = Signals(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, signals.receive, number)
    try:
        yield signals
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
