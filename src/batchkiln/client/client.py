"""The service's API for one account: sends each request once, and gives back a reply as a value.

Nothing here retries, waits or follows redirects: a hidden second request would spend limits (Service section 8)
behind the planner. Every fault of the network is a `NoResponse`; only cancellation passes through.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import quote as percent_encoded

import aiohttp
import structlog
from multidict import MultiMapping
from yarl import URL

from batchkiln.client import parse, transfers
from batchkiln.client.api_keys import Keys
from batchkiln.client.catalog import parse_catalog
from batchkiln.client.described import learned_hints
from batchkiln.client.guide import Guide
from batchkiln.client.http_response import RawReply, read_date
from batchkiln.client.http_session import Timeouts
from batchkiln.client.network_errors import FAULTS, describe_fault
from batchkiln.client.request_metrics import NO_REPLY, RequestMeter
from batchkiln.client.uploads import told_as_numbers
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

REPLY_MAX_BYTES: Final = 4 * 1024 * 1024
CATALOG_MAX_BYTES: Final = 16 * 1024 * 1024
UPLOADS_MAX_FILES: Final = 5  # Service section 8
_READ_BYTES: Final = 64 * 1024
_NUMBERS_MAX: Final = 1000

_log = structlog.get_logger(__name__)


class ReplyClock(Protocol):
    """What the client asks of the clock: an instant to measure with, and to learn the service's time."""

    def monotonic(self) -> float:
        """Give seconds that never go back."""

    def observe_date(self, date: datetime, *, sent_at: float, received_at: float) -> None:
        """Take the `Date` of a reply; the other two are readings of `monotonic` around the request."""


class ServiceClient:
    """One account of one service. Its API keys are named by fingerprint and never shown (Law 8)."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        base_url: str,
        keys: Mapping[str, str],
        clock: ReplyClock,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen, so sharing one default is safe
        meter: RequestMeter | None = None,
        allows_http_links: bool = False,
        guide: Guide | None = None,
    ) -> None:
        """Take a session of `new_session` and fingerprint -> key, the newest first. Raises `InputError`.

        Links of a service with https may lead to plain http only with `allows_http_links`. `guide` is what a person
        says of the service's replies; the clients of one service share it, since what its description says is learned
        by one of them (`describe`).
        """
        self._guide = guide or Guide()
        self._numbers: frozenset[str] = frozenset()  # identifiers of the last preparations that came as numbers
        self._meter = meter or RequestMeter()
        self._session = session
        self._base = _checked_base(base_url)
        self._guard = transfers.LinkGuard(URL(self._base).origin(), allows_http=allows_http_links)
        self._keys = Keys(keys)
        self._clock = clock
        self._timeouts = timeouts

    def __repr__(self) -> str:
        return f"ServiceClient({self._keys!r})"

    @property
    def newest_key(self) -> str:
        """The fingerprint of the key that new attempts are bound to."""
        return self._keys.newest

    @property
    def fingerprints(self) -> frozenset[str]:
        """The fingerprints of all configured keys."""
        return self._keys.names

    def has_key(self, fingerprint: str) -> bool:
        """Whether the key that an attempt is bound to is configured (Law 2)."""
        return fingerprint in self._keys

    async def create(self, *, is_video: bool, body: bytes, idempotency_key: str, key_fingerprint: str) -> CreateReply:
        """Send exactly these bytes under this key, once (Service rules 4.1 and 4.2).

        `Throttled`, `EdgeBlocked`, `AccountBlocked`, `KeyConflict` and `Refused` say that this send created
        nothing; after `NoResponse` and `Unavailable` the outcome is unknown.
        """
        headers = self._keys.authorization(key_fingerprint) | {"Idempotency-Key": idempotency_key}
        raw = await self._call("POST", "/videos" if is_video else "/images", headers=headers, body=body)
        return raw if isinstance(raw, NoResponse) else parse.parse_create(raw, self._guide)

    async def read_generation(self, generation_id: str, *, key_fingerprint: str) -> ReadReply:
        """Poll a generation with the API key that created it (Service rule 5.7)."""
        path = f"/generations/{_segment(generation_id)}"
        raw = await self._call("GET", path, headers=self._keys.authorization(key_fingerprint))
        return raw if isinstance(raw, NoResponse) else parse.parse_read(raw, generation_id, self._guide)

    async def quote(self, body: bytes) -> QuoteReply:
        """Ask what a request would cost; nothing is generated or charged (Service section 2.4)."""
        raw = await self._call("POST", "/quotes", headers=self._newest_authorization(), body=body)
        return raw if isinstance(raw, NoResponse) else parse.parse_quote(raw, self._guide)

    async def prepare_uploads(self, files: Sequence[tuple[str, str, int]]) -> PrepareReply:
        """Ask where to put files, given as (name, media type, size in bytes), at most five (Service section 8)."""
        if not 0 < len(files) <= UPLOADS_MAX_FILES:
            raise InvariantBroken(f"An upload request takes one to {UPLOADS_MAX_FILES} files, not {len(files)}.")
        body = _json({"files": [{"name": name, "type": kind, "size": size} for name, kind, size in files]})
        raw = await self._call("POST", "/uploads", headers=self._newest_authorization(), body=body)
        if isinstance(raw, NoResponse):
            return raw
        reply = parse.parse_prepare(raw, [name for name, _, _ in files], self._guide)
        if isinstance(reply, UploadsPrepared):
            numbers = told_as_numbers(raw.document(), [ticket.asset_id for ticket in reply.tickets])
            self._numbers = numbers | (self._numbers if len(self._numbers) < _NUMBERS_MAX else frozenset())
        return reply

    async def put_upload(
        self, ticket: UploadTicket, content: Callable[[], AsyncIterator[bytes]], size_bytes: int
    ) -> PutReply:
        """Send a file's bytes to its upload url with the ticket's headers and no key of ours.

        What `content` raises passes through.
        """
        url = self._absolute(ticket.url)
        if url is None:
            return NoResponse("the upload url is not an address")
        if (barred := self._guard.bars(self._guard.origin, url)) is not None:
            return TicketRefused(barred.reason)
        return await transfers.put(
            self._session,
            url,
            headers=ticket.headers,
            content=content,
            size_bytes=size_bytes,
            timeout=self._timeouts.of_uploads(),
        )

    async def complete_uploads(self, asset_ids: Sequence[str]) -> CompleteReply:
        """Ask for the urls of uploaded assets, for use in `inputs`."""
        told = [int(asset_id) if asset_id in self._numbers else asset_id for asset_id in asset_ids]
        body = _json({"asset_ids": told})
        raw = await self._call("POST", "/uploads/complete", headers=self._newest_authorization(), body=body)
        return raw if isinstance(raw, NoResponse) else parse.parse_complete(raw, asset_ids, self._guide)

    async def models(self) -> CatalogReply:
        """Read the catalog."""
        headers = self._newest_authorization()
        raw = await self._call("GET", "/models", headers=headers, max_bytes=CATALOG_MAX_BYTES)
        return raw if isinstance(raw, NoResponse) else parse_catalog(raw, self._guide)

    async def balance(self) -> BalanceReply:
        """Read the account's remaining credits."""
        raw = await self._call("GET", "/credits/balance", headers=self._newest_authorization())
        return raw if isinstance(raw, NoResponse) else parse.parse_balance(raw, self._guide)

    async def describe(self) -> DescribeReply:
        """Read the service's description, without a key (Service rule 5.9), and learn where fields stand."""
        headers = {"Cache-Control": "no-cache"}  # its Date is the first word on the time, and a stored one is too old
        raw = await self._call("GET", "/openapi.json", headers=headers, max_bytes=CATALOG_MAX_BYTES)
        reply = raw if isinstance(raw, NoResponse) else parse.parse_describe(raw)
        if isinstance(reply, Described):
            self._guide.hints = learned_hints(reply.document)
        return reply

    def download(
        self, link: OutputLink, *, offset_bytes: int = 0, etag: str | None = None
    ) -> AbstractAsyncContextManager[DownloadReply]:
        """Fetch an output, from `offset_bytes` on where its `etag` is known; without our key (it is a signed link)."""
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
        """Send one request and read its whole reply; tell the clock the service's date."""
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
                timeout=self._timeouts.of_calls(),
            ) as response:
                came_at = self._clock.monotonic()
                content = await _read_bounded(response, max_bytes)
        except FAULTS as fault:
            reply = NoResponse(describe_fault(fault))
            _log.debug("reply_lost", call=f"{method} {path.split('/')[1]}", reason=reply.reason)
            self._meter.note(path, NO_REPLY, self._clock.monotonic() - sent_at)
            return reply
        self._meter.note(path, str(response.status), self._clock.monotonic() - sent_at)
        if content is None:
            return NoResponse(f"the reply is longer than {max_bytes} bytes")
        names = {name.lower(): value for name, value in response.headers.items()}
        raw = RawReply(response.status, names, content, self._keys.secrets)
        self._tell_date(raw, response.headers, sent_at, came_at)
        return raw

    def _tell_date(self, raw: RawReply, headers: MultiMapping[str], sent_at: float, came_at: float) -> None:
        """Tell the clock the service's date, unless a cache answered with a copy: its date is that of the copy.

        Nor does a page of a proxy tell it: only a JSON object is a reply of the API (Service sections 2 and 7).
        An Age says so (RFC 9111), and zero is said of replies that were just fetched. It is not added to the date: it
        is the cache's own reckoning, by a clock that nobody knows, and the next reply about money tells the time.
        """
        date = read_date(headers.get("Date"))
        is_fresh = set(headers.getall("Age", ["0"])) == {"0"}
        if date is not None and is_fresh and isinstance(raw.document(), dict):
            self._clock.observe_date(date, sent_at=sent_at, received_at=came_at)

    def _absolute(self, link: str) -> URL | None:
        """Give a link of the service as a URL, byte for byte: any other quoting would break its signature."""
        try:
            url = URL(link, encoded=True)
            return url if url.absolute else URL(self._base).origin().join(url)
        except ValueError:
            return None


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Read the whole body; None, and the connection closed, where it is longer than `max_bytes`."""
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


def _segment(generation_id: str) -> str:
    """Write an id as one path segment; a dot segment would be another address."""
    segment = percent_encoded(generation_id, safe="")
    return segment.replace(".", "%2E") if segment in {".", ".."} else segment


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
