"""Asking what things cost before anything is paid: one quote for each price, which costs nothing (Service section 4).

The account's read window is kept, with room left for a process that drives the queue meanwhile. An image is only
uploaded to a local service that is gone afterwards; elsewhere, uploads that the account already has stand in, since
a price depends on their number alone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import inf
from typing import Final, TypeVar, assert_never

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.api.local_service import temporary_service
from batchkiln.api.service_clients import new_service_client
from batchkiln.client import ServiceClient, fingerprint, new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.error_text import describe_error
from batchkiln.core.errors import ExitStatus, InputError, QueueBusy
from batchkiln.core.rate_limits import RECENT_MINUTES, DayUsage, HeldUntil, LoggedRequest, RateLimits, RequestKind
from batchkiln.core.request import request_body
from batchkiln.core.responses import (
    AccountBlocked,
    AssetsReady,
    BalanceRead,
    EdgeBlocked,
    ErrorInfo,
    NoResponse,
    NotUnderstood,
    Quoted,
    Refused,
    Throttled,
    TransientError,
    Unavailable,
    UploadsPrepared,
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.inputs import LocalInputs
from batchkiln.planning.queue_access import QueueAccess
from batchkiln.presentation.forecasts import usage_today
from batchkiln.store import AccountSummary, PriceQuestion, Reader

T = TypeVar("T")

LONGEST_WAIT_SECONDS: Final = 120.0
"""How long, in service time, a pause that the service asks for is waited out; a longer one is only told."""

TRIES: Final = 3
_FILES_PER_REQUEST: Final = 5  # Service section 8


@dataclass(frozen=True, slots=True)
class AccountState:
    """What the queue knows of an account whose prices are asked: today's usage, recent requests, an imposed wait."""

    now: datetime
    usage: DayUsage = field(default_factory=DayUsage)
    logged: tuple[LoggedRequest, ...] = ()  # of all accounts of the profile, oldest first
    account_id: int | None = None
    reads_held: HeldUntil | None = None
    creates_held: HeldUntil | None = None

    @property
    def usages(self) -> tuple[DayUsage, ...]:
        """Today's usage, as `RateLimits` takes it over."""
        return (self.usage,)

    def after_a_read(self) -> "AccountState":
        """Return it with one more read, which may not have been noted in the queue."""
        used = replace(self.usage, reads=self.usage.reads + 1)
        request = LoggedRequest(self.account_id or 0, RequestKind.READ, self.now)
        return replace(self, usage=used, logged=(*self.logged, request), account_id=self.account_id or 0)


@dataclass(frozen=True, slots=True)
class QuoteFailure:
    """Why an account could not be asked, or not everything. `exit_status` is what `run` would come to; OK if unsure."""

    profile: str
    account: str
    reason: str
    exit_status: ExitStatus = ExitStatus.OK


@dataclass(slots=True)
class Quotes:
    """What was learned. Prices and refusals go by profile and price key, balances by profile and account.

    `times` is what the services themselves said, by profile.
    """

    prices: dict[tuple[str, str], int] = field(default_factory=dict)
    refused: dict[tuple[str, str], ErrorInfo] = field(default_factory=dict)
    lacking_uploads: set[tuple[str, str]] = field(default_factory=set)
    balances: dict[tuple[str, str], int] = field(default_factory=dict)
    hindrances: list[QuoteFailure] = field(default_factory=list)
    times: dict[str, datetime] = field(default_factory=dict)

    def of(self, profile: str) -> dict[str, int]:
        """Return the prices of a profile by price key."""
        return {key: cost for (name, key), cost in self.prices.items() if name == profile}


async def ask_quotes(
    questions: Iterable[PriceQuestion],
    *,
    profiles: Mapping[str, Profile],
    known: Mapping[tuple[str, str], AccountState],
    wants_balance: Iterable[tuple[str, str]] = (),
    access: QueueAccess,
) -> Quotes:
    """Ask all questions, account by account, and the balances of accounts that are not local.

    Never raises for a service that does not answer or refuses: what could not be learned is a `QuoteFailure`.
    """
    by_account: dict[tuple[str, str], list[PriceQuestion]] = {place: [] for place in wants_balance}
    for question in questions:
        by_account.setdefault((question.profile, question.account), []).append(question)
    book = Quotes()
    for place, asked in by_account.items():
        name, account = place
        if profiles[name].is_embedded and not asked:
            continue
        try:
            async with open_quote_session(profiles[name], account, known[place], access) as quotes:
                await _AccountQuotes(quotes, name, account, book).make(asked)
        except InputError as error:
            book.hindrances.append(QuoteFailure(name, account, str(error), error.exit_status))
    return book


class NoRoom(Exception):
    """The account's limits leave no request now, or soon enough; the message is the reason."""


@dataclass(slots=True)
class QuoteSession:
    """One account's service, for reads and quotes within the account's rate limits.

    `is_ours`: a local service that ends with the session. `is_shared`: another process may drive the queue, and learns
    of these reads only at its next start. `released` is that of `rates` when the session began, as `known` was read.
    """

    client: ServiceClient
    clock: ServiceClock
    known: AccountState
    rates: RateLimits
    released: tuple[int, int]
    is_ours: bool
    is_shared: bool
    note: Callable[[ClockReading], Awaitable[None]] | None

    async def send(self, request: Callable[[], Awaitable[T]], *, patience_seconds: float = inf) -> T:
        """Wait for a place in the window, note the read, and send it. Raises `NoRoom`."""
        await self._wait_for_place(patience_seconds)
        self.rates.acquire(RequestKind.QUOTE)
        try:
            if self.note is not None:
                await self.note(self.clock.now())
            return await request()
        except QueueBusy as error:
            raise NoRoom(f"it could not be noted in the queue that it is asked: {error}") from error
        finally:
            self.rates.release(RequestKind.QUOTE, self.clock.monotonic())

    async def _wait_for_place(self, patience_seconds: float) -> None:
        now = self.clock.now()
        self.rates.update(self.known, now, self.released)
        if self.rates.reads.is_spent:
            raise NoRoom("today's reads and quotes of the account are used up")
        if self.rates.reads.held.at > now.monotonic + LONGEST_WAIT_SECONDS:
            raise NoRoom("the service asked for a pause that is not over")
        # A driving process keeps its minute in memory: half is left to it. The day it reads from the queue.
        kept = self.rates.limits.reads_per_minute // 2 if self.is_shared else 0
        seconds = self.rates.due(now, is_create=False, places=1 + kept, host_places=1 + kept).at - now.monotonic
        if seconds > patience_seconds:
            raise NoRoom("this minute's reads are used up")
        if seconds > 0:
            await self.pause(seconds)

    async def pause(self, seconds: float) -> None:
        """Wait so many service seconds."""
        await self.clock.sleep_until(self.clock.monotonic() + seconds, asyncio.Event())


@asynccontextmanager
async def open_quote_session(
    profile: Profile, account: str, known: AccountState, access: QueueAccess
) -> AsyncIterator[QuoteSession]:
    """Open a session. Raises `InputError` where the account has no key."""
    async with AsyncExitStack() as stack:
        if profile.is_embedded:
            known = AccountState(known.now)  # a service of its own, of which nothing was used
            service = await stack.enter_async_context(temporary_service(profile))
            base_url, keys = service.base_url, [service.api_key(account)]
        else:
            base_url, keys = str(profile.base_url), profile.keys(account)
        session = await stack.enter_async_context(new_session(access.setting.surroundings.connector()))
        clock = ServiceClock(time_scale=profile.time_scale, floor=known.now, wall=access.setting.surroundings.wall)
        named = {fingerprint(key): key for key in keys}
        client = new_service_client(ServiceClient, profile, session, base_url=base_url, keys=named, clock=clock)
        note = None if profile.is_embedded else access.note
        rates = RateLimits.of_log(
            profile.limits,
            profile.day,
            known.logged,
            account_id=known.account_id,
            now=clock.now(),
            recent_seconds=RECENT_MINUTES * profile.limits.minute_seconds,
        )
        yield QuoteSession(
            client=client,
            clock=clock,
            known=known,
            rates=rates,
            released=rates.released(),
            is_ours=profile.is_embedded,
            is_shared=not (profile.is_embedded or access.is_alone),
            note=None if note is None else (lambda now: note(profile.name, account, now)),
        )


@dataclass(slots=True)
class _AccountQuotes:
    """All that is asked of one account, until something makes further questions useless."""

    session: QuoteSession
    profile: str
    account: str
    book: Quotes
    is_over: bool = False

    async def make(self, questions: Sequence[PriceQuestion]) -> None:
        described = await self.session.client.describe()  # tells the time, and counts in no account's window
        if self.session.clock.is_doubted:
            await self.session.clock.await_witness()
            described = await self.session.client.describe()
        if isinstance(described, NoResponse | EdgeBlocked | Unavailable):
            self._give_up(described)
            return
        if self.session.clock.is_observed and not self.session.is_ours:
            self.book.times[self.profile] = self.session.clock.now().instant
        for question in questions:
            if not self.is_over:
                await self._ask(question)
        if not self.is_over and not self.session.is_ours:
            await self._balance()

    async def _ask(self, question: PriceQuestion) -> None:
        place = (question.profile, question.price_key)
        urls = await self._urls(question)
        if urls is None:
            self.book.lacking_uploads.add(place)
            return
        body = request_body(question.recipe, prompt=question.prompt, input_urls=urls, max_cost_credits=None)
        for number in range(1, TRIES + 1):
            try:
                reply = await self.session.send(partial(self.session.client.quote, body))
            except NoRoom as reason:
                self._stop(str(reason))
                return
            match reply:
                case Quoted(cost_credits=cost):
                    self.book.prices[place] = cost
                    return
                case Refused(error=error):
                    self.book.refused[place] = error
                    return
                case AccountBlocked() | NotUnderstood():
                    self._give_up(reply)
                    return
                case Throttled() | Unavailable() | NoResponse() | EdgeBlocked():
                    if number == TRIES or not await self._waited(reply):
                        self._give_up(reply)
                        return
                case _:
                    assert_never(reply)

    async def _waited(self, reply: Throttled | Unavailable | NoResponse | EdgeBlocked) -> bool:
        """Wait as the service asks; tell whether that was short enough to do."""
        if isinstance(reply, NoResponse):
            return False
        asked = None if isinstance(reply, EdgeBlocked) else reply.retry_after
        seconds = self.session.rates.limits.minute_seconds if asked is None else asked.total_seconds()
        if seconds > LONGEST_WAIT_SECONDS:
            return False
        await self.session.pause(seconds)
        return True

    async def _urls(self, question: PriceQuestion) -> tuple[str, ...] | None:
        """Return what to put into `inputs`; None where the account has no uploads to stand in."""
        if not question.recipe.inputs_count:
            return ()
        if self.session.is_ours:
            return await self._upload(question)
        return question.urls if len(question.urls) == question.recipe.inputs_count else None

    async def _upload(self, question: PriceQuestion) -> tuple[str, ...] | None:
        """Upload an item's own images to the local service that is gone afterwards."""
        client = self.session.client
        found: list[str] = []
        for begin in range(0, len(question.inputs), _FILES_PER_REQUEST):
            files = question.inputs[begin : begin + _FILES_PER_REQUEST]
            named = [(f"{file.sha256[:16]}.bin", file.media_type, file.size_bytes) for file in files]
            prepared = await client.prepare_uploads(named)
            if not isinstance(prepared, UploadsPrepared):
                return None
            for ticket, file in zip(prepared.tickets, files, strict=True):
                await client.put_upload(ticket, LocalInputs().content(file), file.size_bytes)
            ready = await client.complete_uploads([ticket.asset_id for ticket in prepared.tickets])
            if not isinstance(ready, AssetsReady):
                return None
            found += ready.urls
        return tuple(found)

    async def _balance(self) -> None:
        try:
            reply = await self.session.send(self.session.client.balance)
        except NoRoom as reason:
            self._stop(str(reason))
            return
        if isinstance(reply, BalanceRead):
            if reply.credits is not None:
                self.book.balances[self.profile, self.account] = reply.credits
        elif isinstance(reply, AccountBlocked):
            self._give_up(reply)

    def _give_up(self, trouble: TransientError) -> None:
        is_blocked = isinstance(trouble, AccountBlocked)
        self._stop(describe_error(trouble), ExitStatus.ACCOUNT_CANNOT_WORK if is_blocked else ExitStatus.OK)

    def _stop(self, reason: str, exit_status: ExitStatus = ExitStatus.OK) -> None:
        self.is_over = True
        self.book.hindrances.append(QuoteFailure(self.profile, self.account, reason, exit_status))


async def read_account_states(access: QueueAccess) -> dict[tuple[str, str], AccountState]:
    """Return the state of all configured accounts by profile and name, from the queue."""
    return await access.store.read(_account_states, access.setting)


def _account_states(reader: Reader, setting: AppContext) -> dict[tuple[str, str], AccountState]:
    profiles = setting.config.profiles
    now = setting.surroundings.wall()
    times = {name: reader.accounts.service_time(name, now) for name in profiles}
    summaries = [account for account in reader.accounts.summaries() if account.profile in profiles]
    return account_states(reader, summaries, profiles, times)


def account_states(
    reader: Reader,
    accounts: Iterable[AccountSummary],
    profiles: Mapping[str, Profile],
    times: Mapping[str, datetime],
) -> dict[tuple[str, str], AccountState]:
    """Return the state of all accounts at the given service times.

    `accounts` are the accounts recorded in the queue; other accounts get an empty state.
    """
    known = {
        (name, account): AccountState(times[name]) for name in profiles for account in profiles[name].account_names
    }
    for summary in accounts:
        profile, now = profiles[summary.profile], times[summary.profile]
        known[summary.profile, summary.name] = AccountState(
            now=now,
            usage=usage_today(summary, profile, now),
            logged=tuple(reader.accounts.logged_requests(summary.profile, kept_seconds(profile.limits))),
            account_id=summary.id,
            reads_held=summary.reads_held,
        )
    return known
