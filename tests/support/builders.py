"""Builders: each gives a whole value, and takes only what a test is about."""

# ruff: noqa: ANN401  a builder passes on whatever field a test names

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any

from batchkiln.core.account_view import AccountView, CallWaits, Permission
from batchkiln.core.budget import JobCredits
from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.errors import Diagnostic
from batchkiln.core.job import Attempt, AttemptState, InputFile, ItemSpec, JobSpec, Mode, Order, Recipe
from batchkiln.core.queue_types import Candidate
from batchkiln.core.rate_limits import DayUsage, Limits, RateLimits, ServiceDay
from batchkiln.core.responses import ErrorInfo, GenerationRecord, GenerationStatus, OutputLink
from batchkiln.core.sliding_window import SlidingWindow
from batchkiln.core.timestamps import ClockReading

from .fake_clock import NOON as NOON  # noqa: PLC0414  builders are where tests look for it

NO = ErrorInfo("no", "because")


def now_at(monotonic: float = 0.0, *, uncertainty_seconds: float = 0.0) -> ClockReading:
    instant = NOON + timedelta(seconds=monotonic)
    return ClockReading(monotonic, instant, instant + timedelta(seconds=uncertainty_seconds))


def recipe(**fields: Any) -> Recipe:
    defaults: dict[str, Any] = {
        "model": "cost-10",
        "mode": Mode.TEXT_TO_IMAGE,
        "parameters": (("resolution", "1024x1024"),),
        "inputs_count": 0,
        "max_cost_credits": None,
        "attempts": 3,
    }
    return Recipe(**defaults | fields)


def input_file(name: str = "owl.png", content: bytes = b"owl") -> InputFile:
    return InputFile(f"/images/{name}", hashlib.sha256(content).hexdigest(), len(content), "image/png")


def item_spec(name: str, **fields: Any) -> ItemSpec:
    defaults: dict[str, Any] = {"recipe": recipe(), "prompt": f"a {name}"}
    return ItemSpec(name=name, **defaults | fields)


def job_spec(name: str = "job", **fields: Any) -> JobSpec:
    defaults: dict[str, Any] = {
        "description": "",
        "profile": None,
        "accounts": (),
        "order": Order.MANIFEST,
        "budget_credits": None,
        "budget_credits_per_day": None,
        "output_dir": "/out",
        "filename": "{job}/{item}.{ext}",
        "manifest_path": "job.yaml",
    }
    return JobSpec(name=name, **defaults | fields)


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item with a made-up place."""

    spec: ItemSpec
    file: str = "job.yaml"
    line: int = 1
    objections: tuple[PlacedObjection, ...] = ()
    repetition: int = 0
    has_default_id: bool = False


def diagnostic_at(file: str, line: int, reason: str, remedy: str | None, column: int | None = None) -> Diagnostic:
    return Diagnostic(reason, file=file, line=line, column=column, remedy=remedy)


def attempt(**fields: Any) -> Attempt:
    defaults: dict[str, Any] = {
        "id": 1,
        "item_id": 1,
        "account_id": 1,
        "number": 1,
        "state": AttemptState.SENT,
        "is_video": False,
        "idempotency_key": "bk-" + "0" * 40,
        "key_fingerprint": "key-1",
        "body": b"{}",
        "quote_credits": 10,
        "sends": 1,
    }
    return Attempt(**defaults | fields)


def record(status: GenerationStatus = GenerationStatus.PROCESSING, **fields: Any) -> GenerationRecord:
    defaults: dict[str, Any] = {
        "id": "gen-1",
        "status_word": status.value,
        "created_at": NOON,
        "cost_credits": 10,
        "outputs": (),
        "error": None,
    }
    if status is GenerationStatus.SUCCESS:
        defaults["outputs"] = (OutputLink("image", "https://files/1", None),)
    return GenerationRecord(status=status, **defaults | fields)


def candidate(**fields: Any) -> Candidate:
    defaults: dict[str, Any] = {
        "item_id": 1,
        "job_id": 1,
        "recipe_id": 1,
        "priority": 0,
        "index": 1,
        "order": Order.MANIFEST,
        "cost": 10,
        "cap": None,
        "money": JobCredits(),
        "job_is_working": False,
    }
    return Candidate(**defaults | fields)


def account_view(*, usage: DayUsage | None = None, resets_at: float = 43_200.0, **fields: Any) -> AccountView:
    """Build a view; windows, holds and single waits are given by name, whatever part of it holds them."""
    rates = RateLimits.of(fields.pop("limits", Limits()), ServiceDay())
    rates.usage, rates.resets_at = usage or DayUsage(), resets_at
    for quota, name in ((rates.creates, "creates"), (rates.reads, "reads")):
        quota.window = fields.pop(name, quota.window)
        quota.imposed = fields.pop(f"{name}_held", quota.imposed)
        quota.used = getattr(rates.usage, name)
        quota.released_before = quota.window.released
    rates.host.window = fields.pop("machine", rates.host.window)
    rates.host.held = fields.pop("machine_held", rates.host.held)
    waits = {"calls": "backoffs", "quotes": "quotes_held", "inputs": "inputs_held"}
    allowed = {
        name: fields.pop(name) for name in ("may_start", "is_blocked", "has_key", "credits_left") if name in fields
    }
    return AccountView(
        rates=rates,
        waits=CallWaits(**{part: fields.pop(name) for part, name in waits.items() if name in fields}),
        permission=Permission(**allowed),
        **fields,
    )


def filled(log: SlidingWindow, *settled_at: float) -> SlidingWindow:
    """Give a log the requests that were over at these moments."""
    for at in settled_at:
        log.acquire()
        log.release(at)
    return log


def day_of(instant: datetime) -> datetime:
    return instant.replace(hour=0, minute=0, second=0, microsecond=0)


NEVER = inf
