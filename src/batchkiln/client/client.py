"""The client of one account: sends each request once, and returns its reply as a value.

Nothing here retries, waits or follows redirects, because a hidden second request would use up limits (Service section
8) that the planner counts. Network errors become `NoResponse`; only cancellation is raised.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

import aiohttp
import structlog
from multidict import MultiMapping
from yarl import URL

from batchkiln.client import parse, transfers
from batchkiln.client.http_response import RawReply, read_date
from batchkiln.client.http_session import (
    NETWORK_ERRORS,
    NO_REPLY,
    RequestMeter,
    Sending,
    Timeouts,
    describe_network_error,
)
from batchkiln.client.model_catalog import parse_catalog
from batchkiln.client.openapi import hints_from_openapi
from batchkiln.client.reply_mapping import ReplyMapping
from batchkiln.client.uploads import numeric_ids
from batchkiln.core import provider
from batchkiln.core.errors import InputError, InvariantBroken
from batchkiln.core.responses import (
    BalanceReply,
    CatalogReply,
    CompleteReply,
    CreateReply,
    Described,
    DescribeReply,
    DownloadReply,
    NoResponse,
    OutputLink,
    PrepareReply,
    PutReply,
    QuoteReply,
    ReadReply,
    TicketRefused,
    UploadsPrepared,
    UploadTicket,
)

# The prefix makes the fingerprint differ from a plain SHA-256 of the key, which others may store.
_DOMAIN: Final = b"batchkiln/api-key/1:"


def fingerprint(api_key: str) -> str:
    """Return a key's identifier, `k-` and 16 hex digits; the queue stores it instead of the key."""
    return "k-" + hashlib.sha256(_DOMAIN + api_key.encode()).hexdigest()[:16]


class ApiKeys:
    """API keys by fingerprint, newest first. Neither `repr` nor an exception shows a key."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Take keys by fingerprint. Raise `InputError` for a key that cannot be sent in a header."""
        for name, key in keys.items():
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise InputError(f"The API key {name} is empty or contains characters that a key cannot have.")
        self._keys = dict(keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(self._keys)})"

    @property
    def fingerprints(self) -> frozenset[str]:
        """All fingerprints."""
        return frozenset(self._keys)

    @property
    def newest(self) -> str:
        """The fingerprint of the key that new attempts use."""
        if not self._keys:
            raise InvariantBroken("An account without an API key cannot call the service.")
        return next(iter(self._keys))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys themselves, to be removed from texts that are stored."""
        return tuple(self._keys.values())

    def authorization(self, name: str) -> dict[str, str]:
        """Return the `Authorization` header for a fingerprint.

        The caller checks `in` first, because only the user can restore a key that is no longer configured.
        """
        if name not in self._keys:
            raise InvariantBroken(f"No API key with the fingerprint {name} is configured.")
        return {"Authorization": f"Bearer {self._keys[name]}"}


REPLY_MAX_BYTES: Final = 4 * 1024 * 1024
CATALOG_MAX_BYTES: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_NUMBERS_MAX: Final = 1000

_log = structlog.get_logger(__name__)


class ReplyClock(Protocol):
    """The clock that requests are timed with, and that learns the service's time."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def observe_date(self, date: datetime, *, sent_at: float, received_at: float) -> None:
        """Record a reply's `Date`; `sent_at` and `received_at` are readings of `monotonic`."""


class ServiceClient:
    """A client of one account of one service. API keys are named by fingerprint and never shown (Law 8)."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        base_url: str,
        keys: Mapping[str, str],
        clock: ReplyClock,
        timeouts: Timeouts = Timeouts(),  # noqa: B008  frozen, so a shared default is safe
        meter: RequestMeter | None = None,
        allows_http_links: bool = False,
        mapping: ReplyMapping | None = None,
        guard: Callable[[], None] | None = None,
    ) -> None:
        """Take an open session, and API keys by fingerprint, newest first. Raise `InputError`.

        Links with plain http from a service with https are accepted only if `allows_http_links`. `mapping` contains the
        user's rules for reading replies; clients of one service share it, because `describe` adds hints to it. `guard`
        is called right before the bytes of each API request leave; an exception that it raises prevents the send.
        """
        self._mapping = mapping or ReplyMapping()
        self._numbers: frozenset[str] = frozenset()  # ids of recent upload tickets that were numbers
        self._meter = meter or RequestMeter()
        self._session = session
        self._base = _checked_base(base_url)
        self._guard = transfers.LinkGuard(URL(self._base).origin(), allows_http=allows_http_links)
        self._keys = ApiKeys(keys)
        self._clock = clock
        self._timeouts = timeouts
        self._sending = Sending(guard)

    def __repr__(self) -> str:
        return f"ServiceClient({self._keys!r})"

    @property
    def newest_key(self) -> str:
        """The fingerprint of the key that new attempts use."""
        return self._keys.newest

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of all configured keys."""
        return self._keys.fingerprints

    def has_key(self, fingerprint: str) -> bool:
        """Return whether the key with this fingerprint is configured (Law 2)."""
        return fingerprint in self._keys

    async def create(self, *, is_video: bool, body: bytes, idempotency_key: str, key_fingerprint: str) -> CreateReply:
        """Send these exact bytes under this idempotency key, once (Service rules 4.1 and 4.2).

        After `Throttled`, `EdgeBlocked`, `AccountBlocked`, `IdempotencyConflict`, `Busy` and `Refused`, this send
        created nothing. After `NoResponse`, `Unavailable` and `NotUnderstood`, the outcome is unknown.
        """
        headers = self._keys.authorization(key_fingerprint) | {provider.IDEMPOTENCY_HEADER: idempotency_key}
        raw = await self._call("POST", provider.create_path(is_video=is_video), headers=headers, body=body)
        return raw if isinstance(raw, NoResponse) else parse.parse_create(raw, self._mapping)

    async def read_generation(self, generation_id: str, *, key_fingerprint: str) -> ReadReply:
        """Poll a generation with the API key that created it (Service rule 5.7)."""
        path = provider.generation_path(generation_id)
        raw = await self._call("GET", path, headers=self._keys.authorization(key_fingerprint))
        return raw if isinstance(raw, NoResponse) else parse.parse_read(raw, generation_id, self._mapping)

    async def quote(self, body: bytes) -> QuoteReply:
        """Ask for the cost of a request; nothing is generated or charged (Service section 2.4)."""
        raw = await self._call("POST", provider.QUOTES, headers=self._newest_authorization(), body=body)
        return raw if isinstance(raw, NoResponse) else parse.parse_quote(raw, self._mapping)

    async def prepare_uploads(self, files: Sequence[tuple[str, str, int]]) -> PrepareReply:
        """Request upload tickets for one to five files of (name, media type, size in bytes) (Service section 8)."""
        if not 0 < len(files) <= provider.UPLOADS_MAX_FILES:
            raise InvariantBroken(
                f"An upload request takes one to {provider.UPLOADS_MAX_FILES} files, not {len(files)}."
            )
        body = _json({"files": [{"name": name, "type": kind, "size": size} for name, kind, size in files]})
        raw = await self._call("POST", provider.UPLOADS, headers=self._newest_authorization(), body=body)
        if isinstance(raw, NoResponse):
            return raw
        reply = parse.parse_prepare(raw, [name for name, _, _ in files], self._mapping)
        if isinstance(reply, UploadsPrepared):
            numbers = numeric_ids(raw.document(), [ticket.asset_id for ticket in reply.tickets])
            self._numbers = numbers | (self._numbers if len(self._numbers) < _NUMBERS_MAX else frozenset())
        return reply

    async def put_upload(
        self, ticket: UploadTicket, content: Callable[[], AsyncIterator[bytes]], size_bytes: int
    ) -> PutReply:
        """Upload a file's bytes with the ticket's headers and without an API key.

        Exceptions raised by `content` propagate.
        """
        url = self._absolute(ticket.url)
        if url is None:
            return NoResponse("the upload URL is malformed")
        if (rejection := self._guard.rejection(self._guard.origin, url)) is not None:
            return TicketRefused(rejection.reason)
        return await transfers.put(
            self._session,
            url,
            headers=ticket.headers,
            content=content,
            size_bytes=size_bytes,
            timeout=self._timeouts.for_uploads(),
        )

    async def complete_uploads(self, asset_ids: Sequence[str]) -> CompleteReply:
        """Exchange asset ids for the URLs to use in `inputs`."""
        ids = [int(asset_id) if asset_id in self._numbers else asset_id for asset_id in asset_ids]
        body = _json({"asset_ids": ids})
        raw = await self._call("POST", provider.UPLOADS_COMPLETE, headers=self._newest_authorization(), body=body)
        return raw if isinstance(raw, NoResponse) else parse.parse_complete(raw, asset_ids, self._mapping)

    async def models(self) -> CatalogReply:
        """Read the model catalog."""
        headers = self._newest_authorization()
        raw = await self._call("GET", provider.MODELS, headers=headers, max_bytes=CATALOG_MAX_BYTES)
        return raw if isinstance(raw, NoResponse) else parse_catalog(raw, self._mapping)

    async def balance(self) -> BalanceReply:
        """Read the account's remaining credits."""
        raw = await self._call("GET", provider.BALANCE, headers=self._newest_authorization())
        return raw if isinstance(raw, NoResponse) else parse.parse_balance(raw, self._mapping)

    async def describe(self) -> DescribeReply:
        """Read the OpenAPI document without an API key (Service rule 5.9), and add its hints to the mapping."""
        headers = {"Cache-Control": "no-cache"}  # its Date sets the clock first, and a cached one would be too old
        raw = await self._call("GET", provider.DESCRIPTION, headers=headers, max_bytes=CATALOG_MAX_BYTES)
        reply = raw if isinstance(raw, NoResponse) else parse.parse_describe(raw)
        if isinstance(reply, Described):
            self._mapping.hints = hints_from_openapi(reply.document)
        return reply

    def download(
        self, link: OutputLink, *, offset_bytes: int = 0, etag: str | None = None
    ) -> AbstractAsyncContextManager[DownloadReply]:
        """Download an output without an API key (its link is signed), from `offset_bytes` on if `etag` is known."""
        return transfers.download(
            self._session,
            self._absolute(link.url),
            offset_bytes=offset_bytes,
            etag=etag,
            guard=self._guard,
            timeouts=self._timeouts,
        )

    def _newest_authorization(self) -> dict[str, str]:
        return self._keys.authorization(self._keys.newest)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        max_bytes: int = REPLY_MAX_BYTES,
    ) -> RawReply | NoResponse:
        """Send one request and read its whole reply."""
        reply = await self._send(method, path, headers=headers, body=body, max_bytes=max_bytes)
        self._on_reply(reply)
        return reply

    def _on_reply(self, reply: RawReply | NoResponse) -> None:
        """Handle each reply before it is parsed; for subclasses."""

    async def _send(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None, max_bytes: int
    ) -> RawReply | NoResponse:
        """Send one request, record its latency, and report the reply's date to the clock."""
        sent = {"Accept": "application/json", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent_at = self._clock.monotonic()
        try:
            async with self._session.request(
                method,
                URL(self._base + path, encoded=True),
                data=body,
                headers=sent,
                allow_redirects=False,
                timeout=self._timeouts.for_calls(),
                trace_request_ctx=self._sending,
            ) as response:
                came_at = self._clock.monotonic()
                content = await _read_bounded(response, max_bytes)
        except NETWORK_ERRORS as fault:
            reply = NoResponse(describe_network_error(fault))
            _log.debug("reply_lost", call=f"{method} {path.split('/')[1]}", reason=reply.reason)
            self._meter.record(path, NO_REPLY, self._clock.monotonic() - sent_at)
            return reply
        self._meter.record(path, str(response.status), self._clock.monotonic() - sent_at)
        if content is None:
            return NoResponse(f"the reply is longer than {max_bytes} bytes")
        names = {name.lower(): value for name, value in response.headers.items()}
        raw = RawReply(response.status, names, content, self._keys.secrets)
        self._observe_date(raw, response.headers, sent_at, came_at)
        return raw

    def _observe_date(self, raw: RawReply, headers: MultiMapping[str], sent_at: float, came_at: float) -> None:
        """Report the service's date to the clock, unless a cache or a proxy answered.

        A cached copy has the copy's date. RFC 9111 marks it with `Age`, and 0 means a reply that was just fetched. The
        age is not added to the date, because an unknown clock measured it, and the next reply about money has a date of
        its own. A proxy's page is not a JSON object (Service sections 2 and 7).
        """
        date = read_date(headers.get("Date"))
        is_fresh = set(headers.getall("Age", ["0"])) == {"0"}
        if date is not None and is_fresh and isinstance(raw.document(), dict):
            self._clock.observe_date(date, sent_at=sent_at, received_at=came_at)

    def _absolute(self, link: str) -> URL | None:
        """Return a link of the service as a URL, byte for byte, because re-encoding would break its signature."""
        try:
            url = URL(link, encoded=True)
            return url if url.absolute else URL(self._base).origin().join(url)
        except ValueError:
            return None


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Return the whole body; close the connection and return None if it is longer than `max_bytes`."""
    pieces: list[bytes] = []
    size_bytes = 0
    async for piece in response.content.iter_chunked(_READ_BYTES):
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            response.close()
            return None
        pieces.append(piece)
    return b"".join(pieces)


def _checked_base(base_url: str) -> str:
    try:
        url = URL(base_url)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host or url.query_string or url.user:
        raise InputError("The base URL must look like https://host/api/v1, without a user name or a query.")
    return str(url).rstrip("/")


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
