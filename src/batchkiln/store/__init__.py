"""The queue on disk. All that other packages use of it is named here; SQLite is known nowhere else."""

from batchkiln.store.accounts import AccountStanding, AccountSummary, PastDay, SlotHolder
from batchkiln.store.apply import ApplyOptions, ApplyReport
from batchkiln.store.database import OLDEST_SQLITE, SCHEMA_VERSION, SQLITE_VERSION
from batchkiln.store.events import ItemEnded, LoggedEvent
from batchkiln.store.exports import ItemShape, ReportRow
from batchkiln.store.generations import Hour, Paid, TracedAttempt, TracedItem
from batchkiln.store.health import QueueHealth, UnresolvedKey, queue_health
from batchkiln.store.items import (
    PAGE,
    AttemptDetail,
    EventRecord,
    Filter,
    GalleryPage,
    ItemDetail,
    ItemSummary,
    OutputFile,
    OutputSummary,
    RequestRecord,
)
from batchkiln.store.jobs import Credits, JobAtWork, JobSummary, Trouble, UnderWay, Work
from batchkiln.store.loads import QueuedLoad, RecipeCount
from batchkiln.store.lock import Lease, QueueLock, undriven
from batchkiln.store.misunderstood import AskedAgain
from batchkiln.store.notification_cursor import Expiring, NotificationCursor
from batchkiln.store.operations import CancelReport, RetryReport, Skipped
from batchkiln.store.plans import Change, ChangeKind, JobRecipe, ManifestPlan, PriceQuestion, Uploads
from batchkiln.store.preflight import is_open_to_others
from batchkiln.store.queue_store import Store, Writer
from batchkiln.store.reader import Reader, open_reader
from batchkiln.store.resolution import Decision, Resolved, check_resolvable
from batchkiln.store.store import ChangeNotifier
from batchkiln.store.store import Store as WorkerStore

__all__ = [
    "OLDEST_SQLITE",
    "PAGE",
    "SCHEMA_VERSION",
    "SQLITE_VERSION",
    "AccountStanding",
    "AccountSummary",
    "ApplyOptions",
    "ApplyReport",
    "AskedAgain",
    "AttemptDetail",
    "CancelReport",
    "Change",
    "ChangeKind",
    "ChangeNotifier",
    "Credits",
    "Decision",
    "EventRecord",
    "Expiring",
    "Filter",
    "GalleryPage",
    "Hour",
    "ItemDetail",
    "ItemEnded",
    "ItemShape",
    "ItemSummary",
    "JobAtWork",
    "JobRecipe",
    "JobSummary",
    "Lease",
    "LoggedEvent",
    "ManifestPlan",
    "NotificationCursor",
    "OutputFile",
    "OutputSummary",
    "Paid",
    "PastDay",
    "PriceQuestion",
    "QueueHealth",
    "QueueLock",
    "QueuedLoad",
    "Reader",
    "RecipeCount",
    "ReportRow",
    "RequestRecord",
    "Resolved",
    "RetryReport",
    "Skipped",
    "SlotHolder",
    "Store",
    "TracedAttempt",
    "TracedItem",
    "Trouble",
    "UnderWay",
    "UnresolvedKey",
    "Uploads",
    "Work",
    "WorkerStore",
    "Writer",
    "check_resolvable",
    "is_open_to_others",
    "open_reader",
    "queue_health",
    "undriven",
]
