"""The service as a model for rehearsals: its own rules over tables in memory, without a server, requests or files.

Prices, durations, ids, outcomes and the report come from the functions that the server uses, and are the same for the
same seed. A model refuses nothing: whatever the server would refuse raises `NotModelledError`.
"""

from collections import Counter, defaultdict
from hashlib import sha256
from typing import Final

import orjson
from msgspec import Struct, field

from batchkiln_service.api.generation_endpoints import PENDING_SECONDS
from batchkiln_service.api.scripted_outcomes import MARKERS, with_prompt_directives
from batchkiln_service.clock import RandomStream
from batchkiln_service.config import ServiceConfig
from batchkiln_service.context import new_id
from batchkiln_service.db.client_report import report_of
from batchkiln_service.db.creates import NewGeneration
from batchkiln_service.db.modelled_tables import LogRow, ModelledGeneration, filled_tables
from batchkiln_service.db.report import Report
from batchkiln_service.db.request_log import BUDGETS, Kind
from batchkiln_service.db.setup import calendar_of
from batchkiln_service.errors import ApiError
from batchkiln_service.rules.catalog import load_catalog
from batchkiln_service.rules.lifecycle import Status
from batchkiln_service.rules.render_spec import RenderSpec
from batchkiln_service.rules.validation import GenerationRequest, check_request
from batchkiln_service.rules.windows import poll_wait_seconds
from batchkiln_service.transport.bodies import error_of

_ADDRESS: Final = "127.0.0.1"


class NotModelledError(Exception):
    """The server would refuse the request, or the generation would never end: a model does neither."""


class _Window(Struct):
    """The counted requests of one account toward one budget."""

    arrivals: list[int] = field(default_factory=list)
    by_day: Counter[int] = field(default_factory=Counter)


class ModelledService:
    """Answers requests at instants that never decrease for an account, and reports on them in the end.

    It has the accounts, the limits, the days and the seed of a configuration.
    """

    def __init__(self, config: ServiceConfig) -> None:
        """Start without any request."""
        self._config = config
        self._calendar = calendar_of(config)
        self._catalog = load_catalog()
        self._random = RandomStream(config.seed or 0)
        self._checked: dict[bytes, GenerationRequest] = {}
        self._windows: defaultdict[tuple[str, str], _Window] = defaultdict(_Window)
        self._bodies = Counter[tuple[str, str]]()
        self._credits = Counter[tuple[str, int]]()  # by account and day
        self._failed_once: set[tuple[str, str]] = set()
        self._newest: dict[str, ModelledGeneration] = {}  # by account: only this one may be active
        self._generations: list[ModelledGeneration] = []
        self._log: list[tuple[int, LogRow]] = []  # by the instant of arrival

    # --- requests ---

    def describe(self, now_ms: int) -> None:
        """Answer a request for the public description."""
        self._log.append((now_ms, (None, None, _ADDRESS, "other", "", now_ms, 200, *[None] * 8)))

    def quote(self, account: str, body: bytes, now_ms: int) -> int:
        """Return the price of a request in credits."""
        cost = self._check(body)[1].cost_credits
        self._count(account, "quote", now_ms)
        return cost

    def create(self, account: str, body: bytes, now_ms: int) -> ModelledGeneration:
        """Create a generation, whose end is known from then on."""
        prompt, wanted = self._check(body)
        digest = sha256(body).hexdigest()
        subject = f"{account}:{digest}:{self._bodies[account, digest]}"
        self._bodies[account, digest] += 1
        scale, typical = self._config.duration_scale, wanted.model
        seconds = self._random.duration_seconds(subject, mean=typical.typical_seconds, spread=typical.spread_seconds)
        begins_ms = now_ms + round(PENDING_SECONDS * 1000 * scale)
        made = ModelledGeneration(
            id=new_id("gen", lambda size: self._random.token(f"gen:{subject}", size)),
            account=account,
            prompt=prompt,
            body_sha256=digest,
            model=wanted.model.id,
            cost_credits=wanted.cost_credits,
            created_at_ms=now_ms,
            processing_at_ms=begins_ms,
            finish_at_ms=begins_ms + round(seconds * 1000 * scale),
        )
        if "[" in prompt and any(marker in prompt for marker in MARKERS):
            self._follow_markers(made)
        self._reserve(made, wanted)
        self._count(account, "create", now_ms, made, status=202)
        self._newest[account] = made
        self._generations.append(made)
        return made

    def read(self, generation: ModelledGeneration, now_ms: int) -> Status:
        """Return the status of a generation."""
        status, last_ms = generation.status(now_ms), generation.last_polled_at_ms
        has_ended = now_ms >= generation.finish_at_ms
        limits, gap_ms = self._config.limits, None if last_ms is None else now_ms - last_ms
        interval = limits.poll_interval_seconds
        if not has_ended and poll_wait_seconds(last_ms, now_ms, interval_seconds=interval, time_scale=1) is not None:
            raise NotModelledError("a poll too soon")
        self._count(generation.account, "read", now_ms, generation, gap_ms=gap_ms)
        generation.last_polled_at_ms = now_ms
        if has_ended and generation.end_seen_at_ms is None:
            generation.end_seen_at_ms = now_ms
        return status

    def error_of(self, generation: ModelledGeneration) -> tuple[str, str] | None:
        """Return code and message of the error of a generation that has ended; None for a success."""
        error = error_of(generation.outcome)
        return None if error is None else (error.code, error.message)

    def _check(self, body: bytes) -> tuple[str, GenerationRequest]:
        """Return prompt and request of a body; all that differs by nothing but the prompt is checked once."""
        fields = orjson.loads(body)
        prompt = fields.pop("prompt")
        key = orjson.dumps(fields)
        known = self._checked.get(key)
        if known is None or len(prompt) > known.model.prompt_limit_characters or not prompt.strip():
            try:
                known = self._checked[key] = check_request({**fields, "prompt": prompt}, self._catalog)
            except ApiError as refusal:
                raise NotModelledError(refusal.code) from refusal
        return prompt, known

    def _count(
        self,
        account: str,
        kind: Kind,
        now_ms: int,
        generation: ModelledGeneration | None = None,
        *,
        status: int = 200,
        gap_ms: int | None = None,
    ) -> None:
        """Count a request in its windows, and log it. Service section 8."""
        limits, budget = self._config.limits, BUDGETS[kind]
        assert budget is not None, "requests without an account are not counted"
        per_minute, per_day = (
            (limits.creates_per_minute, limits.creates_per_day)
            if budget == "creates"
            else (limits.reads_per_minute, limits.reads_per_day)
        )
        window, day = self._windows[account, budget], self._calendar.day_of(now_ms)
        arrivals = window.arrivals
        is_full = len(arrivals) >= per_minute and now_ms < arrivals[-per_minute] + limits.minute_seconds * 1000
        if is_full or window.by_day[day] >= per_day:
            raise NotModelledError(f"too many {budget}")
        arrivals.append(now_ms)
        window.by_day[day] += 1
        body, found = (generation.body_sha256, generation.id) if generation else (None, None)
        counted = (status, None, budget, len(arrivals), None, None)
        made = (body if kind == "create" else None, found, gap_ms)
        self._log.append((now_ms, (account, None, _ADDRESS, kind, "", now_ms, *counted, *made)))

    def _reserve(self, made: ModelledGeneration, wanted: GenerationRequest) -> None:
        """Reserve the credits of a new generation beside no other active one. Service rule 3.1."""
        day, cost = (made.account, self._calendar.day_of(made.created_at_ms)), made.cost_credits
        before = self._newest.get(made.account)
        if wanted.max_cost_credits is not None and cost > wanted.max_cost_credits:
            raise NotModelledError("cost_exceeds_max")
        if self._credits[day] + cost > self._config.limits.credits_per_day:
            raise NotModelledError("credit_budget_exhausted")
        if before is not None and before.finish_at_ms > made.created_at_ms:
            raise NotModelledError("generation_active")
        self._credits[day] += cost

    def _follow_markers(self, made: ModelledGeneration) -> None:
        """Set the outcome and the duration that a prompt asks for."""
        drawn = RenderSpec("", "", "", made.prompt, 2, 2, "", None, with_audio=False, image_mode=None, asset_ids=())
        plain = NewGeneration(
            id=made.id,
            account=made.account,
            key_sha256="",
            idempotency_key="",
            path="",
            body_sha256=made.body_sha256,
            model=made.model,
            cost_credits=made.cost_credits,
            max_cost_credits=None,
            created_at_ms=made.created_at_ms,
            processing_at_ms=made.processing_at_ms,
            finish_at_ms=made.finish_at_ms,
            outcome="success",
            rehearsed_prompt=None,
            render_spec=drawn,
        )
        new = with_prompt_directives(lambda digest: (made.account, digest) in self._failed_once, plain, made.prompt)
        if new.finish_at_ms is None or new.processing_at_ms is None:
            raise NotModelledError("stays pending")
        if new.rehearsed_prompt is not None:
            self._failed_once.add((made.account, new.rehearsed_prompt))
        made.processing_at_ms, made.finish_at_ms = new.processing_at_ms, new.finish_at_ms
        made.outcome = new.outcome

    # --- the report ---

    def report(self, now_ms: int) -> Report:
        """Return the report on all requests, which the server's own queries compute from the same tables."""
        log = sorted(self._log, key=lambda row: row[0])
        rows = (row for _, row in log)
        used = {place: number for place, number in self._credits.items() if number}
        with filled_tables(self._config.accounts, rows, self._generations, used, now_ms=now_ms) as connection:
            return report_of(connection, self._config.limits, self._calendar, now_ms=now_ms)
