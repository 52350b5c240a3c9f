import batchkiln.store.store as _workers
from batchkiln.store.accounts import (
    AccountStanding as AccountStanding,
)
from batchkiln.store.accounts import (
    AccountSummary as AccountSummary,
)
from batchkiln.store.accounts import (
    PastDay as PastDay,
)
from batchkiln.store.accounts import (
    SlotHolder as SlotHolder,
)
from batchkiln.store.apply import (
    ApplyOptions as ApplyOptions,
)
from batchkiln.store.apply import (
    ApplyReport as ApplyReport,
)
from batchkiln.store.database import (
    OLDEST_SQLITE as OLDEST_SQLITE,
)
from batchkiln.store.database import (
    SCHEMA_VERSION as SCHEMA_VERSION,
)
from batchkiln.store.database import (
    SQLITE_VERSION as SQLITE_VERSION,
)
from batchkiln.store.events import (
    ItemEnded as ItemEnded,
)
from batchkiln.store.events import (
    LoggedEvent as LoggedEvent,
)
from batchkiln.store.exports import (
    ItemShape as ItemShape,
)
from batchkiln.store.exports import (
    ReportRow as ReportRow,
)
from batchkiln.store.generations import (
    Hour as Hour,
)
from batchkiln.store.generations import (
    Paid as Paid,
)
from batchkiln.store.generations import (
    TracedAttempt as TracedAttempt,
)
from batchkiln.store.generations import (
    TracedItem as TracedItem,
)
from batchkiln.store.health import (
    QueueHealth as QueueHealth,
)
from batchkiln.store.health import (
    UnresolvedKey as UnresolvedKey,
)
from batchkiln.store.health import (
    queue_health as queue_health,
)
from batchkiln.store.items import (
    PAGE as PAGE,
)
from batchkiln.store.items import (
    AttemptDetail as AttemptDetail,
)
from batchkiln.store.items import (
    EventRecord as EventRecord,
)
from batchkiln.store.items import (
    Filter as Filter,
)
from batchkiln.store.items import (
    GalleryPage as GalleryPage,
)
from batchkiln.store.items import (
    ItemDetail as ItemDetail,
)
from batchkiln.store.items import (
    ItemSummary as ItemSummary,
)
from batchkiln.store.items import (
    OutputFile as OutputFile,
)
from batchkiln.store.items import (
    OutputSummary as OutputSummary,
)
from batchkiln.store.items import (
    RequestRecord as RequestRecord,
)
from batchkiln.store.jobs import (
    Credits as Credits,
)
from batchkiln.store.jobs import (
    JobAtWork as JobAtWork,
)
from batchkiln.store.jobs import (
    JobSummary as JobSummary,
)
from batchkiln.store.jobs import (
    Trouble as Trouble,
)
from batchkiln.store.jobs import (
    UnderWay as UnderWay,
)
from batchkiln.store.jobs import (
    Work as Work,
)
from batchkiln.store.loads import (
    QueuedLoad as QueuedLoad,
)
from batchkiln.store.loads import (
    RecipeCount as RecipeCount,
)
from batchkiln.store.lock import (
    Lease as Lease,
)
from batchkiln.store.lock import (
    QueueLock as QueueLock,
)
from batchkiln.store.lock import (
    undriven as undriven,
)
from batchkiln.store.misunderstood import (
    AskedAgain as AskedAgain,
)
from batchkiln.store.notification_cursor import (
    Expiring as Expiring,
)
from batchkiln.store.notification_cursor import (
    NotificationCursor as NotificationCursor,
)
from batchkiln.store.operations import (
    CancelReport as CancelReport,
)
from batchkiln.store.operations import (
    RetryReport as RetryReport,
)
from batchkiln.store.operations import (
    Skipped as Skipped,
)
from batchkiln.store.plans import (
    Change as Change,
)
from batchkiln.store.plans import (
    ChangeKind as ChangeKind,
)
from batchkiln.store.plans import (
    JobRecipe as JobRecipe,
)
from batchkiln.store.plans import (
    ManifestPlan as ManifestPlan,
)
from batchkiln.store.plans import (
    PriceQuestion as PriceQuestion,
)
from batchkiln.store.plans import (
    Uploads as Uploads,
)
from batchkiln.store.preflight import (
    is_open_to_others as is_open_to_others,
)
from batchkiln.store.queue_store import Store as Store
from batchkiln.store.reader import (
    Reader as Reader,
)
from batchkiln.store.reader import (
    open_reader as open_reader,
)
from batchkiln.store.resolution import (
    Decision as Decision,
)
from batchkiln.store.resolution import (
    Resolved as Resolved,
)
from batchkiln.store.resolution import (
    check_resolvable as check_resolvable,
)
from batchkiln.store.store import (
    ChangeNotifier as ChangeNotifier,
)
from batchkiln.store.writer import Writer as Writer

WorkerStore = _workers.Store  # for annotations alone
