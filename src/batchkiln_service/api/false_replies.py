"""Faults that falsify a reply: its date, a record's cost, or a record's creation time."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from batchkiln_service.clock import iso
from batchkiln_service.context import CONTEXT
from batchkiln_service.faults import FaultRule

# The key under which a reply stores the error of its Date, in milliseconds.
WRONG_BY_MS: Final = web.ResponseKey("wrong_by_ms", int)

_YEAR_SECONDS: Final = 365 * 86_400.0
_MONTH_SECONDS: Final = 30 * 86_400.0
_UNENDED: Final = frozenset({"pending", "processing"})


def tell_wrong_date(request: web.Request, response: web.StreamResponse, fault: FaultRule) -> None:
    """Falsify the `Date` of a reply by an amount that changes every second, so that no two replies agree."""
    seconds = _YEAR_SECONDS if fault.seconds is None else fault.seconds
    second = request.app[CONTEXT].clock.now_ms() // 1000
    response[WRONG_BY_MS] = round(seconds * 1000) + second % 997 * 60_000


def with_untruth(response: web.StreamResponse, fault: FaultRule) -> web.StreamResponse:
    """Return a record with a falsified cost or creation time; any other reply unchanged."""
    if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return response
    record: dict[str, Any] = json.loads(response.body)
    if "created_at" not in record:
        return response
    if fault.kind == "wrong_creation":
        made_at_ms = round(datetime.fromisoformat(record["created_at"]).astimezone(UTC).timestamp() * 1000)
        seconds = _MONTH_SECONDS if fault.seconds is None else fault.seconds
        record["created_at"] = iso(made_at_ms - round(seconds * 1000))
    elif record["status"] in _UNENDED:
        record["credits"]["cost"] = 0
    response.body = json.dumps(record, separators=(",", ":")).encode()
    return response
