"""The totals of a report. Their size is bounded, whatever the number of items."""

from collections import Counter
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from batchkiln.core.states import PROBLEM_STATES, ItemState
from batchkiln.reports.contents import ReportItem

MAX_SETTINGS: Final = 100
MAX_CAUSES: Final = 100
MAX_EXAMPLES: Final = 3
MAX_MISSING: Final = 20


class CreditTotals(Struct):
    """Credits of a model, a day or the whole job. `generations` counts attempts that were charged or refunded."""

    generations: int = 0
    charged: int = 0
    refunded: int = 0
    reserved: int = 0

    @property
    def spent(self) -> int:
        """The credits charged, net of refunds."""
        return self.charged - self.refunded

    def add(self, *, charged: int, refunded: int, reserved: int) -> None:
        """Add the credits of one attempt."""
        self.generations += charged > 0 or refunded > 0
        self.charged += charged
        self.refunded += refunded
        self.reserved += reserved


class ModelTotals(Struct):
    """The totals of one model."""

    credits: CreditTotals = field(default_factory=CreditTotals)
    items: int = 0
    done: int = 0


class RequestSettings(Struct, frozen=True):
    """The settings that requests share."""

    model: str
    mode: str
    parameters: tuple[tuple[str, str | int | bool], ...]


class Example(Struct, frozen=True):
    """An item with a failure. `page` is the report's page that shows it, from 0."""

    item: str
    index: int
    page: int


class Cause(Struct):
    """One cause of failures. `message` is from the latest item."""

    count: int = 0
    message: str = ""
    examples: list[Example] = field(default_factory=list)


class ReportTotals(Struct):
    """The totals of all items of a report."""

    states: Counter[ItemState] = field(default_factory=Counter)
    credits: CreditTotals = field(default_factory=CreditTotals)
    models: dict[str, ModelTotals] = field(default_factory=dict)
    days: dict[datetime, CreditTotals] = field(default_factory=dict)
    causes: dict[tuple[ItemState, str], Cause] = field(default_factory=dict)
    other_causes: int = 0  # failures beyond `MAX_CAUSES`
    settings: Counter[RequestSettings] = field(default_factory=Counter)
    other_settings: int = 0  # items beyond `MAX_SETTINGS`
    images: int = 0
    videos: int = 0
    size_bytes: int = 0
    first_sent_at: datetime | None = None
    last_saved_at: datetime | None = None
    missing: list[str] = field(default_factory=list)  # names of the first `MAX_MISSING` files that no longer exist
    missing_count: int = 0
    changed_count: int = 0
    unreadable_count: int = 0

    @property
    def items(self) -> int:
        """The number of items."""
        return self.states.total()

    @property
    def not_done(self) -> int:
        """The number of items that failed or need a person."""
        return sum(self.states[state] for state in PROBLEM_STATES)

    def add(self, item: ReportItem, *, page: int) -> None:
        """Add one item; `page` is the report's page that shows it, from 0."""
        self.states[item.state] += 1
        model = self.models.setdefault(item.model, ModelTotals())
        model.items += 1
        model.done += item.state is ItemState.DONE
        for charge in item.charges:
            for total in (self.credits, model.credits, self.days.setdefault(charge.day, CreditTotals())):
                total.add(charged=charge.charged, refunded=charge.refunded, reserved=charge.reserved)
            self.first_sent_at = min(self.first_sent_at or charge.recorded_at, charge.recorded_at)
        for file in item.files:
            self.videos += file.is_video
            self.images += not file.is_video
            self.size_bytes += file.size_bytes
            self.last_saved_at = max(self.last_saved_at or file.saved_at, file.saved_at)
        self._add_setting(RequestSettings(item.model, item.mode.value, item.parameters))
        if item.state in PROBLEM_STATES and item.error is not None:
            self._add_cause(item, item.error.code, item.error.message, page=page)

    def add_missing(self, name: str) -> None:
        """Add a file that no longer exists."""
        self.missing_count += 1
        if len(self.missing) < MAX_MISSING:
            self.missing.append(name)

    def _add_setting(self, setting: RequestSettings) -> None:
        if setting in self.settings or len(self.settings) < MAX_SETTINGS:
            self.settings[setting] += 1
        else:
            self.other_settings += 1

    def _add_cause(self, item: ReportItem, code: str, message: str, *, page: int) -> None:
        key = (item.state, code)
        if key not in self.causes and len(self.causes) >= MAX_CAUSES:
            self.other_causes += 1
            return
        cause = self.causes.setdefault(key, Cause())
        cause.count += 1
        cause.message = message
        if len(cause.examples) < MAX_EXAMPLES:
            cause.examples.append(Example(item.name, item.index, page))
