"""The service's rules once more, as plainly as they can be put: lists and dictionaries, counted anew for each question.

Written from the service's description and from what `docs/assumptions.md` says of what it leaves open; nothing of the
service's own code is used. Instants and durations are milliseconds of service time. Chance is the service's: how long
a generation takes is told to the model when it is accepted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SECOND: Final = 1000
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
RETENTION: Final = 14 * DAY
DOWNLOAD_LINK: Final = 900 * SECOND
UPLOAD_LINK: Final = 300 * SECOND
ASSET_LIFE: Final = 14 * DAY
GIVEN_UP: Final = DAY  # after the upload link's end: how long the service waits for an upload to be completed


@dataclass(frozen=True)
class PlainLimits:
    creates_per_minute: int
    creates_per_day: int
    reads_per_minute: int
    reads_per_day: int
    credits_per_day: int
    upload_files_per_day: int
    upload_bytes_per_day: int
    requests_per_minute_per_ip: int
    active_generations: int
    minute: int = 60 * SECOND
    poll_interval: int = 10 * SECOND


@dataclass(frozen=True)
class Said:
    """What a reply has to be. `retry_after` 0: there has to be one, of any length."""

    status: int
    code: str | None = None
    retry_after: int | None = None
    generation: "PlainGeneration | None" = None
    number: int | None = None


class RefusedError(Exception):
    def __init__(self, status: int, code: str, retry_after: int | None = None) -> None:
        super().__init__(code)
        self.said = Said(status, code, retry_after)


@dataclass
class PlainKey:
    secret: str
    account: "PlainAccount"
    made_at: int
    is_active: bool = True
    is_configured: bool = False
    is_taken_out: bool = False  # of the configuration, for a while
    is_revoked: bool = False  # by a person, for good


@dataclass(frozen=True)
class Asked:
    """A body: what it costs, or the code it is refused with; `images` are the assets (or none such) it names."""

    text: str
    path: str
    cost: int = 0
    refusal: str | None = None
    end: str = "success"
    max_cost: int | None = None
    images: "tuple[PlainAsset | None, ...]" = ()


@dataclass
class PlainGeneration:
    key: PlainKey
    idempotency_key: str
    asked: Asked
    created_at: int
    id: str = ""
    processing_at: int = 0
    finish_at: int = 0
    polled_at: int | None = None

    @property
    def cost(self) -> int:
        return self.asked.cost

    @property
    def end(self) -> str:
        return self.asked.end

    def status(self, now: int) -> str:
        if now < self.processing_at:
            return "pending"
        if now < self.finish_at:
            return "processing"
        return "expired" if self.end == "success" and now >= self.finish_at + RETENTION else self.end

    def is_active(self, now: int) -> bool:
        return now < self.finish_at

    def link_dies_at(self, now: int) -> int:
        return min(now + DOWNLOAD_LINK, self.finish_at + RETENTION)


@dataclass
class PlainAsset:
    account: "PlainAccount"
    size: int
    prepared_at: int
    id: str = ""
    url: str = ""
    is_uploaded: bool = False
    is_ready: bool = False
    is_given_up: bool = False

    def is_gone(self, now: int) -> bool:
        return self.is_given_up or now >= self.prepared_at + ASSET_LIFE


@dataclass
class PlainAccount:
    name: str
    bought: int
    subscription: bool
    keys: list[PlainKey] = field(default_factory=list)
    generations: list[PlainGeneration] = field(default_factory=list)
    assets: list[PlainAsset] = field(default_factory=list)
    creates: list[int] = field(default_factory=list)  # when each counted request of the two windows arrived
    reads: list[int] = field(default_factory=list)
    uploaded: list[tuple[int, int]] = field(default_factory=list)  # instant and size of each prepared file

    def balance(self, now: int) -> int:
        """Credits are taken with the creation; a failure gives them back. Service rule 3.1."""
        lost = [g.cost for g in self.generations if g.end != "failed" or g.is_active(now)]
        return self.bought - sum(lost)

    def spent_on_day_of(self, now: int) -> int:
        """Failures count. Service section 8."""
        return sum(g.cost for g in self.generations if g.created_at // DAY == now // DAY)


class PlainModel:
    """The service as its description has it."""

    def __init__(self, limits: PlainLimits) -> None:
        self.limits = limits
        self.accounts: list[PlainAccount] = []
        self.from_ip: list[int] = []

    def key_of(self, secret: str) -> PlainKey | None:
        return next((key for account in self.accounts for key in account.keys if key.secret == secret), None)

    def may_make_key(self, account: PlainAccount, now: int) -> bool:
        """Ten active keys, ten made within an hour, twenty within a day. Service rule 5.3."""
        made = [key.made_at for key in account.keys if not key.is_configured]
        return (
            sum(key.is_active for key in account.keys) < 10
            and sum(at > now - HOUR for at in made) < 10
            and sum(at // DAY == now // DAY for at in made) < 20
        )

    def tidy(self, now: int) -> None:
        """Give up the uploads that nobody has completed in time."""
        for account in self.accounts:
            for asset in account.assets:
                is_late = now >= asset.prepared_at + UPLOAD_LINK + GIVEN_UP
                asset.is_given_up = asset.is_given_up or (is_late and not asset.is_ready)

    def balance(self, secret: str, now: int, *, has_origin: bool = False) -> Said:
        return self._answer(lambda: self._balance(self._entered(secret, now, has_origin=has_origin), now), now)

    def quote(self, secret: str, asked: Asked, now: int) -> Said:
        return self._answer(lambda: self._quote(self._entered(secret, now), asked, now), now)

    def create(self, secret: str, idempotency_key: str, asked: Asked, now: int) -> Said:
        return self._answer(lambda: self._create(self._entered(secret, now), idempotency_key, asked, now), now)

    def poll(self, secret: str, generation: PlainGeneration | None, now: int) -> Said:
        return self._answer(lambda: self._poll(self._entered(secret, now), generation, now), now)

    def prepare(self, secret: str, sizes: list[int], *, is_allowed: bool, now: int) -> Said:
        return self._answer(
            lambda: self._prepare(self._entered(secret, now), sizes, is_allowed=is_allowed, now=now), now
        )

    def complete(self, secret: str, asset: PlainAsset | None, now: int) -> Said:
        return self._answer(lambda: self._complete(self._entered(secret, now), asset, now), now)

    def _answer(self, work: Callable[[], Said], now: int) -> Said:
        """The firewall stands before everything: blocked requests do not count. Service section 7."""
        recent = [at for at in self.from_ip if at > now - self.limits.minute]
        if len(recent) >= self.limits.requests_per_minute_per_ip:
            return Said(403)
        self.from_ip = [*recent, now]
        try:
            return work()
        except RefusedError as refused:
            return refused.said

    def _entered(self, secret: str, now: int, *, has_origin: bool = False) -> PlainKey:
        """Service rules 5.1, 5.4 and 5.5."""
        del now
        key = self.key_of(secret)
        if key is None or not key.is_active:
            raise RefusedError(401, "invalid_api_key")
        if secret.startswith("legacy"):
            raise RefusedError(403, "api_key_upgrade_required")
        if has_origin:
            raise RefusedError(403, "origin_not_allowed")
        return key

    def _balance(self, key: PlainKey, now: int) -> Said:
        self._count_read(key.account, now)
        return Said(200, number=key.account.balance(now))

    def _quote(self, key: PlainKey, asked: Asked, now: int) -> Said:
        """Quotes are free, and need nothing but a request that could be. Service rule 4.6."""
        self._count_read(key.account, now)
        self._check_request(key.account, asked, now)
        return Said(200, number=asked.cost)

    def _create(self, key: PlainKey, idempotency_key: str, asked: Asked, now: int) -> Said:
        account = key.account
        self._count_create(account, now)
        if not _is_well_formed(idempotency_key):
            raise RefusedError(400, "invalid_idempotency_key")
        for known in account.generations:
            if known.idempotency_key == idempotency_key:
                return _replayed(known, key, asked)
        self._check_request(account, asked, now)
        if asked.max_cost is not None and asked.cost > asked.max_cost:
            raise RefusedError(422, "cost_exceeds_max")
        self._check_access(account, now)
        self._check_credits(account, asked.cost, now)
        generation = PlainGeneration(key, idempotency_key, asked, created_at=now, finish_at=now + HOUR)
        account.generations.append(generation)
        return Said(202, generation=generation)

    def _poll(self, key: PlainKey, generation: PlainGeneration | None, now: int) -> Said:
        """At most once in ten seconds while it is active; too early counts nowhere. Service rules 4.4 and 5.7."""
        if generation is not None and generation.key is key and generation.is_active(now):
            next_at = -DAY if generation.polled_at is None else generation.polled_at + self.limits.poll_interval
            if now < next_at:
                raise RefusedError(429, "rate_limited", _seconds(next_at - now))
        self._count_read(key.account, now)
        if generation is None or generation.key.account is not key.account:
            raise RefusedError(404, "not_found")
        if generation.key is not key:
            raise RefusedError(403, "wrong_api_key")
        generation.polled_at = now
        return Said(200, generation=generation)

    def _prepare(self, key: PlainKey, sizes: list[int], *, is_allowed: bool, now: int) -> Said:
        account, limits = key.account, self.limits
        self._count_create(account, now)
        if not is_allowed:
            raise RefusedError(422, "invalid_request")
        self._check_access(account, now)
        today = [size for at, size in account.uploaded if at // DAY == now // DAY]
        if len(today) + len(sizes) > limits.upload_files_per_day:
            raise RefusedError(429, "daily_limit", _until_midnight(now))
        if sum(today) + sum(sizes) > limits.upload_bytes_per_day:
            raise RefusedError(429, "daily_limit", _until_midnight(now))
        account.uploaded += [(now, size) for size in sizes]
        account.assets += [PlainAsset(account, size, now) for size in sizes]
        return Said(200, number=len(sizes))

    def put(self, asset: PlainAsset, size: int, now: int) -> bool:
        """Say whether the storage takes the bytes. Service section 4, upload flow."""
        if now >= asset.prepared_at + UPLOAD_LINK or size != asset.size or asset.is_ready:
            return False
        asset.is_uploaded = True
        return True

    def _complete(self, key: PlainKey, asset: PlainAsset | None, now: int) -> Said:
        self._count_create(key.account, now)
        if asset is None or asset.account is not key.account:
            raise RefusedError(404, "asset_not_found")
        if asset.is_gone(now):
            raise RefusedError(422, "asset_expired")
        if not asset.is_uploaded:
            raise RefusedError(422, "asset_not_ready")
        asset.is_ready = True
        return Said(200)

    def _check_request(self, account: PlainAccount, asked: Asked, now: int) -> None:
        """Service rules 2.2.1 to 2.2.5."""
        if asked.refusal is not None:
            raise RefusedError(422, asked.refusal)
        for asset in asked.images:
            if asset is None:
                raise RefusedError(422, "external_url_not_allowed")
            if asset.account is not account:
                raise RefusedError(422, "asset_not_found")
            if asset.is_gone(now):
                raise RefusedError(422, "asset_expired")

    def _check_access(self, account: PlainAccount, now: int) -> None:
        """Service rule 5.8."""
        if not account.subscription and account.balance(now) <= 0:
            raise RefusedError(403, "credits_required")

    def _check_credits(self, account: PlainAccount, cost: int, now: int) -> None:
        if account.balance(now) < cost:
            raise RefusedError(402, "insufficient_credits")
        if account.spent_on_day_of(now) + cost > self.limits.credits_per_day:
            raise RefusedError(429, "credit_budget_exhausted", _until_midnight(now))
        active = [generation for generation in account.generations if generation.is_active(now)]
        if len(active) >= self.limits.active_generations:
            raise RefusedError(429, "generation_active", 0)

    def _count_create(self, account: PlainAccount, now: int) -> None:
        limits = self.limits
        self._check_window(account.creates, limits.creates_per_minute, limits.creates_per_day, now)
        account.creates.append(now)

    def _count_read(self, account: PlainAccount, now: int) -> None:
        limits = self.limits
        self._check_window(account.reads, limits.reads_per_minute, limits.reads_per_day, now)
        account.reads.append(now)

    def _check_window(self, counted: list[int], per_minute: int, per_day: int, now: int) -> None:
        """A sliding minute and the service's day; what they refuse does not count. Service section 8."""
        minute = [at for at in counted if at > now - self.limits.minute]
        if len(minute) >= per_minute:
            raise RefusedError(429, "rate_limited", _seconds(minute[-per_minute] + self.limits.minute - now))
        if sum(at // DAY == now // DAY for at in counted) >= per_day:
            raise RefusedError(429, "daily_limit", _until_midnight(now))


def _replayed(known: PlainGeneration, key: PlainKey, asked: Asked) -> Said:
    """Service rules 4.2 and 4.3."""
    if (known.asked.path, known.asked.text) != (asked.path, asked.text):
        raise RefusedError(409, "idempotency_conflict")
    if known.key is not key:
        raise RefusedError(403, "wrong_api_key")
    return Said(202, generation=known)


def _is_well_formed(idempotency_key: str) -> bool:
    """Service rule 4.1."""
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    return 16 <= len(idempotency_key) <= 128 and all(character in allowed for character in idempotency_key)


def _seconds(milliseconds: int) -> int:
    return max(1, -(-milliseconds // SECOND))


def _until_midnight(now: int) -> int:
    return _seconds(DAY - now % DAY)
