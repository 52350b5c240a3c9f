"""batchkiln: a manifest of many prompts becomes images and videos on disk, each paid for once.

A program starts with `open_queue`, a script or a notebook without asyncio with `open_queue_sync`:

    with batchkiln.open_queue_sync("queue.db") as queue:
        queue.enqueue("manifest.yaml")
        print(queue.run())

The calls are those of `Queue`; `SyncQueue` has the same ones. `batchkiln help python` shows the manual.
"""

TYPE_CHECKING = False  # as type checkers know it; the import of `typing` takes as long as all else here
if TYPE_CHECKING:
    from typing import Any

    from batchkiln.python.public import *  # noqa: F403  the names of `__all__`

    __version__: str

__all__ = [  # noqa: F405  as above
    "Applied",
    "ApplyReport",
    "AskedAgain",
    "BatchkilnError",
    "Budget",
    "CancelReport",
    "Decided",
    "Decision",
    "Defaults",
    "ExitStatus",
    "ExportResult",
    "FetchReport",
    "Filter",
    "InputError",
    "Item",
    "ItemDetail",
    "ItemState",
    "ItemSummary",
    "JobPlan",
    "JobSummary",
    "JobView",
    "LoggedEvent",
    "Manifest",
    "MatrixItems",
    "NoDriver",
    "Output",
    "OutputSummary",
    "Overview",
    "Parameters",
    "Plan",
    "Queue",
    "QueueBusy",
    "QueueInUse",
    "QueueUnusable",
    "RedoReport",
    "RehearsalResult",
    "Resolved",
    "RetryReport",
    "ReviewReport",
    "ReviewStep",
    "RunResult",
    "Skipped",
    "SyncQueue",
    "TableItems",
    "Until",
    "Verdict",
    "WrittenReport",
    "__version__",
    "open_queue",
    "open_queue_sync",
]


def __getattr__(name: str) -> "Any":  # noqa: ANN401  whatever the name stands for; type checkers read the import above
    """Import a name of `batchkiln.python.public` on first use. The version alone takes longer than many commands do."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  see above

        return version("batchkiln")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from batchkiln.python import public  # noqa: PLC0415  likewise

    return getattr(public, name)


def __dir__() -> list[str]:
    """Return the public names, also those that were not imported yet."""
    return sorted(__all__)
