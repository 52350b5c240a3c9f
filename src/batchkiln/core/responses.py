"""What the service may answer, as closed unions: consumed by `match` with `assert_never` at the end.

A lost reply is a value and not an exception, since credits may already be reserved (Service rule 3.1) and no
caller may forget it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class GenerationStatus(StrEnum):
    """The service's own status (Service section 3). `UNKNOWN` counts as not ended (contract, section 8)."""

    PENDING = "pending"
    PROCESSING = "processing"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, word: str | None) -> "GenerationStatus":
        """Return what a status word means; `UNKNOWN` for one that the service's document does not name.

        Other words for a success are believed, since it only leads to fetching files. No other word is a failure:
        a failure is verified and refunded (Service rule 3.1), and its item is paid for again.
        """
        known = (word or "").strip().casefold()
        if known in _WORDS_FOR_SUCCESS:
            return cls.SUCCESS
        try:
            return cls(known)
        except ValueError:
            return cls.UNKNOWN

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is to come."""
        return self not in {GenerationStatus.PENDING, GenerationStatus.PROCESSING, GenerationStatus.UNKNOWN}


_WORDS_FOR_SUCCESS = frozenset({"succeeded", "successful", "completed", "complete", "done", "finished"})


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What the service said of a failure; texts are bounded and free of links."""

    code: str
    message: str

    @property
    def said(self) -> str:
        """Code and message in a line; the message alone where there is no code."""
        return f"{self.code}: {self.message}" if self.code else self.message


@dataclass(frozen=True, slots=True)
class OutputLink:
    """A signed download link: a secret (Law 8), short-lived (Service section 2.1).

    `identity` is what the record calls the output, where it does; it stays the same from one read to the next.
    """

    type: str
    url: str = field(repr=False)
    expires_at: datetime | None
    identity: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """The service's record of a generation (Service section 2.1). `status_word` is what it literally said."""

    id: str
    status: GenerationStatus
    status_word: str
    created_at: datetime | None
    cost_credits: int | None
    outputs: tuple[OutputLink, ...]
    error: ErrorInfo | None


# --- troubles that any call may meet ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Throttled:
    """429: a limit. `retry_after` is service time; None where the service did not say."""

    retry_after: timedelta | None
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Unavailable:
    """503 or another 5xx. For a create its outcome is unknown (Service section 7)."""

    retry_after: timedelta | None
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class EdgeBlocked:
    """A 403 that is no JSON: the firewall before the API (Service section 7); the whole machine has to wait."""


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The connection failed, timed out, or brought bytes that are no reply of this API.

    `status` is None where nothing came at all.
    """

    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A success (2xx) without what was asked for (Law 10). For a create its outcome is unknown (Law 2).

    `lacking` says what was not found, as "names no price"; `shape` is what came: names and types, no values. `status`
    is 0 where it was a refusal, which tells none.
    `remedy` is the configuration line to paste below the profile, with a guess of the path where there is one.
    """

    lacking: str
    shape: str
    status: int
    remedy: str | None = None


class AccountProblem(StrEnum):
    """Why an account cannot work until a person acts."""

    KEY_REFUSED = "key_refused"  # 401
    UPGRADE_REQUIRED = "api_key_upgrade_required"  # Service rule 5.4
    NO_CREDITS = "no_credits"  # 402, or a JSON 403 that says so (Service rule 5.8)
    FORBIDDEN = "forbidden"  # any other JSON 403 (Service section 7)
    KEY_CONFLICT = "key_conflict"  # a 409 that lasts, for bytes that are unchanged
    REFUSED_ALIKE = "refused_alike"  # one create after the other, in the same words
    IDS_UNKNOWN = "ids_unknown"  # it does not know, or gives twice, what is read as a generation's id
    OVERCHARGED = "overcharged"  # it charged more than the maximum that was sent; told by us, not by the service


@dataclass(frozen=True, slots=True)
class AccountBlocked:
    """The API refused the account or the key: nothing was created, and waiting does not mend it."""

    problem: AccountProblem
    error: ErrorInfo


TransientError = Throttled | Unavailable | EdgeBlocked | NoResponse | NotUnderstood | AccountBlocked


class RefusalKind(StrEnum):
    """What a refusal before creation was about."""

    INVALID = "invalid"
    OVER_QUOTE = "over_quote"  # the price rose since the quote (Service rule 4.6)
    ASSET_GONE = "asset_gone"  # expired, unknown or not ready (Service rule 2.2.5)


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was rejected before anything was created; it did not use credits (Service section 7)."""

    kind: RefusalKind
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Accepted:
    """202: accepted, or replayed (Service rule 3.3)."""

    record: GenerationRecord


@dataclass(frozen=True, slots=True)
class IdempotencyConflict:
    """409: the same key with other bytes (Service rule 4.3)."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Busy:
    """The account's one place is taken, or the first request under this key is still being processed.

    It says nothing about an earlier send of the same attempt (Law 2).
    """

    retry_after: timedelta | None
    error: ErrorInfo


CreateReply = Accepted | Refused | IdempotencyConflict | Busy | TransientError


@dataclass(frozen=True, slots=True)
class RecordRead:
    """The generation as it stands now."""

    record: GenerationRecord


@dataclass(frozen=True, slots=True)
class NotFound:
    """404 or 410 for an id that the service itself gave."""

    error: ErrorInfo


ReadReply = RecordRead | NotFound | TransientError


@dataclass(frozen=True, slots=True)
class Quoted:
    """The price in whole credits; a fraction is rounded up."""

    cost_credits: int


QuoteReply = Quoted | Refused | TransientError


@dataclass(frozen=True, slots=True)
class UploadTicket:
    """Where to put one file's bytes. `url` and `headers` are secrets (Law 8)."""

    asset_id: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class UploadsPrepared:
    """One ticket per file, in the order asked."""

    tickets: tuple[UploadTicket, ...]


@dataclass(frozen=True, slots=True)
class BytesStored:
    """The storage took the file."""


@dataclass(frozen=True, slots=True)
class TicketRefused:
    """The storage refused the PUT: the link expired or did not match; a new ticket is needed."""

    reason: str


@dataclass(frozen=True, slots=True)
class AssetsReady:
    """The url to use in `inputs`, per asset, in the order asked."""

    urls: tuple[str, ...] = field(repr=False)


PrepareReply = UploadsPrepared | Refused | TransientError
PutReply = BytesStored | TicketRefused | NoResponse
CompleteReply = AssetsReady | Refused | TransientError


@dataclass(frozen=True, slots=True)
class BalanceRead:
    """The account's remaining credits; None where the reply could not be understood."""

    credits: int | None


BalanceReply = BalanceRead | TransientError


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What the catalog says of one model; None or empty where it was not understood (contract, section 8)."""

    id: str
    modes: frozenset[str]
    resolutions: frozenset[str]
    aspect_ratios: frozenset[str]
    durations_seconds: frozenset[int]
    prompt_max_characters: int | None
    images_max: int | None


@dataclass(frozen=True, slots=True)
class CatalogRead:
    """The models by id; empty where the catalog could not be understood."""

    models: tuple[ModelEntry, ...]


CatalogReply = CatalogRead | TransientError


@dataclass(frozen=True, slots=True)
class Described:
    """`/openapi.json` answered; its title and version, for a person, and all of it, for `doctor`."""

    title: str | None
    version: str | None
    document: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)


DescribeReply = Described | TransientError


@dataclass(frozen=True, slots=True)
class DownloadStarted:
    """Bytes are coming. `offset_bytes` is where they begin: 0 where the server ignored the range.

    `total_bytes` is the whole file's length where the server told it. `etag` guards a continuation.
    `chunks` raises `DownloadBroken` when the connection ends early.
    """

    offset_bytes: int
    total_bytes: int | None
    media_type: str | None
    etag: str | None
    chunks: AsyncIterator[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """The link no longer works: expired, or gone. A read gives a fresh one (Service section 2.1)."""

    status: int


@dataclass(frozen=True, slots=True)
class LinkBarred:
    """The link, or a redirect of it, leads where we do not go: nothing was sent there. `reason` names no address."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotContinued:
    """What was to be continued cannot be: another file came, or another part of it. It has to be begun again."""

    reason: str


DownloadReply = DownloadStarted | LinkRefused | LinkBarred | NotContinued | NoResponse


class DownloadBroken(Exception):
    """The bytes stopped before the end; what came is kept, and continued by range where possible."""


class DownloadUnusable(DownloadBroken):
    """All bytes came, and are no output: an error page, or nothing. Another try may bring the file."""


class DownloadCut(DownloadBroken):
    """All announced bytes came, and lack the end that their format demands; `sha256` tells them from other ones."""

    def __init__(self, message: str, *, sha256: str) -> None:
        """Take the reason, and the hash of what came."""
        super().__init__(message)
        self.sha256 = sha256
