"""The Jinja environment with its filters, and the URLs of the pages. Everything but `Markup` is escaped."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from batchkiln.api import OutputSummary, QueueLocation
from batchkiln.core.byte_sizes import format_size
from batchkiln.core.errors import command_arguments
from batchkiln.core.polling import RETENTION
from batchkiln.core.states import FAILED_STATES
from batchkiln.dashboard.file_faults import MISSING
from batchkiln.dashboard.messages import next_step, retry_cost, retry_notes
from batchkiln.presentation.chained_inputs import source_name, stale_reason, stale_text, waiting_lines
from batchkiln.presentation.confirmations import by_state
from batchkiln.presentation.formatting import (
    STYLES,
    format_minute,
    format_second,
    format_service_age,
    format_wait_end,
    plural,
    sanitize,
)
from batchkiln.presentation.history import sentence_of
from batchkiln.presentation.overview import budget_note, service_notes

_OWN_FOLDER: Final = ".batchkiln"  # the default folder of a queue, inside that of a project
_CODE: Final = re.compile(r"`([^`]+)`")
_OWN_WORD: Final = re.compile(r"[a-z]+(?:,|\?|!)?(?=\s|$)|stale: ")
_MINUTE: Final = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d) ([A-Z]{3,5}|[+-]\d\d)\b")


@cache
def environment() -> Environment:
    """Return the templates with their filters and functions: once in a process, since to compile them takes long."""
    made = Environment(
        loader=PackageLoader("batchkiln.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "age": format_service_age,
        "as_text": as_text,
        "code": code,
        "plural": plural,
        "detail": detail,
        "label": label,
        "minute": partial(moment, format_minute),
        "one_line": sanitize,
        "second": partial(moment, format_second),
        "sentence": sentence,
        "size": format_size,
        "failed": lambda items: by_state({state: items[state] for state in FAILED_STATES}),
        "thousands": lambda number: f"{number:,}",
    }
    made.globals |= {
        "MISSING": MISSING,
        "RETENTION": RETENTION,
        "STATES": tuple(STYLES),
        "budget_note": budget_note,
        "command_arguments": command_arguments,
        "fetch_url": fetch_url,
        "item_url": item_url,
        "service_notes": service_notes,
        "source_name": source_name,
        "stale_reason": stale_reason,
        "stale_text": stale_text,
        "waiting_lines": waiting_lines,
        "items_url": items_url,
        "next_step": next_step,
        "retry_cost": retry_cost,
        "retry_notes": retry_notes,
        "job_url": job_url,
        "review_url": review_url,
        "sentence_of": sentence_of,
        "media_url": media_url,
        "thumb_url": thumb_url,
        "action_url": action_url,
        "version_url": version_url,
        "wait_end": format_wait_end,
    }
    for name in made.list_templates():
        made.get_template(name)  # compiled now, so that the first page is as fast as the others
    return made


def moment(write: Callable[[datetime, tzinfo], str], instant: datetime) -> Markup:
    """Return an instant in UTC as a `<time>`; the script of the pages shows it in the time zone of the browser."""
    return Markup('<time datetime="{}">{}</time>').format(
        instant.astimezone(UTC).isoformat(timespec="seconds"), write(instant, UTC)
    )


def code(text: str) -> Markup:
    """Return escaped text with its parts in backquotes as `<code>`, and its times as `moment` writes them."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(_MINUTE.sub(lambda found: str(_marked_minute(found)), marked))  # noqa: S704  escaped just now


def _marked_minute(found: re.Match[str]) -> str:
    """Return a time that `format_minute` wrote, in UTC or in the zone of this machine, as `moment` writes it."""
    zone = UTC if found[2] == "UTC" else None
    try:
        instant = datetime.fromisoformat(found[1]).replace(tzinfo=zone).astimezone()
    except ValueError:
        return found[0]
    return moment(format_minute, instant) if format_minute(instant, zone) == found[0] else found[0]


def sentence(text: str) -> str:
    """Return a clause with a capital letter and a final period.

    What does not begin with a word of its own stays as it is: an id as `owl-clip`, a field as `size.width`, and a name
    before a colon, as that of a job.
    """
    start = text[:1].upper() + text[1:] if _OWN_WORD.match(text) else text
    return start + ("" if text.endswith((".", "!", "?", "…")) else ".")


def label(name: str) -> str:
    """Return the name of a field as the pages write those of their own: `aspect_ratio` is `Aspect ratio`."""
    text = sanitize(name).replace("_", " ")
    return text[:1].upper() + text[1:]


def as_text(value: object) -> str:
    """Return a metadata value in the form of the gallery's filter."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def detail(facts: Mapping[str, Any]) -> str:
    """Return the details of an event on one line."""
    words = {True: "yes", False: "no", None: "none"}
    return ", ".join(
        f"{name.replace('_', ' ')} {sanitize(words[value] if isinstance(value, bool | None) else str(value))}"
        for name, value in facts.items()
    )


def job_url(job: str) -> str:
    """Return the URL of a job's page."""
    return f"/jobs/{quote(job, safe='')}"


def item_url(job: str, item: str) -> str:
    """Return the URL of an item's page. The id is in the query, because it may contain slashes."""
    return f"{job_url(job)}/item?{urlencode({'id': item})}"


def items_url(job: str, **wanted: Any) -> str:  # noqa: ANN401  texts, lists of them, numbers and None
    """Return the URL of a job's gallery with filters."""
    query = urlencode({name: value for name, value in wanted.items() if value not in (None, "")}, doseq=True)
    return f"{job_url(job)}/items" + (f"?{query}" if query else "")


def review_url(job: str, **place: Any) -> str:  # noqa: ANN401  numbers and None
    """Return the URL of a job's review page, at a place or at what is first to review."""
    given = {name: value for name, value in place.items() if value is not None}
    return f"{job_url(job)}/review" + (f"?{urlencode(given)}" if given else "")


def queue_name(queue: QueueLocation) -> str:
    """Return the name of a queue on the pages: a file with the folder that it belongs to, but not its whole path."""
    if not isinstance(queue, Path):
        return queue.name
    path = queue.absolute()
    kept = 3 if path.parent.name == _OWN_FOLDER else 2
    return str(Path(*path.parts[-kept:]))


def queue_path(queue: QueueLocation) -> str:
    """Return the whole path of a queue's file, with `~` for the home folder: for those who are signed in."""
    if not isinstance(queue, Path):
        return queue.name
    path = queue.absolute()
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and home != Path("/") else str(path)


def project_name(queue: QueueLocation) -> str:
    """Return the name of the folder that a queue belongs to, for titles; of another file, its own name."""
    if not isinstance(queue, Path):
        return queue.name
    path = queue.absolute()
    return path.parent.parent.name or path.name if path.parent.name == _OWN_FOLDER else path.stem


def version_url(job: str, item: str, version: int) -> str:
    """Return the URL of the page that asks whether a version becomes current."""
    return f"{job_url(job)}/use-version?{urlencode({'id': item, 'version': version})}"


def action_url(job: str, action: str, item: str | None = None) -> str:
    """Return the URL of the page that asks for confirmation of an action."""
    return f"{job_url(job)}/{action}" + (f"?{urlencode({'id': item})}" if item is not None else "")


def fetch_url(job: str, item: str, **back: Any) -> str:  # noqa: ANN401  a text or a number
    """Return the URL to which a form is sent that downloads an item's files again; `back` is the page to return to."""
    return f"{action_url(job, 'fetch')}?{urlencode({'id': item} | back)}"


def thumb_url(output: OutputSummary) -> str:
    """Return the URL of a thumbnail. It contains the file's hash, so that it is of this version's file."""
    return f"/thumbs/{output.id}/{output.sha256[:16]}"


def media_url(output: OutputSummary) -> str:
    """Return the URL of an output file."""
    return f"/media/{output.id}/{output.sha256[:16]}"
