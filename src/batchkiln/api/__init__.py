"""The application layer: everything that Python programs, commands, the watcher and the dashboard do with a queue.

Some result types come from the store. They are imported from here, on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchkiln.store import (
        PAGE,
        SCHEMA_VERSION,
        SQLITE_VERSION,
        ApplyOptions,
        ApplyReport,
        AttemptDetail,
        Change,
        ChangeKind,
        DatabaseUrl,
        Decided,
        Decision,
        EventPage,
        EventRecord,
        Filter,
        GalleryPage,
        Hour,
        ItemDetail,
        ItemSource,
        ItemSummary,
        JobSummary,
        LoggedEvent,
        Migration,
        OnChange,
        OutputFile,
        OutputSummary,
        PlannedItem,
        ProblemGroup,
        QueueLocation,
        Reader,
        ReportRow,
        RequestRecord,
        RetryGroup,
        RetryReport,
        ReviewReport,
        ReviewStep,
        Skipped,
        Sorting,
        UnderWay,
        VersionDetail,
        check_resolvable,
        hide_passwords,
        local_path,
        make_local_folder,
        migrate,
        parse_location,
    )

__all__ = [
    "PAGE",
    "SCHEMA_VERSION",
    "SQLITE_VERSION",
    "ApplyOptions",
    "ApplyReport",
    "AttemptDetail",
    "Change",
    "ChangeKind",
    "DatabaseUrl",
    "Decided",
    "Decision",
    "EventPage",
    "EventRecord",
    "Filter",
    "GalleryPage",
    "Hour",
    "ItemDetail",
    "ItemSource",
    "ItemSummary",
    "JobSummary",
    "LoggedEvent",
    "Migration",
    "OnChange",
    "OutputFile",
    "OutputSummary",
    "PlannedItem",
    "ProblemGroup",
    "QueueLocation",
    "Reader",
    "ReportRow",
    "RequestRecord",
    "RetryGroup",
    "RetryReport",
    "ReviewReport",
    "ReviewStep",
    "Skipped",
    "Sorting",
    "UnderWay",
    "VersionDetail",
    "check_resolvable",
    "hide_passwords",
    "local_path",
    "make_local_folder",
    "migrate",
    "parse_location",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for; type checkers read the import above
    """Import a type of the store on first use, because frequent commands such as `status` need few of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from batchkiln import store  # noqa: PLC0415  see above

    return getattr(store, name)
