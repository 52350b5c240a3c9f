"""The Python interface: the names that `import batchkiln` offers."""

from batchkiln.api.apply_manifests import Applied
from batchkiln.api.open_queue import open_queue
from batchkiln.api.queue import Queue
from batchkiln.api.run_options import Until
from batchkiln.api.run_result import RunResult
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError, NoDriver, QueueBusy, QueueInUse
from batchkiln.core.states import ItemState
from batchkiln.presentation.overview import JobView, Overview
from batchkiln.store import ItemDetail, ItemSummary, LoggedEvent

__all__ = [
    "Applied",
    "BatchkilnError",
    "ExitStatus",
    "InputError",
    "ItemDetail",
    "ItemState",
    "ItemSummary",
    "JobView",
    "LoggedEvent",
    "NoDriver",
    "Overview",
    "Queue",
    "QueueBusy",
    "QueueInUse",
    "RunResult",
    "Until",
    "open_queue",
]
