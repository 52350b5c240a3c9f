# What other packages may use of the store; `__init__.py` imports a name on first use.
from .accounts import (
    AccountStanding as AccountStanding,
    AccountSummary as AccountSummary,
    PastDay as PastDay,
    SlotHolder as SlotHolder,
)
from .apply import (
    ApplyOptions as ApplyOptions,
    ApplyReport as ApplyReport,
    OnChange as OnChange,
)
from .copying import (
    Copied as Copied,
    copy_queue as copy_queue,
    keep_queue as keep_queue,
)
from .events import (
    EventPage as EventPage,
    ItemEnded as ItemEnded,
    LoggedEvent as LoggedEvent,
)
from .exports import (
    ItemShape as ItemShape,
    ReportRow as ReportRow,
)
from .generations import (
    Hour as Hour,
    Paid as Paid,
)
from .health import (
    QueueHealth as QueueHealth,
    UnresolvedKey as UnresolvedKey,
    queue_health as queue_health,
    server_checks as server_checks,
)
from .hooks import (
    HookDecision as HookDecision,
    RedoBounds as RedoBounds,
    SavedItem as SavedItem,
)
from .item_sources import (
    ItemSource as ItemSource,
)
from .items import (
    PAGE as PAGE,
    AttemptDetail as AttemptDetail,
    EventRecord as EventRecord,
    Filter as Filter,
    GalleryPage as GalleryPage,
    ItemDetail as ItemDetail,
    ItemSummary as ItemSummary,
    OutputFile as OutputFile,
    OutputSummary as OutputSummary,
    RequestRecord as RequestRecord,
    Sorting as Sorting,
    VersionDetail as VersionDetail,
)
from .jobs import (
    Blocker as Blocker,
    Credits as Credits,
    JobAtWork as JobAtWork,
    JobSummary as JobSummary,
    ProblemGroup as ProblemGroup,
    UnderWay as UnderWay,
    Work as Work,
)
from .leases import (
    StoreClock as StoreClock,
)
from .loads import (
    QueuedLoad as QueuedLoad,
    RecipeCount as RecipeCount,
)
from .location import (
    DatabaseUrl as DatabaseUrl,
    QueueLocation as QueueLocation,
    hide_passwords as hide_passwords,
    local_path as local_path,
    make_local_folder as make_local_folder,
    parse_location as parse_location,
)
from .lock import (
    Lease as Lease,
)
from .meta import (
    SharedMark as SharedMark,
)
from .migrating import (
    Migration as Migration,
    migrate as migrate,
)
from .misunderstood import (
    AskedAgain as AskedAgain,
)
from .notification_cursor import (
    Expiring as Expiring,
    NotificationPosition as NotificationPosition,
)
from .operations import (
    Affected as Affected,
    CancelReport as CancelReport,
    RedoReport as RedoReport,
    RetryGroup as RetryGroup,
    RetryReport as RetryReport,
    Skipped as Skipped,
)
from .planned_items import (
    PlannedItem as PlannedItem,
)
from .plans import (
    Change as Change,
    ChangeKind as ChangeKind,
    JobRecipe as JobRecipe,
    ManifestPlan as ManifestPlan,
    PriceQuestion as PriceQuestion,
    Uploads as Uploads,
)
from .preparations import (
    never_fits_error as never_fits_error,
)
from .queued_requests import (
    QueuedJob as QueuedJob,
    QueuedRequest as QueuedRequest,
)
from .reader import (
    Reader as Reader,
    open_reader as open_reader,
)
from .redo_effects import (
    Outdated as Outdated,
    RedoEffects as RedoEffects,
)
from .resolution import (
    Decision as Decision,
    Resolved as Resolved,
    check_resolvable as check_resolvable,
)
from .reviews import (
    Decided as Decided,
    KnownPrice as KnownPrice,
    MadeItem as MadeItem,
    Release as Release,
    ReviewEffects as ReviewEffects,
    ReviewReport as ReviewReport,
    ReviewStep as ReviewStep,
)
from .selected_items import (
    Unselected as Unselected,
)
from .sqlite.file_database import (
    OLDEST_SQLITE as OLDEST_SQLITE,
    SQLITE_VERSION as SQLITE_VERSION,
)
from .sqlite.file_session import SCHEMA_VERSION as SCHEMA_VERSION
from .sqlite.preflight import (
    is_open_to_others as is_open_to_others,
)
from .store import (
    Store as Store,
)
from .versions import SavedOutputFile as SavedOutputFile
from .worker_store import (
    ChangeNotifier as ChangeNotifier,
    WorkerStore as WorkerStore,
)
from .writer import (
    Writer as Writer,
)
