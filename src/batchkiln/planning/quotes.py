"""Asking what things cost before anything is paid: one quote for each price, which costs nothing (Service section 4).

The account's read window is kept, with room left for a process that drives the queue meanwhile. No image is uploaded:
uploads that the account already has stand in, since a price depends on their number alone. The embedded service is part
of this program, and tells its prices without a request.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import inf
from typing import Final, TypeVar, assert_never

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.api.local_service import embedded_price
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
)
from batchkiln.core.timestamps import ClockReading
from batchkiln.planning.queue_access import QueueAccess
from batchkiln.presentation.forecasts import usage_today
from batchkiln.store import AccountSummary, PriceQuestion, Reader

T = TypeVar("T")

LONGEST_WAIT_SECONDS: Final = 120.0
"""How long, in service time, a pause that the service asks for is waited out; a longer one is only told."""

TRIES: Final = 3


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
    for (name, account), asked in by_account.items():
        if profiles[name].is_embedded:
            for question in asked:
                _note_embedded_price(question, book)
            continue
        try:
            async with open_quote_session(profiles[name], account, known[name, account], access) as session:
                await _ask_account(session, name, account, asked, book)
        except (InputError, NoRoom) as error:
            book.hindrances.append(QuoteFailure(name, account, str(error), error.exit_status))
    return book


def _note_embedded_price(question: PriceQuestion, book: Quotes) -> None:
    recipe = question.recipe
    urls = [f"https://inputs.invalid/{number}" for number in range(recipe.inputs_count)]
    price = embedded_price(request_body(recipe, prompt=question.prompt, input_urls=urls, max_cost_credits=None))
    if isinstance(price, int):
        book.prices[question.profile, question.price_key] = price
    else:
        book.refused[question.profile, question.price_key] = price


class NoRoom(Exception):
    """No further request to the account now: its limits leave none, or its service does not answer it.

    The message is the reason; `exit_status` is what `run` would come to, OK if unsure.
    """

    def __init__(self, reason: str, exit_status: ExitStatus = ExitStatus.OK) -> None:
        super().__init__(reason)
        self.exit_status = exit_status


@dataclass(slots=True)
class QuoteSession:
    """One account's service, for reads and quotes within the account's rate limits.

    `is_shared`: another process may drive the queue, and learns of these reads only at its next start. `released` is
    that of `rates` when the session began, as `known` was read.
    """

    client: ServiceClient
    clock: ServiceClock
    known: AccountState
    rates: RateLimits
    released: tuple[int, int]
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
    keys = {fingerprint(key): key for key in profile.keys(account)}
    surroundings = access.setting.surroundings
    async with new_session(surroundings.connector()) as session:
        clock = ServiceClock(time_scale=profile.time_scale, floor=known.now, wall=surroundings.wall)
        client = new_service_client(
            ServiceClient, profile, session, base_url=str(profile.base_url), keys=keys, clock=clock
        )
        note = access.note
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
            is_shared=not access.is_alone,
            note=None if note is None else (lambda now: note(profile.name, account, now)),
        )


async def _ask_account(
    session: QuoteSession, profile: str, account: str, questions: Sequence[PriceQuestion], book: Quotes
) -> None:
    """Ask all that one account is to tell. Raises `NoRoom` where further questions are useless."""
    described = await session.client.describe()  # tells the time, and counts in no account's window
    if session.clock.is_doubted:
        await session.clock.await_witness()
        described = await session.client.describe()
    if isinstance(described, NoResponse | EdgeBlocked | Unavailable):
        raise _given_up(described)
    if session.clock.is_observed:
        book.times[profile] = session.clock.now().instant
    for question in questions:
        await _ask_price(session, question, book)
    reply = await session.send(session.client.balance)
    if isinstance(reply, AccountBlocked):
        raise _given_up(reply)
    if isinstance(reply, BalanceRead) and reply.credits is not None:
        book.balances[profile, account] = reply.credits


async def _ask_price(session: QuoteSession, question: PriceQuestion, book: Quotes) -> None:
    place, recipe = (question.profile, question.price_key), question.recipe
    if len(question.urls) != recipe.inputs_count:  # the account has no uploads to stand in
        book.lacking_uploads.add(place)
        return
    body = request_body(recipe, prompt=question.prompt, input_urls=question.urls, max_cost_credits=None)
    for number in range(1, TRIES + 1):
        reply = await session.send(partial(session.client.quote, body))
        match reply:
            case Quoted(cost_credits=cost):
                book.prices[place] = cost
                return
            case Refused(error=error):
                book.refused[place] = error
                return
            case Throttled() | Unavailable() | EdgeBlocked():
                asked = None if isinstance(reply, EdgeBlocked) else reply.retry_after
                seconds = session.rates.limits.minute_seconds if asked is None else asked.total_seconds()
                if number == TRIES or seconds > LONGEST_WAIT_SECONDS:
                    raise _given_up(reply)
                await session.pause(seconds)
            case AccountBlocked() | NotUnderstood() | NoResponse():
                raise _given_up(reply)
            case _:
                assert_never(reply)


def _given_up(trouble: TransientError) -> NoRoom:
    is_blocked = isinstance(trouble, AccountBlocked)
    return NoRoom(describe_error(trouble), ExitStatus.ACCOUNT_CANNOT_WORK if is_blocked else ExitStatus.OK)


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
