"""SIGINT and SIGTERM: the first signal stops after the current work, the second stops immediately."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batchkiln.cli.output import print_status
from batchkiln.cli.streams import ignore_closed_output

_FIRST = "Stopping: finishing the current work, and starting nothing new. A second signal stops immediately."


class Signals:
    """The received signal, and the callback that stops the work. Without a callback, a signal exits immediately."""

    def __init__(self) -> None:
        """Start without a signal and without a callback."""
        self.received: signal.Signals | None = None
        self.stop: Callable[[], None] | None = None

    @property
    def exit_status(self) -> int | None:
        """128 plus the number of the received signal, or None."""
        return None if self.received is None else 128 + self.received

    def receive(self, number: signal.Signals) -> None:
        """Stop gracefully on the first signal, and exit immediately on the second, which is as safe as a crash."""
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
    """Handle SIGINT and SIGTERM in the running event loop."""
    signals, loop = Signals(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, signals.receive, number)
    try:
        yield signals
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
