"""The service's possible replies as closed unions, to be matched with `assert_never` at the end.

A lost reply is a value and not an exception, because credits may already be reserved (Service rule 3.1) and no caller
may forget it.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct, field

from batchkiln.core.provider import SUCCESS_WORDS, UPGRADE_CODE
from batchkiln.core.redacted import Redacted


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


class ErrorInfo(Struct, frozen=True):
    """The code and message of an error, bounded in length and free of links."""

    code: str
    message: str

    @property
    def summary(self) -> str:
        """The code and message on one line; the message alone if there is no code."""
        return f"{self.code}: {self.message}" if self.code else self.message


class OutputLink(Redacted, frozen=True):
    """A signed, short-lived download link (Service section 2.1). The URL is a secret (Law 8).

    `identity` is the output's id or name in the record, or None; it is the same in each read.
    """

    hidden: ClassVar = frozenset({"url", "identity"})

    type: str
    url: str
    expires_at: datetime | None
    identity: str | None = None


class GenerationRecord(Struct, frozen=True):
    """The service's record of a generation (Service section 2.1). `status_word` is the status as it was sent."""

    id: str
    status: GenerationStatus
    status_word: str
    created_at: datetime | None
    cost_credits: int | None
    outputs: tuple[OutputLink, ...]
    error: ErrorInfo | None


# --- errors of any call -------------------------------------------------------------------------------


class Throttled(Struct, frozen=True):
    """429: a limit was reached. `retry_after` is service time; None if the service gave none."""

    retry_after: timedelta | None
    error: ErrorInfo


class Unavailable(Struct, frozen=True):
    """503 or another 5xx. The outcome of a create is unknown (Service section 7)."""

    retry_after: timedelta | None
    error: ErrorInfo


class EdgeBlocked(Struct, frozen=True):
    """A 403 that is not JSON: the firewall in front of the API (Service section 7). The whole machine has to wait."""


class NoResponse(Struct, frozen=True):
    """The connection failed or timed out, or the received bytes are not a reply of this API.

    `status` is None if nothing came at all.
    """

    reason: str
    status: int | None = None


class NotUnderstood(Struct, frozen=True):
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


class AccountBlocked(Struct, frozen=True):
    """The API refused the account or its key. Nothing was created, and waiting does not help."""

    problem: AccountProblem
    error: ErrorInfo


TransientError = Throttled | Unavailable | EdgeBlocked | NoResponse | NotUnderstood | AccountBlocked


class RefusalKind(StrEnum):
    """The reason for a refusal before anything was created."""

    INVALID = "invalid"
    OVER_QUOTE = "over_quote"  # the price rose since the quote (Service rule 4.6)
    ASSET_GONE = "asset_gone"  # expired, unknown or not ready (Service rule 2.2.5)


class Refused(Struct, frozen=True):
    """The request was rejected before anything was created, and used no credits (Service section 7)."""

    kind: RefusalKind
    error: ErrorInfo


class Accepted(Struct, frozen=True):
    """202: the generation was created, or an earlier one replayed (Service rule 3.3)."""

    record: GenerationRecord


class IdempotencyConflict(Struct, frozen=True):
    """409: the idempotency key was used with other bytes (Service rule 4.3)."""

    error: ErrorInfo


class Busy(Struct, frozen=True):
    """The account's only slot is taken, or the first request under this idempotency key is still being processed.

    This says nothing about an earlier send of the same attempt (Law 2).
    """

    retry_after: timedelta | None
    error: ErrorInfo


CreateReply = Accepted | Refused | IdempotencyConflict | Busy | TransientError


class RecordRead(Struct, frozen=True):
    """A poll returned the generation's record."""

    record: GenerationRecord


class NotFound(Struct, frozen=True):
    """404 or 410 for an id that the service issued."""

    error: ErrorInfo


ReadReply = RecordRead | NotFound | TransientError


class Quoted(Struct, frozen=True):
    """The price in whole credits; a fraction is rounded up."""

    cost_credits: int


QuoteReply = Quoted | Refused | TransientError


class UploadTicket(Redacted, frozen=True):
    """The upload link of one file. `url` and `headers` are secrets (Law 8)."""

    hidden: ClassVar = frozenset({"url", "headers"})

    asset_id: str
    url: str
    headers: tuple[tuple[str, str], ...]


class UploadsPrepared(Struct, frozen=True):
    """One ticket per file, in the order requested."""

    tickets: tuple[UploadTicket, ...]


class BytesStored(Struct, frozen=True):
    """The storage accepted the file."""


class TicketRefused(Struct, frozen=True):
    """The storage refused the upload: the link expired or did not match. A new ticket is needed."""

    reason: str


class AssetsReady(Redacted, frozen=True):
    """The URLs to use in `inputs`, one per asset, in the order requested."""

    hidden: ClassVar = frozenset({"urls"})

    urls: tuple[str, ...]


PrepareReply = UploadsPrepared | Refused | TransientError
PutReply = BytesStored | TicketRefused | NoResponse
CompleteReply = AssetsReady | Refused | TransientError


class BalanceRead(Struct, frozen=True):
    """The account's remaining credits; None if the reply could not be read."""

    credits: int | None


BalanceReply = BalanceRead | TransientError


class ModelEntry(Struct, frozen=True):
    """A model of the catalog. None or an empty set means unreadable (contract, section 8)."""

    id: str
    modes: frozenset[str]
    resolutions: frozenset[str]
    aspect_ratios: frozenset[str]
    durations_seconds: frozenset[int]
    prompt_max_characters: int | None
    images_max: int | None


class CatalogRead(Struct, frozen=True):
    """The models of the catalog; empty if it could not be read."""

    models: tuple[ModelEntry, ...]


CatalogReply = CatalogRead | TransientError


class Described(Redacted, frozen=True):
    """The service's OpenAPI document, with its title and version."""

    hidden: ClassVar = frozenset({"document"})

    title: str | None
    version: str | None
    document: Mapping[str, object] = field(default_factory=dict)


DescribeReply = Described | TransientError


class DownloadStarted(Redacted, frozen=True):
    """A download has begun at `offset_bytes`, which is 0 if the server ignored the range.

    `total_bytes` is the length of the whole file, or None. A later range request needs `etag`. `chunks` raises
    `DownloadBroken` if the connection ends early.
    """

    hidden: ClassVar = frozenset({"chunks"})

    offset_bytes: int
    total_bytes: int | None
    media_type: str | None
    etag: str | None
    chunks: AsyncIterator[bytes]


class LinkRefused(Struct, frozen=True):
    """The link expired or was removed. A poll returns a fresh one (Service section 2.1)."""

    status: int


class LinkBarred(Struct, frozen=True):
    """The link, or a redirect of it, leads to an address that is not allowed; nothing was sent there.

    `reason` contains no address.
    """

    reason: str


class NotContinued(Struct, frozen=True):
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
