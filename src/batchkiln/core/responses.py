"""The service's possible replies as closed unions, to be matched with `assert_never` at the end.

A lost reply is a value and not an exception, because credits may already be reserved (Service rule 3.1) and no caller
may forget it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from batchkiln.core.provider import SUCCESS_WORDS, UPGRADE_CODE


class GenerationStatus(StrEnum):
    """A generation's status as the service reports it (Service section 3).

    `UNKNOWN` counts as not ended (contract, section 8).
    """

    PENDING = "pending"
    PROCESSING = "processing"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, word: str | None) -> "GenerationStatus":
        """Return the status that a word means; `UNKNOWN` for words that the service does not document.

        Synonyms of success are accepted, since they only lead to fetching files. Synonyms of failure are not: a failure
        has to be certain, because it is refunded (Service rule 3.1) and its item is paid for again.
        """
        known = (word or "").strip().casefold()
        if known in SUCCESS_WORDS:
            return cls.SUCCESS
        try:
            return cls(known)
        except ValueError:
            return cls.UNKNOWN

    @property
    def is_ended(self) -> bool:
        """Whether the status is final."""
        return self not in {GenerationStatus.PENDING, GenerationStatus.PROCESSING, GenerationStatus.UNKNOWN}


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """The code and message of an error, bounded in length and free of links."""

    code: str
    message: str

    @property
    def summary(self) -> str:
        """The code and message on one line; the message alone if there is no code."""
        return f"{self.code}: {self.message}" if self.code else self.message


@dataclass(frozen=True, slots=True)
class OutputLink:
    """A signed, short-lived download link (Service section 2.1). The URL is a secret (Law 8).

    `identity` is the output's id or name in the record, or None; it is the same in each read.
    """

    type: str
    url: str = field(repr=False)
    expires_at: datetime | None
    identity: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """The service's record of a generation (Service section 2.1). `status_word` is the status as it was sent."""

    id: str
    status: GenerationStatus
    status_word: str
    created_at: datetime | None
    cost_credits: int | None
    outputs: tuple[OutputLink, ...]
    error: ErrorInfo | None


# --- errors of any call -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Throttled:
    """429: a limit was reached. `retry_after` is service time; None if the service gave none."""

    retry_after: timedelta | None
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Unavailable:
    """503 or another 5xx. The outcome of a create is unknown (Service section 7)."""

    retry_after: timedelta | None
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class EdgeBlocked:
    """A 403 that is not JSON: the firewall in front of the API (Service section 7). The whole machine has to wait."""


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The connection failed or timed out, or the received bytes are not a reply of this API.

    `status` is None if nothing came at all.
    """

    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A success (2xx) without the requested content (Law 10). The outcome of a create is unknown (Law 2).

    `lacking` says what is missing, as "names no price". `shape` is the reply's names and types without values. `status`
    is 0 if the reply was a refusal. `remedy` is the configuration line to add to the profile, with a guessed path if
    there is one.
    """

    lacking: str
    shape: str
    status: int
    remedy: str | None = None


class AccountProblem(StrEnum):
    """The reason why an account cannot work until a person acts."""

    KEY_REFUSED = "key_refused"  # 401
    UPGRADE_REQUIRED = UPGRADE_CODE  # Service rule 5.4
    NO_CREDITS = "no_credits"  # 402, or another refusal that says so (Service rule 5.8)
    FORBIDDEN = "forbidden"  # any other JSON 403 (Service section 7)
    KEY_CONFLICT = "key_conflict"  # a 409 that persists for unchanged bytes
    REFUSED_ALIKE = "refused_alike"  # several consecutive creates were refused with the same text
    IDS_UNKNOWN = "ids_unknown"  # the service denies or repeats the value that is read as a generation id
    UNREACHABLE = "unreachable"  # no reply since the run began; noticed by this program
    OVERCHARGED = "overcharged"  # the service charged more than the maximum sent; detected by this program


@dataclass(frozen=True, slots=True)
class AccountBlocked:
    """The API refused the account or its key. Nothing was created, and waiting does not help."""

    problem: AccountProblem
    error: ErrorInfo


TransientError = Throttled | Unavailable | EdgeBlocked | NoResponse | NotUnderstood | AccountBlocked


class RefusalKind(StrEnum):
    """The reason for a refusal before anything was created."""

    INVALID = "invalid"
    OVER_QUOTE = "over_quote"  # the price rose since the quote (Service rule 4.6)
    ASSET_GONE = "asset_gone"  # expired, unknown or not ready (Service rule 2.2.5)


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was rejected before anything was created, and used no credits (Service section 7)."""

    kind: RefusalKind
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Accepted:
    """202: the generation was created, or an earlier one replayed (Service rule 3.3)."""

    record: GenerationRecord


@dataclass(frozen=True, slots=True)
class IdempotencyConflict:
    """409: the idempotency key was used with other bytes (Service rule 4.3)."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Busy:
    """The account's only slot is taken, or the first request under this idempotency key is still being processed.

    This says nothing about an earlier send of the same attempt (Law 2).
    """

    retry_after: timedelta | None
    error: ErrorInfo


CreateReply = Accepted | Refused | IdempotencyConflict | Busy | TransientError


@dataclass(frozen=True, slots=True)
class RecordRead:
    """A poll returned the generation's record."""

    record: GenerationRecord


@dataclass(frozen=True, slots=True)
class NotFound:
    """404 or 410 for an id that the service issued."""

    error: ErrorInfo


ReadReply = RecordRead | NotFound | TransientError


@dataclass(frozen=True, slots=True)
class Quoted:
    """The price in whole credits; a fraction is rounded up."""

    cost_credits: int


QuoteReply = Quoted | Refused | TransientError


@dataclass(frozen=True, slots=True)
class UploadTicket:
    """The upload link of one file. `url` and `headers` are secrets (Law 8)."""

    asset_id: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class UploadsPrepared:
    """One ticket per file, in the order requested."""

    tickets: tuple[UploadTicket, ...]


@dataclass(frozen=True, slots=True)
class BytesStored:
    """The storage accepted the file."""


@dataclass(frozen=True, slots=True)
class TicketRefused:
    """The storage refused the upload: the link expired or did not match. A new ticket is needed."""

    reason: str


@dataclass(frozen=True, slots=True)
class AssetsReady:
    """The URLs to use in `inputs`, one per asset, in the order requested."""

    urls: tuple[str, ...] = field(repr=False)


PrepareReply = UploadsPrepared | Refused | TransientError
PutReply = BytesStored | TicketRefused | NoResponse
CompleteReply = AssetsReady | Refused | TransientError


@dataclass(frozen=True, slots=True)
class BalanceRead:
    """The account's remaining credits; None if the reply could not be read."""

    credits: int | None


BalanceReply = BalanceRead | TransientError


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model of the catalog. None or an empty set means unreadable (contract, section 8)."""

    id: str
    modes: frozenset[str]
    resolutions: frozenset[str]
    aspect_ratios: frozenset[str]
    durations_seconds: frozenset[int]
    prompt_max_characters: int | None
    images_max: int | None


@dataclass(frozen=True, slots=True)
class CatalogRead:
    """The models of the catalog; empty if it could not be read."""

    models: tuple[ModelEntry, ...]


CatalogReply = CatalogRead | TransientError


@dataclass(frozen=True, slots=True)
class Described:
    """The service's OpenAPI document, with its title and version."""

    title: str | None
    version: str | None
    document: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)


DescribeReply = Described | TransientError


@dataclass(frozen=True, slots=True)
class DownloadStarted:
    """A download has begun at `offset_bytes`, which is 0 if the server ignored the range.

    `total_bytes` is the length of the whole file, or None. A later range request needs `etag`. `chunks` raises
    `DownloadBroken` if the connection ends early.
    """

    offset_bytes: int
    total_bytes: int | None
    media_type: str | None
    etag: str | None
    chunks: AsyncIterator[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """The link expired or was removed. A poll returns a fresh one (Service section 2.1)."""

    status: int


@dataclass(frozen=True, slots=True)
class LinkBarred:
    """The link, or a redirect of it, leads to an address that is not allowed; nothing was sent there.

    `reason` contains no address.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NotContinued:
    """The rest of a partial file cannot be fetched: the server sent another file or range. Start over."""

    reason: str


DownloadReply = DownloadStarted | LinkRefused | LinkBarred | NotContinued | NoResponse


class DownloadBroken(Exception):
    """The download stopped early. The bytes received are kept, and the rest is requested by range if possible."""


class DownloadUnusable(DownloadBroken):
    """All bytes were received, but they are not an output: an error page, or nothing. A retry may return the file."""


class DownloadTruncated(DownloadBroken):
    """All announced bytes were received, but the end that the file format requires is missing.

    `sha256` identifies the bytes received.
    """

    def __init__(self, message: str, *, sha256: str) -> None:
        """Initialize with the reason and the SHA-256 of the bytes, in hex."""
        super().__init__(message)
        self.sha256 = sha256
