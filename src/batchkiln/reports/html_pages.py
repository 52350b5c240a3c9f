"""The pages as HTML: cards of items, and what stands around them. Everything foreign goes through autoescaping."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from batchkiln.core.states import ItemState
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.totals import GONE_MAX, Sums

if TYPE_CHECKING:
    from jinja2 import Environment

MARK: Final = "<!doctype html>\n<!-- batchkiln report: "
"""How each page begins, before the job's name: what begins otherwise is never written over."""

_LANDSCAPE: Final = 1.778
_PORTRAIT: Final = 0.8  # taller cells would leave two rows on a screen
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Picture:
    """One file with its small picture, or why there is none."""

    file: ReportFile
    thumbnail: Thumbnail | NoThumbnail


@dataclass(frozen=True, slots=True)
class PageLink:
    """A page of the report: the file's name, and the indexes of its first and last item."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The cells of the contact sheet: width by height."""

    ratio: float = 1.0

    @classmethod
    def common(cls, ratios: dict[float, int]) -> "Shape":
        """Take the ratio that most pictures have, within what makes a readable sheet."""
        if not ratios:
            return cls()
        most = max(ratios, key=lambda ratio: ratios[ratio])
        return cls(min(max(most, _PORTRAIT), _LANDSCAPE))


def render_card(item: ReportItem, pictures: Sequence[Picture]) -> str:
    """Give the cards of one item: one a file, or one that says how the item stands."""
    return _environment().get_template("card.html").render(item=item, pictures=pictures, NoThumbnail=NoThumbnail)


def render_head(job: ReportJob, sums: Sums, pages: Sequence[PageLink], *, page: int, shape: Shape) -> str:
    """Give what stands before a page's cards; the first page tells everything, the others are its continuation."""
    script = _text("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    settings: dict[str, Any] = {
        "job": job,
        "sums": sums,
        "pages": pages,
        "page": page,
        "shape": shape,
        "style": _text("report.css"),
        "script": script,
        "script_hash": digest,
        "states": [state for state in ItemState if sums.states[state]],
        "days": sorted(sums.days.items()),
        "most_of_a_day": max((money.charged for money in sums.days.values()), default=0),
        "models": sorted(sums.models.items(), key=lambda entry: (-entry[1].money.spent, entry[0])),
        "causes": sorted(sums.causes.items(), key=lambda entry: (-entry[1].count, entry[0])),
        "requests": sums.settings.most_common(),
        "GONE_MAX": GONE_MAX,
    }
    return page_mark(job.name, page) + _environment().get_template("page.html").render(settings)


def page_mark(job_name: str, page: int) -> str:
    """Give the beginning of a page; a job's name has no character that would end the comment."""
    return f"{MARK}{job_name}, page {page + 1} -->\n"


def render_foot(job: ReportJob, pages: Sequence[PageLink], *, page: int) -> str:
    """Give what stands behind a page's cards."""
    return _environment().get_template("foot.html").render(job=job, pages=pages, page=page)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  only a report waits for it
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
        "amount": _amount,
        "moment": lambda instant: f"{instant:%Y-%m-%d %H:%M} UTC",
        "day": _day,
        "size": size_text,
        "runtime": _runtime,
        "value": _value,
        "clean": clean,
        "own": Markup,  # only for the package's own files
    }
    return made


@cache
def _text(name: str) -> str:
    return files("batchkiln.reports").joinpath("templates", name).read_text("utf-8")


def _amount(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _day(start: datetime) -> str:
    """Name a service day by its date; one that does not begin at midnight, as in a rehearsal, by its hour as well."""
    is_midnight = start - start.replace(hour=0, minute=0, second=0, microsecond=0) == timedelta()
    return f"{start:%Y-%m-%d}" if is_midnight else f"{start:%Y-%m-%d %H:%M}"


def size_text(size_bytes: int) -> str:
    """Give a size in a unit that leaves few digits."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < _KIB:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"  # noqa: PLR2004  digits
        size /= _KIB
    return f"{size:.1f} GiB"


def _runtime(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def _value(value: object) -> str:
    """Give a parameter or a metadata value as a person would write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def clean(text: str) -> str:
    """Drop what is no character of a page: controls but line breaks, and halves of characters."""
    if text.isprintable():  # nearly all are, and looking at each character takes longer than all else of a card
        return text
    return "".join(one for one in text if one.isprintable() or one in "\n\t")
