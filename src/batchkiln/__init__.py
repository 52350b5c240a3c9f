"""batchkiln: a manifest of many prompts becomes images and videos on disk, each paid for once.

`open_queue` is where a program begins; see docs/python.md. What is named here is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from batchkiln.api.apply_manifests import Applied
    from batchkiln.api.open_queue import open_queue
    from batchkiln.api.queue import Queue
    from batchkiln.api.run_options import Until
    from batchkiln.api.run_result import RunResult
    from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError, NoDriver, QueueBusy, QueueInUse
    from batchkiln.core.states import ItemState
    from batchkiln.presentation.overview import JobView, Overview
    from batchkiln.store import ItemDetail, ItemSummary, LoggedEvent

    __version__: str

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
    "__version__",
    "open_queue",
]

_HOMES: Final = {
    "Applied": "api.apply_manifests",
    "BatchkilnError": "core.errors",
    "RunResult": "api.run_result",
    "ExitStatus": "core.errors",
    "InputError": "core.errors",
    "ItemState": "core.states",
    "ItemDetail": "store",
    "ItemSummary": "store",
    "JobView": "presentation.overview",
    "LoggedEvent": "store",
    "NoDriver": "core.errors",
    "Overview": "presentation.overview",
    "Queue": "api.queue",
    "QueueBusy": "core.errors",
    "QueueInUse": "core.errors",
    "Until": "api.run_options",
    "open_queue": "api.open_queue",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for; type checkers read the imports above
    """Look a name up when it is asked for: the look-up of the version alone costs more than many a command."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  see above

        return version("batchkiln")
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415  likewise

        found = getattr(import_module(f"batchkiln.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what there is, also what was not imported yet."""
    return sorted({*globals(), *__all__})
