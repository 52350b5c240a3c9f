"""Templates to HTML: everything is escaped but what our own modules mark as markup."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import (
    format_age,
    format_duration,
    format_minute,
    format_second,
    plural,
    sanitize,
)
from batchkiln.store import OutputSummary

_CODE: Final = re.compile(r"`([^`]+)`")
_KILO: Final = 1024


def environment() -> Environment:
    """Return the templates with the words that they use."""
    made = Environment(
        loader=PackageLoader("batchkiln.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "age": format_age,
        "as_text": as_text,
        "time_until": time_until,
        "code": code,
        "plural": plural,
        "detail": detail,
        "minute": format_minute,
        "one_line": sanitize,
        "second": format_second,
        "sentence": sentence,
        "size": size,
        "thousands": lambda number: f"{number:,}",
    }
    made.globals |= {
        "STATES": tuple(ItemState),
        "item_url": item_url,
        "items_url": items_url,
        "job_url": job_url,
        "media_url": media_url,
        "thumb_url": thumb_url,
        "action_url": action_url,
    }
    for name in made.list_templates():
        made.get_template(name)  # compiled now, so that the first page is as fast as any
    return made


def code(text: str) -> Markup:
    """Show what stands in backquotes as something to type."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped just now


def sentence(text: str) -> str:
    """Make a sentence of a clause, which may end with one already."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def as_text(value: object) -> str:
    """Give a metadata value as a filter by it is written."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def time_until(instant: datetime, now: datetime) -> str:
    """Say in how long something will be."""
    return format_duration((instant - now).total_seconds())


def detail(facts: Mapping[str, Any]) -> str:
    """Give what an event tells beyond its kind, on one line."""
    words = {True: "yes", False: "no", None: "none"}
    return ", ".join(
        f"{name.replace('_', ' ')} {sanitize(words[value] if isinstance(value, bool | None) else str(value))}"
        for name, value in facts.items()
    )


def size(size_bytes: int) -> str:
    """Give a size in the unit that a person would choose."""
    amount = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < _KILO or unit == "GiB":
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= _KILO
    raise AssertionError("the last unit takes any size")


def job_url(job: str) -> str:
    """Return the page of a job."""
    return f"/jobs/{quote(job, safe='')}"


def item_url(job: str, item: str) -> str:
    """Return the page of an item; its name may hold anything, so it stands in the query."""
    return f"{job_url(job)}/item?{urlencode({'id': item})}"


def items_url(job: str, **wanted: Any) -> str:  # noqa: ANN401  texts, numbers and None
    """Return a job's gallery with filters."""
    given = {name: value for name, value in wanted.items() if value not in (None, "")}
    return f"{job_url(job)}/items" + (f"?{urlencode(given)}" if given else "")


def action_url(job: str, action: str, item: str | None = None) -> str:
    """Return the page that asks before something is done."""
    return f"{job_url(job)}/{action}" + (f"?{urlencode({'id': item})}" if item is not None else "")


def thumb_url(output: OutputSummary) -> str:
    """Return where a file's small picture is; with its hash, so that a browser may keep it for good."""
    return f"/thumbs/{output.id}/{output.sha256[:16]}"


def media_url(output: OutputSummary) -> str:
    """Return where a file itself is."""
    return f"/media/{output.id}/{output.sha256[:16]}"
