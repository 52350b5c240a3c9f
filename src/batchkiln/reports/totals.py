"""The sums of a report, added up from the items that it shows. Their size does not grow with the number of items."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from batchkiln.core.states import PROBLEM_STATES, ItemState
from batchkiln.reports.contents import ReportItem

SETTINGS_MAX: Final = 100
CAUSES_MAX: Final = 100
EXAMPLES_MAX: Final = 3
GONE_MAX: Final = 20

"""States that a report tells as failures."""


@dataclass(slots=True)
class Money:
    """Credits of a model, a day or the whole job."""

    generations: int = 0
    charged: int = 0
    refunded: int = 0
    reserved: int = 0

    @property
    def spent(self) -> int:
        """What was charged, less what was refunded."""
        return self.charged - self.refunded

    def add(self, *, charged: int, refunded: int, reserved: int) -> None:
        """Add what one attempt cost."""
        self.generations += charged > 0 or refunded > 0
        self.charged += charged
        self.refunded += refunded
        self.reserved += reserved


@dataclass(slots=True)
class ModelSums:
    """What one model has made."""

    money: Money = field(default_factory=Money)
    items: int = 0
    done: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """One kind of request."""

    model: str
    mode: str
    parameters: tuple[tuple[str, str | int | bool], ...]


@dataclass(frozen=True, slots=True)
class Example:
    """An item to look at, and the page of the report that it is on, from 0."""

    item: str
    index: int
    page: int


@dataclass(slots=True)
class Cause:
    """Why items came to nothing. `message` is the last one's."""

    count: int = 0
    message: str = ""
    examples: list[Example] = field(default_factory=list)


@dataclass(slots=True)
class Sums:
    """Everything that a report says of all items together."""

    states: Counter[ItemState] = field(default_factory=Counter)
    money: Money = field(default_factory=Money)
    models: dict[str, ModelSums] = field(default_factory=dict)
    days: dict[datetime, Money] = field(default_factory=dict)
    causes: dict[tuple[ItemState, str], Cause] = field(default_factory=dict)
    other_causes: int = 0  # items of causes beyond the bound
    settings: Counter[Setting] = field(default_factory=Counter)
    other_settings: int = 0  # items of settings beyond the bound
    pictures: int = 0
    clips: int = 0
    size_bytes: int = 0
    first_sent_at: datetime | None = None
    last_saved_at: datetime | None = None
    gone: list[str] = field(default_factory=list)  # names of files that were not there any more, the first of them
    gone_count: int = 0
    unreadable_count: int = 0

    @property
    def items(self) -> int:
        """How many items there are."""
        return self.states.total()

    @property
    def unhappy(self) -> int:
        """How many of them came to nothing, or need a person."""
        return sum(self.states[state] for state in PROBLEM_STATES)

    def add(self, item: ReportItem, *, page: int) -> None:
        """Count one item."""
        self.states[item.state] += 1
        model = self.models.setdefault(item.model, ModelSums())
        model.items += 1
        model.done += item.state is ItemState.DONE
        for charge in item.charges:
            for money in (self.money, model.money, self.days.setdefault(charge.day, Money())):
                money.add(charged=charge.charged, refunded=charge.refunded, reserved=charge.reserved)
            self.first_sent_at = min(self.first_sent_at or charge.recorded_at, charge.recorded_at)
        for file in item.files:
            self.clips += file.is_video
            self.pictures += not file.is_video
            self.size_bytes += file.size_bytes
            self.last_saved_at = max(self.last_saved_at or file.saved_at, file.saved_at)
        self._add_setting(Setting(item.model, item.mode.value, item.parameters))
        if item.state in PROBLEM_STATES and item.error is not None:
            self._add_cause(item, item.error.code, item.error.message, page=page)

    def add_gone(self, name: str) -> None:
        """Note a file that is not there any more."""
        self.gone_count += 1
        if len(self.gone) < GONE_MAX:
            self.gone.append(name)

    def _add_setting(self, setting: Setting) -> None:
        if setting in self.settings or len(self.settings) < SETTINGS_MAX:
            self.settings[setting] += 1
        else:
            self.other_settings += 1

    def _add_cause(self, item: ReportItem, code: str, message: str, *, page: int) -> None:
        key = (item.state, code)
        if key not in self.causes and len(self.causes) >= CAUSES_MAX:
            self.other_causes += 1
            return
        cause = self.causes.setdefault(key, Cause())
        cause.count += 1
        cause.message = message
        if len(cause.examples) < EXAMPLES_MAX:
            cause.examples.append(Example(item.name, item.index, page))
