# ruff: noqa: PLC0414  re-exports are marked by an alias
"""The Python interface: where the names come from that `import batchkiln` offers."""

from batchkiln.api.apply_manifests import Applied as Applied
from batchkiln.api.queue import Queue as Queue, open_queue as open_queue
from batchkiln.api.run import RunResult as RunResult, Until as Until
from batchkiln.core.errors import (
    BatchkilnError as BatchkilnError,
    ExitStatus as ExitStatus,
    InputError as InputError,
    NoDriver as NoDriver,
    QueueBusy as QueueBusy,
    QueueInUse as QueueInUse,
)
from batchkiln.core.states import ItemState as ItemState
from batchkiln.presentation.overview import JobView as JobView, Overview as Overview
from batchkiln.store import ItemDetail as ItemDetail, ItemSummary as ItemSummary, LoggedEvent as LoggedEvent
