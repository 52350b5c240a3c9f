"""The service as the scheduler sees it: replies as values, a ledger of its own, and a judge of every limit.

It charges by idempotency key, lets one generation per account be active, and notes as a violation whatever a
client that keeps the service's rules would never do (`violations`). Replies can be scripted (`say`), lost
(`lose_reply`, `lose_request`), or decided by a rule.
"""

import itertools
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    AccountProblem,
    AssetsReady,
    BytesStored,
    CompleteReply,
    CreateReply,
    Described,
    DescribeReply,
    DownloadBroken,
    DownloadReply,
    DownloadStarted,
    ErrorInfo,
    GenerationRecord,
    GenerationStatus,
    IdempotencyConflict,
    LinkRefused,
    NoResponse,
    NotFound,
    OutputLink,
    PrepareReply,
    PutReply,
    Quoted,
    QuoteReply,
    ReadReply,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
    UploadsPrepared,
    UploadTicket,
)
from support.memory_files import CUT

from .fake_clock import FakeClock

LINK_LIFE = timedelta(minutes=15)
BUSY = ErrorInfo("active_generation_limit", "another generation of this account is active")


class Lost(Enum):
    """What a broken connection took away."""

    REQUEST = auto()
    REPLY = auto()


@dataclass(frozen=True, slots=True)
class Create:
    """A create as received, byte for byte."""

    account: str
    is_video: bool
    body: bytes
    idempotency_key: str
    key_fingerprint: str


@dataclass(slots=True)
class Generation:
    """The service's own record. `ends_as` is what it becomes after `duration`."""

    id: str
    account: str
    create: Create
    created_at: datetime
    cost: int
    duration: timedelta
    ends_as: GenerationStatus
    refunded: bool = False
    listings: int = 0  # how often its outputs were listed, where their order changes
    is_forgotten: bool = False

    def status(self, now: datetime) -> GenerationStatus:
        return self.ends_as if now >= self.created_at + self.duration else GenerationStatus.PROCESSING

    def is_active(self, now: datetime) -> bool:
        return now < self.created_at + self.duration


@dataclass(slots=True)
class Request:
    """One request of the API, as the limits count it."""

    account: str
    kind: str
    at: datetime


@dataclass(slots=True)
class FakeService:
    """One service with any number of accounts; `account(name)` is the scheduler's port to one of them."""

    clock: FakeClock
    limits: Limits = field(default_factory=Limits)
    day: ServiceDay = field(default_factory=ServiceDay)
    latency_seconds: float = 0.05
    latencies: dict[str, float] = field(default_factory=dict)  # by kind, where it is another
    duration_seconds: float = 30.0
    prices: dict[str, int] = field(default_factory=dict)
    outcomes: deque[GenerationStatus] = field(default_factory=deque)
    creates: list[Create] = field(default_factory=list)
    quotes: list[bytes] = field(default_factory=list)
    generations: dict[str, Generation] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    reads: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    violations: list[str] = field(default_factory=list)
    scripts: dict[str, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    rule: Callable[[str, str], Any] | None = None
    broken_files: AbstractSet[str] = frozenset()  # generations whose files are never there
    uploads: dict[str, bytes] = field(default_factory=dict)
    puts: list[bytes] = field(default_factory=list)  # contents, whether the storage took them or not
    outputs_count: int = 1  # of each success
    reorders: bool = False  # whether each listing of outputs has the other order
    paths_change: bool = False  # whether each record has other addresses for its outputs
    spoils: Callable[[str, bytes], bytes | None] = lambda _path, content: content  # what a download brings
    downloads: list[int] = field(default_factory=list)
    downloads_at: list[datetime] = field(default_factory=list)
    download_breaks_after: deque[int] = field(default_factory=deque)
    downloads_cut: int = 0  # so many bring what lacks the end of its format, in full length
    cuts_differ: bool = False  # whether each of them brings something else
    links_refused: int = 0
    tells_time: bool = True  # whether its replies have a Date
    dates_told: int = 0
    dates_needed: int = 1  # so many, until the clock believes them
    cost_told: Callable[[int, GenerationStatus], int | None] = lambda cost, _: cost  # what a record says it costs
    made_at_told: Callable[[datetime], datetime | None] = lambda made_at: made_at
    word_told: Callable[[GenerationStatus], str] = lambda status: status.value
    is_dead: bool = False
    _hosts: Iterator[int] = field(default_factory=itertools.count)
    _days: dict[tuple[str, str, datetime], int] = field(default_factory=lambda: defaultdict(int))

    # --- what tests say and ask ---

    def say(self, kind: str, *replies: object) -> None:
        """Answer the next requests of a kind with these, without doing anything."""
        self.scripts[kind].extend(replies)

    def lose_reply(self, kind: str = "create") -> None:
        self.say(kind, Lost.REPLY)

    def lose_request(self, kind: str = "create") -> None:
        self.say(kind, Lost.REQUEST)

    @property
    def charged(self) -> int:
        return sum(generation.cost for generation in self.generations.values())

    def charges_of(self, prompt: str) -> int:
        """Return how many generations of a prompt were paid and not refunded."""
        return sum(
            json.loads(generation.create.body)["prompt"] == prompt and not generation.refunded
            for generation in self.generations.values()
        )

    def account(self, name: str, keys: Sequence[str] = ("key-1",)) -> "FakeAccount":
        return FakeAccount(self, name, tuple(keys))

    # --- judging ---

    def count(self, account: str, kind: str) -> None:
        """Count a request in every window, and note what oversteps one."""
        now, limits = self.clock.instant, self.limits
        self.requests.append(Request(account, kind, now))
        since = now - timedelta(seconds=limits.minute_seconds)
        recent = [request for request in self.requests[-400:] if request.at > since]
        self._judge("machine minute", len(recent), limits.requests_per_minute_per_ip)
        for family, per_minute, per_day in (
            ({"create", "upload"}, limits.creates_per_minute, limits.creates_per_day),
            ({"read", "quote"}, limits.reads_per_minute, limits.reads_per_day),
        ):
            if kind in family:
                in_minute = sum(request.account == account and request.kind in family for request in recent)
                self._judge(f"{kind} minute", in_minute, per_minute)
                self._judge(f"{kind} day", self._count_day(account, min(family), 1), per_day)

    def _count_day(self, account: str, what: str, amount: int) -> int:
        place = (account, what, self.day.start_of(self.clock.instant))
        self._days[place] += amount
        return self._days[place]

    def _judge(self, what: str, used: int, limit: int) -> None:
        if used > limit:
            self.violations.append(f"{self.clock.instant}: {what}: {used} of {limit}")

    # --- answering ---

    async def exchange(self, kind: str, account: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401  any reply
        """Travel there, decide or do the work, travel back."""
        latency = self.latencies.get(kind, self.latency_seconds)
        await self.clock.sleep(latency)
        script = self.scripts[kind].popleft() if self.scripts[kind] else None
        if script is None and self.rule is not None:
            script = self.rule(kind, account)
        if script is Lost.REQUEST or self.is_dead:
            return NoResponse("the connection was refused")
        if kind not in {"put", "download"}:
            self.count(account, kind)
        reply = work() if script is None or script is Lost.REPLY else script
        await self.clock.sleep(latency)
        if script is Lost.REPLY or self.is_dead:
            return NoResponse("the connection broke")
        self.dates_told += self.tells_time
        self.clock.is_observed |= self.dates_told >= self.dates_needed
        self.clock.is_doubted = self.dates_told > 0 and not self.clock.is_observed
        return reply

    def price(self, body: dict[str, Any]) -> int:
        model: str = body["model"]
        return self.prices.get(model, int(model.rpartition("-")[2]))

    def create(self, create: Create) -> CreateReply:
        now, body = self.clock.instant, json.loads(create.body)
        for generation in self.generations.values():
            if generation.create.idempotency_key == create.idempotency_key:
                if generation.create != create:
                    self.violations.append(f"{create.idempotency_key} came with other bytes or another API key")
                    return IdempotencyConflict(ErrorInfo("idempotency_conflict", "the same key with another body"))
                return Accepted(self.record(generation))
        if any(entry.account == create.account and entry.is_active(now) for entry in self.generations.values()):
            self.violations.append(f"{now}: a create while a generation of ours is active")
            return Throttled(None, BUSY)
        cost = self.price(body)
        if "max_cost_credits" not in body:
            self.violations.append("a create without max_cost_credits")
        if cost > body["max_cost_credits"]:
            return Refused(RefusalKind.OVER_QUOTE, ErrorInfo("over_quote", "the quote is higher"))
        for image in body.get("inputs", ()):
            if image["url"] not in self.uploads:
                return Refused(RefusalKind.ASSET_GONE, ErrorInfo("asset_expired", "the asset has expired"))
        self._judge("credits", self._count_day(create.account, "credits", cost), self.limits.credits_per_day)
        outcome = self.outcomes.popleft() if self.outcomes else GenerationStatus.SUCCESS
        generation = Generation(
            id=f"gen-{len(self.generations) + 1}",
            account=create.account,
            create=create,
            created_at=now,
            cost=cost,
            duration=timedelta(seconds=self.duration_seconds),
            ends_as=outcome,
        )
        self.generations[generation.id] = generation
        return Accepted(self.record(generation))

    def read(self, generation_id: str, key_fingerprint: str) -> ReadReply:
        if generation_id not in self.generations:
            return NotFound(ErrorInfo("not_found", "no such generation"))
        now, generation = self.clock.instant, self.generations[generation_id]
        seen = self.reads[generation_id]
        last = seen[-1] if seen else generation.created_at
        if now - last < timedelta(seconds=self.limits.poll_interval_seconds) and generation.is_active(now):
            self.violations.append(f"{generation_id} was read after {now - last}")
        seen.append(now)
        if key_fingerprint != generation.create.key_fingerprint:
            self.violations.append(f"{generation_id} was read with another API key")
        if generation.is_forgotten:
            return NotFound(ErrorInfo("not_found", "no such generation"))
        return RecordRead(self.record(generation))

    def record(self, generation: Generation) -> GenerationRecord:
        now = self.clock.instant
        status = generation.status(now)
        if status is GenerationStatus.FAILED:
            generation.refunded = True
        count = self.outputs_count if status is GenerationStatus.SUCCESS else 0
        until, host = (now + LINK_LIFE).timestamp(), f"files-{next(self._hosts)}" if self.paths_change else "files"
        paths = [generation.id, *(f"{generation.id}/{number}" for number in range(2, count + 1))][:count]
        links = tuple(OutputLink("image", f"https://{host}/{path}?until={until}", now + LINK_LIFE) for path in paths)
        if count and self.reorders:
            generation.listings += 1
            links = links if generation.listings % 2 else links[::-1]
        word = self.word_told(status)
        return GenerationRecord(
            id=generation.id,
            status=GenerationStatus.of(word),
            status_word=word,
            created_at=self.made_at_told(generation.created_at),
            cost_credits=self.cost_told(generation.cost, status),
            outputs=links,
            error=ErrorInfo("model_error", "it failed") if status is GenerationStatus.FAILED else None,
        )


def content_of(generation_id: str) -> bytes:
    """Return the bytes of a generation's one output."""
    return f"the picture of {generation_id}".encode() * 8


@dataclass(slots=True)
class FakeAccount:
    """The scheduler's port to one account; `keys` are fingerprints, the newest first."""

    service: FakeService
    name: str
    keys: tuple[str, ...]

    @property
    def newest_key(self) -> str:
        return self.keys[0]

    @property
    def fingerprints(self) -> frozenset[str]:
        return frozenset(self.keys)

    def has_key(self, fingerprint: str) -> bool:
        return fingerprint in self.keys

    async def create(self, *, is_video: bool, body: bytes, idempotency_key: str, key_fingerprint: str) -> CreateReply:
        assert self.has_key(key_fingerprint)
        create = Create(self.name, is_video, body, idempotency_key, key_fingerprint)
        self.service.creates.append(create)
        reply: CreateReply = await self.service.exchange("create", self.name, lambda: self.service.create(create))
        return reply

    async def read_generation(self, generation_id: str, *, key_fingerprint: str) -> ReadReply:
        assert self.has_key(key_fingerprint)
        reply: ReadReply = await self.service.exchange(
            "read", self.name, lambda: self.service.read(generation_id, key_fingerprint)
        )
        return reply

    async def quote(self, body: bytes) -> QuoteReply:
        self.service.quotes.append(body)
        reply: QuoteReply = await self.service.exchange(
            "quote", self.name, lambda: Quoted(self.service.price(json.loads(body)))
        )
        return reply

    async def describe(self) -> DescribeReply:
        reply: DescribeReply = await self.service.exchange("other", self.name, lambda: Described("fake", "1"))
        return reply

    async def prepare_uploads(self, files: Sequence[tuple[str, str, int]]) -> PrepareReply:
        tickets = tuple(UploadTicket(name, f"https://put/{name}", ()) for name, _, _ in files)
        reply: PrepareReply = await self.service.exchange("upload", self.name, lambda: UploadsPrepared(tickets))
        return reply

    async def put_upload(
        self, ticket: UploadTicket, content: Callable[[], AsyncIterator[bytes]], size_bytes: int
    ) -> PutReply:
        content_bytes = b"".join([chunk async for chunk in content()])
        assert len(content_bytes) == size_bytes
        self.service.puts.append(content_bytes)

        def store() -> BytesStored:
            self.service.uploads[f"https://assets/{ticket.asset_id}"] = content_bytes
            return BytesStored()

        reply: PutReply = await self.service.exchange("put", self.name, store)
        return reply

    async def complete_uploads(self, asset_ids: Sequence[str]) -> CompleteReply:
        urls = tuple(f"https://assets/{asset_id}" for asset_id in asset_ids)
        reply: CompleteReply = await self.service.exchange("upload", self.name, lambda: AssetsReady(urls))
        return reply

    @asynccontextmanager
    async def download(
        self, link: OutputLink, *, offset_bytes: int = 0, etag: str | None = None
    ) -> AsyncIterator[DownloadReply]:
        assert offset_bytes == 0 or etag is not None
        self.service.downloads.append(offset_bytes)
        self.service.downloads_at.append(self.service.clock.instant)
        yield await self.service.exchange("download", self.name, lambda: self._open(link, offset_bytes))

    def _open(self, link: OutputLink, offset_bytes: int) -> DownloadReply:
        path = urlsplit(link.url).path[1:]
        if path in self.service.broken_files:
            return LinkRefused(404)
        if self.service.links_refused or (link.expires_at and self.service.clock.instant > link.expires_at):
            self.service.links_refused = max(0, self.service.links_refused - 1)
            return LinkRefused(403)
        content = self.service.spoils(path, content_of(path))
        if content is None:
            return LinkRefused(404)
        if self.service.downloads_cut:
            self.service.downloads_cut -= 1
            content = content[: 9 + self.service.downloads_cut % 50 * self.service.cuts_differ] + CUT
        breaks = self.service.download_breaks_after
        whole = DownloadStarted(offset_bytes, len(content), "image/png", "etag", _chunks(content[offset_bytes:]))
        return replace(whole, chunks=_chunks(content[offset_bytes:], breaks.popleft())) if breaks else whole


def refusing(kind: str) -> Callable[[str, str], AccountBlocked | None]:
    """Return a rule by which each request of a kind is refused for its API key."""

    def rule(asked: str, _account: str) -> AccountBlocked | None:
        refusal = ErrorInfo("invalid_api_key", "the key was revoked")
        return AccountBlocked(AccountProblem.KEY_REFUSED, refusal) if asked == kind else None

    return rule


async def _chunks(content: bytes, breaks_after: int | None = None) -> AsyncIterator[bytes]:
    yield content[:breaks_after]
    if breaks_after is not None:
        raise DownloadBroken("the connection broke")
