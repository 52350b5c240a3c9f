"""The report's pages as HTML. All data are autoescaped."""

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from batchkiln.core.byte_sizes import format_size
from batchkiln.core.states import ItemState
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.totals import MAX_MISSING, ReportTotals

if TYPE_CHECKING:
    from jinja2 import Environment

MARK: Final = "<!doctype html>\n<!-- batchkiln report: "
"""The beginning of each page, before the job's name. A file that begins otherwise is never overwritten."""

_LANDSCAPE: Final = 1.778
_PORTRAIT: Final = 0.8  # taller cells would leave only two rows on a screen


class Picture(Struct, frozen=True):
    """One file with its thumbnail, or with the reason why it has none."""

    file: ReportFile
    thumbnail: Thumbnail | NoThumbnail


class PageLink(Struct, frozen=True):
    """A page of the report: its file name, and the indexes of its first and last item."""

    name: str
    first: int
    last: int


class Shape(Struct, frozen=True):
    """The shape of the contact sheet's cells. `ratio` is width divided by height."""

    ratio: float = 1.0

    @classmethod
    def common(cls, ratios: dict[float, int]) -> "Shape":
        """Return the most frequent ratio, within the limits that keep the sheet readable."""
        if not ratios:
            return cls()
        most = max(ratios, key=lambda ratio: ratios[ratio])
        return cls(min(max(most, _PORTRAIT), _LANDSCAPE))


def render_card(item: ReportItem, pictures: Sequence[Picture]) -> str:
    """Return the cards of one item: one for each file, or one with the item's state if it has no files."""
    return _environment().get_template("card.html").render(item=item, pictures=pictures, NoThumbnail=NoThumbnail)


def render_head(job: ReportJob, totals: ReportTotals, pages: Sequence[PageLink], *, page: int, shape: Shape) -> str:
    """Return the HTML before a page's cards. Only the first page has the totals."""
    script = _text("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    settings: dict[str, Any] = {
        "job": job,
        "totals": totals,
        "pages": pages,
        "page": page,
        "shape": shape,
        "style": _text("report.css"),
        "script": script,
        "script_hash": digest,
        "states": sorted((state for state in ItemState if totals.states[state]), key=_place),
        "days": sorted(totals.days.items()),
        "max_charged_per_day": max((day.charged for day in totals.days.values()), default=0),
        "models": sorted(totals.models.items(), key=lambda entry: (-entry[1].credits.spent, entry[0])),
        "causes": sorted(totals.causes.items(), key=lambda entry: (-entry[1].count, entry[0])),
        "requests": totals.settings.most_common(),
        "MAX_MISSING": MAX_MISSING,
    }
    return page_mark(job.name, page) + _environment().get_template("page.html").render(settings)


def _place(state: ItemState) -> tuple[bool, bool]:
    """Order the states as the dashboard's bar has them: what is done first, and what is not begun last."""
    return state is not ItemState.DONE, state is ItemState.QUEUED


def page_mark(job_name: str, page: int) -> str:
    """Return the beginning of a page. A job's name cannot contain characters that would end the comment."""
    return f"{MARK}{job_name}, page {page + 1} -->\n"


def render_foot(job: ReportJob, pages: Sequence[PageLink], *, page: int) -> str:
    """Return the HTML after a page's cards."""
    return _environment().get_template("foot.html").render(job=job, pages=pages, page=page)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  slow to import, and only reports need it
    from markupsafe import Markup  # noqa: PLC0415  likewise

    made = Environment(
        loader=PackageLoader("batchkiln.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "figure": lambda number: f"{number:,}",
        "amount": _plural,
        "moment": lambda instant: f"{instant:%Y-%m-%d %H:%M} UTC",
        "day": _day,
        "size": format_size,
        "runtime": _runtime,
        "value": _value,
        "clean": clean,
        "own": Markup,  # for the package's own files only
    }
    return made


@cache
def _text(name: str) -> str:
    return files("batchkiln.reports").joinpath("templates", name).read_text("utf-8")


def _plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _day(start: datetime) -> str:
    """Return the date of a service day, and its hour if it does not begin at midnight, as in a rehearsal."""
    is_midnight = start - start.replace(hour=0, minute=0, second=0, microsecond=0) == timedelta()
    return f"{start:%Y-%m-%d}" if is_midnight else f"{start:%Y-%m-%d %H:%M}"


def _runtime(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def _value(value: object) -> str:
    """Return a parameter or a metadata value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """Remove characters that a page cannot show: control characters other than line breaks, and lone surrogates."""
    if text.isprintable():  # the usual case; checking each character takes longer than the rest of a card
        return text
    return "".join(one for one in text if one.isprintable() or one in "\n\t")
