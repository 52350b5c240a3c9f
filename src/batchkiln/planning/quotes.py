"""Asks for prices before anything is paid: one quote for each price, which costs nothing (Service section 4).

The requests stay within the account's read limits, and leave half of each minute to a process that runs the queue. No
image is uploaded: earlier uploads of the account take the images' place, because a price depends only on their number.
The embedded service is part of this program, and returns its prices without a request.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from math import inf
from typing import Final, TypeVar, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.api.app_context import AppContext, kept_seconds
from batchkiln.api.local_service import price_by_local_service
from batchkiln.api.service_clients import new_service_client
from batchkiln.client import ServiceClient, fingerprint, new_session
from batchkiln.clock import ServiceClock
from batchkiln.config import Profile
from batchkiln.core.error_text import describe_error, exit_status_of
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
"""Maximum wait that the service may ask for, in service seconds; a longer one raises `AccountUnavailable`."""

TRIES: Final = 3


class AccountState(Struct, frozen=True):
    """The usage of an account according to the queue: today's usage, recent requests, and imposed waits.

    `logged` contains the recent requests of all accounts of the profile, oldest first.
    """

    now: datetime
    usage: DayUsage = DayUsage()
    logged: tuple[LoggedRequest, ...] = ()  # of all accounts of the profile, oldest first
    account_id: int | None = None
    reads_held: HeldUntil | None = None
    creates_held: HeldUntil | None = None

    @property
    def usages(self) -> tuple[DayUsage, ...]:
        """Today's usage, in the form that `RateLimits` takes."""
        return (self.usage,)

    def after_a_read(self) -> "AccountState":
        """Return the state with one more read, which may not have been recorded in the queue."""
        used = replace(self.usage, reads=self.usage.reads + 1)
        request = LoggedRequest(self.account_id or 0, RequestKind.READ, self.now)
        return replace(self, usage=used, logged=(*self.logged, request), account_id=self.account_id or 0)


class QuoteFailure(Struct, frozen=True):
    """The reason why an account's prices are missing or incomplete. `exit_status` is that of `run`; OK if unknown."""

    profile: str
    account: str
    reason: str
    exit_status: ExitStatus = ExitStatus.OK


class Quotes(Struct):
    """The replies to quotes. Prices and refusals are by profile and price key, balances by profile and account.

    `times` are the services' own times, by profile.
    """

    prices: dict[tuple[str, str], int] = field(default_factory=dict)
    refused: dict[tuple[str, str], ErrorInfo] = field(default_factory=dict)
    lacking_uploads: set[tuple[str, str]] = field(default_factory=set)
    balances: dict[tuple[str, str], int] = field(default_factory=dict)
    failures: list[QuoteFailure] = field(default_factory=list)
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
    """Ask all questions, account by account, and read the balances of accounts that are not local.

    A service that refuses or does not answer adds a `QuoteFailure` and raises nothing.
    """
    by_account: dict[tuple[str, str], list[PriceQuestion]] = {payer: [] for payer in wants_balance}
    for question in questions:
        by_account.setdefault((question.profile, question.account), []).append(question)
    quotes = Quotes()
    for (name, account), asked in by_account.items():
        if profiles[name].is_embedded:
            for question in asked:
                _record_embedded_price(question, quotes)
            continue
        try:
            async with open_quote_session(profiles[name], account, known[name, account], access) as session:
                await _ask_account(session, name, account, asked, quotes)
        except (InputError, AccountUnavailable) as error:
            quotes.failures.append(QuoteFailure(name, account, str(error), error.exit_status))
    return quotes


def _record_embedded_price(question: PriceQuestion, quotes: Quotes) -> None:
    price = price_by_local_service(question.recipe, question.prompt)
    if isinstance(price, int):
        quotes.prices[question.profile, question.price_key] = price
    else:
        quotes.refused[question.profile, question.price_key] = price


class AccountUnavailable(Exception):
    """Raised if no further request can be sent to the account, because of its limits or its service.

    The message is the reason. `exit_status` is that of `run`; OK if `run` would wait, or if it is unknown.
    """

    def __init__(self, reason: str, exit_status: ExitStatus = ExitStatus.OK) -> None:
        super().__init__(reason)
        self.exit_status = exit_status


class QuoteSession(Struct):
    """A session with one account's service, for reads and quotes within the account's rate limits.

    If `is_shared`, another process may run the queue, and counts these reads only after its next start. `released` is
    the value of `rates.released()` at the time when `known` was read.
    """

    client: ServiceClient
    clock: ServiceClock
    known: AccountState
    rates: RateLimits
    released: tuple[int, int]
    is_shared: bool
    record_request: Callable[[ClockReading], Awaitable[None]] | None

    async def send(self, request: Callable[[], Awaitable[T]], *, max_wait_seconds: float = inf) -> T:
        """Wait until the limits allow the read, record it, and send it. Raise `AccountUnavailable`."""
        await self._wait_for_capacity(max_wait_seconds)
        self.rates.acquire(RequestKind.QUOTE)
        try:
            if self.record_request is not None:
                await self.record_request(self.clock.now())
            return await request()
        except QueueBusy as error:
            reason = f"the request could not be recorded in the queue, so it was not sent: {error}"
            raise AccountUnavailable(reason) from error
        finally:
            self.rates.release(RequestKind.QUOTE, self.clock.monotonic())

    async def _wait_for_capacity(self, max_wait_seconds: float) -> None:
        now = self.clock.now()
        self.rates.update(self.known, now, self.released)
        if self.rates.reads.is_spent:
            raise AccountUnavailable("today's reads and quotes of the account are used up; nothing was charged")
        if self.rates.reads.held.at > now.monotonic + LONGEST_WAIT_SECONDS:
            raise AccountUnavailable("the service asked for a longer pause; nothing was charged")
        # A process that runs the queue counts its minute in memory, so half is left to it.
        # It reads the day from the queue.
        kept = self.rates.limits.reads_per_minute // 2 if self.is_shared else 0
        seconds = self.rates.due(now, is_create=False, places=1 + kept, host_places=1 + kept).at - now.monotonic
        if seconds > max_wait_seconds:
            raise AccountUnavailable("this minute's reads of the account are used up; nothing was charged")
        if seconds > 0:
            await self.pause(seconds)

    async def pause(self, seconds: float) -> None:
        """Wait for a number of service seconds."""
        await self.clock.sleep_until(self.clock.monotonic() + seconds, asyncio.Event())


@asynccontextmanager
async def open_quote_session(
    profile: Profile, account: str, known: AccountState, access: QueueAccess
) -> AsyncIterator[QuoteSession]:
    """Open a session. Raise `InputError` if the account has no key."""
    keys = {fingerprint(key): key for key in profile.keys(account)}
    environment = access.app.environment
    async with new_session(environment.connector(), proxy=profile.proxy_url()) as session:
        clock = ServiceClock(
            time_scale=profile.time_scale, floor=known.now, wall=environment.wall, is_doubt_logged=not access.is_alone
        )  # a run logs its own doubt
        client = new_service_client(
            ServiceClient, profile, session, base_url=str(profile.base_url), keys=keys, clock=clock
        )
        record_request = access.record_request
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
            record_request=None if record_request is None else (lambda now: record_request(profile.name, account, now)),
        )


async def _ask_account(
    session: QuoteSession, profile: str, account: str, questions: Sequence[PriceQuestion], quotes: Quotes
) -> None:
    """Ask for all prices and the balance of one account. Raise `AccountUnavailable` if it can no longer be asked."""
    described = await session.client.describe()  # has the service's time, and counts in no limit
    if session.clock.is_doubted:
        await session.clock.await_witness()
        described = await session.client.describe()
    if isinstance(described, NoResponse | EdgeBlocked | Unavailable):
        raise AccountUnavailable(describe_error(described), exit_status_of(described))
    if session.clock.is_observed:
        quotes.times[profile] = session.clock.now().instant
    for question in questions:
        await _ask_price(session, question, quotes)
    reply = await session.send(session.client.balance)
    if isinstance(reply, AccountBlocked):
        raise _unavailable(reply)
    if isinstance(reply, BalanceRead) and reply.credits is not None:
        quotes.balances[profile, account] = reply.credits


async def _ask_price(session: QuoteSession, question: PriceQuestion, quotes: Quotes) -> None:
    key, recipe = (question.profile, question.price_key), question.recipe
    if len(question.urls) != recipe.inputs_count:  # the account has too few uploads to take the images' place
        quotes.lacking_uploads.add(key)
        return
    body = request_body(recipe, prompt=question.prompt, input_urls=question.urls, max_cost_credits=None)
    for number in range(1, TRIES + 1):
        reply = await session.send(partial(session.client.quote, body))
        match reply:
            case Quoted(cost_credits=cost):
                quotes.prices[key] = cost
                return
            case Refused(error=error):
                quotes.refused[key] = error
                return
            case Throttled() | Unavailable() | EdgeBlocked():
                asked = None if isinstance(reply, EdgeBlocked) else reply.retry_after
                seconds = session.rates.limits.minute_seconds if asked is None else asked.total_seconds()
                if number == TRIES or seconds > LONGEST_WAIT_SECONDS:
                    raise _unavailable(reply)
                await session.pause(seconds)
            case AccountBlocked() | NotUnderstood() | NoResponse():
                raise _unavailable(reply)
            case _:
                assert_never(reply)


def _unavailable(trouble: TransientError) -> AccountUnavailable:
    is_blocked = isinstance(trouble, AccountBlocked)
    return AccountUnavailable(describe_error(trouble), ExitStatus.ACCOUNT_CANNOT_WORK if is_blocked else ExitStatus.OK)


async def read_account_states(access: QueueAccess) -> dict[tuple[str, str], AccountState]:
    """Return the state of all configured accounts by profile and name, from the queue."""
    return await access.store.read(_account_states, access.app)


def _account_states(reader: Reader, app: AppContext) -> dict[tuple[str, str], AccountState]:
    profiles = app.config.profiles
    now = app.environment.wall()
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
