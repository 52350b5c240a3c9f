"""Applies faults: replies in place of a handler, or changes a reply after the handler has run."""

import asyncio
import json
import math
import os
import socket
import sqlite3
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zlib import crc32

import orjson
from aiohttp import hdrs, web

from batchkiln_service.clock import iso
from batchkiln_service.context import CONTEXT, PREFIX, Context
from batchkiln_service.db.assets import find_asset
from batchkiln_service.db.generations import find_generation, find_render_spec
from batchkiln_service.db.keys import find_owner
from batchkiln_service.db.request_log import Credentials
from batchkiln_service.errors import ApiError
from batchkiln_service.faults.fault_rules import FaultRule, Subject, parse_fault_header
from batchkiln_service.faults.registry import RequestFaults
from batchkiln_service.storage.file_response import FileReply
from batchkiln_service.transport import firewall
from batchkiln_service.transport.access_log import CODE
from batchkiln_service.transport.bodies import received, refusal

_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER with timeout 0: closing sends RST instead of FIN
_STORAGE_ERROR: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>\n'
)


IS_REPLAY: Final = web.RequestKey("is_replay", bool)  # set for a create that was accepted before
_DENIALS: Final = (
    ApiError(402, "insufficient_credits", "the balance does not cover the request"),
    ApiError(403, "credits_required", "generation needs a subscription or remaining purchased credits"),
    ApiError(409, "idempotency_conflict", "the first request with this key is still being processed"),
    ApiError(409, "idempotency_conflict", "this key was used with another request body"),
    ApiError(422, "cost_exceeds_max", "the quote is higher than max_cost_credits by now"),
    ApiError(422, "asset_expired", "inputs[0].url has expired; upload the image again"),
    ApiError(422, "invalid_request", "prompt is refused"),
)


def blocked() -> web.Response:
    """Return the firewall's reply."""
    response = web.Response(status=403, text=firewall.PAGE, content_type="text/html")
    response[CODE] = "edge_blocked"
    return response


def reply_instead(request: web.Request, fault: FaultRule) -> web.StreamResponse:
    """Return a fault's reply in place of the handler's."""
    match fault.kind:
        case "throttle":
            wait = math.ceil(fault.seconds or 1)
            return refusal(ApiError(429, "rate_limited", "too many requests", retry_after_seconds=wait))
        case "unavailable":
            later = None if fault.seconds is None else math.ceil(fault.seconds)
            return refusal(ApiError(503, "unavailable", "try again later", retry_after_seconds=later))
        case "storage_error" | "storage_unavailable":
            return _storage_failure(fault)
        case "edge_block":
            return blocked()
        case "html":
            return web.Response(text="<!doctype html><p>Please sign in</p>", content_type="text/html")
        case _:
            _drop(request, is_abrupt=True)
            return web.Response()


def sent_status(fault: FaultRule, response: web.StreamResponse) -> int:
    """Return the status for the log; 0 for a reset connection."""
    return 0 if fault.kind == "reset_before" else response.status


async def spoil_reply(
    request: web.Request, response: web.StreamResponse, late: Sequence[FaultRule]
) -> web.StreamResponse:
    """Apply the faults to the handler's reply, in order, and return the result."""
    for fault in late:
        match fault.kind:
            case "slow":
                await request.app[CONTEXT].clock.sleep(fault.seconds or 0)
            case "wrong_date":
                falsify_date(request, response, fault)
            case "wrong_cost" | "wrong_creation":
                response = falsify_record(response, fault)
            case "cut_body":
                response = await _cut(request, response)
            case "wrong_length":
                response = await _lengthened(request, response, fault.extra_bytes or -1)
            case "refuse_replay":
                response = _denied(request) if request.get(IS_REPLAY) else response
            case _:
                _drop(request, is_abrupt=fault.kind == "reset_after")
    return response


def _denied(request: web.Request) -> web.Response:
    """Return the refusal of a replay by a service that checks the current state before the idempotency key."""
    key = request.headers.get("Idempotency-Key", "")
    return refusal(_DENIALS[crc32(key.encode()) % len(_DENIALS)])


def _storage_failure(fault: FaultRule) -> web.Response:
    """Return an error of the storage, in XML."""
    status, code, message = 500, "InternalError", "The storage has failed."
    if fault.kind == "storage_unavailable":
        status, code, message = 503, "SlowDown", "The storage is busy; come back later."
    text = _STORAGE_ERROR.format(code=code, message=message)
    response = web.Response(status=status, text=text, content_type="application/xml")
    if fault.seconds is not None:
        response.headers[hdrs.RETRY_AFTER] = str(math.ceil(fault.seconds))
    return response


async def _cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Announce the whole body, send half of it, and close the connection."""
    whole = await _in_memory(request, response)
    if whole is None or not isinstance(body := whole.body, bytes):
        return response
    cut = web.StreamResponse(status=whole.status, headers=whole.headers)
    cut.content_length = len(body)
    await cut.prepare(request)
    if request.method != hdrs.METH_HEAD:
        await cut.write(body[: len(body) // 2])
    _drop(request, is_abrupt=False)
    return cut


async def _lengthened(request: web.Request, response: web.StreamResponse, extra_bytes: int) -> web.StreamResponse:
    """Announce the whole body, but send only half of it and close the connection."""
    if request.method == hdrs.METH_PUT:
        if response.status == web.HTTPOk.status_code:
            path = request.app[CONTEXT].asset_dir / request.match_info["asset_id"]
            await asyncio.to_thread(lambda: os.truncate(path, max(0, path.stat().st_size + extra_bytes)))
        return response
    return await _in_memory(request, response, extra_bytes=extra_bytes) or response


async def _in_memory(
    request: web.Request, response: web.StreamResponse, *, extra_bytes: int = 0
) -> web.Response | None:
    """Return a reply with its body in memory; None if it has no body to spoil."""
    if isinstance(response, FileReply):
        return await response.in_memory(request, extra_bytes=extra_bytes)
    return response if isinstance(response, web.Response) and isinstance(response.body, bytes) else None


def _drop(request: web.Request, *, is_abrupt: bool) -> None:
    """Close the connection, or reset it if `is_abrupt`."""
    if request.transport is None:
        return
    if not is_abrupt:
        request.transport.close()
        return
    raw = request.transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    request.transport.abort()


# The key under which a reply stores the error of its Date, in milliseconds.
WRONG_BY_MS: Final = web.ResponseKey("wrong_by_ms", int)

_YEAR_SECONDS: Final = 365 * 86_400.0
_MONTH_SECONDS: Final = 30 * 86_400.0
_UNENDED: Final = frozenset({"pending", "processing"})


def falsify_date(request: web.Request, response: web.StreamResponse, fault: FaultRule) -> None:
    """Falsify the `Date` of a reply by an amount that changes every second, so that no two replies agree."""
    seconds = _YEAR_SECONDS if fault.seconds is None else fault.seconds
    second = request.app[CONTEXT].clock.now_ms() // 1000
    response[WRONG_BY_MS] = round(seconds * 1000) + second % 997 * 60_000


def falsify_record(response: web.StreamResponse, fault: FaultRule) -> web.StreamResponse:
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


FAULT_HEADER: Final = "X-Batchkiln-Fault"
Facts = tuple[str | None, str | None, str | None]  # account, model, prompt


async def faults_of(request: web.Request, names: frozenset[str], asking: Credentials | None) -> RequestFaults:
    """Return the faults of a request. Raise ApiError 400 if the request names an unknown fault."""
    context = request.app[CONTEXT]
    asked = _asked_for(request, names) if context.config.request_faults else []
    subject = Subject(names, request.method, request.path.removeprefix(PREFIX))
    if context.faults.needs_details(names):
        account, model, prompt = await _facts_of(request, context, asking.key_sha256 if asking else None)
        subject = Subject(names, subject.method, subject.path, account, model, prompt)
    return RequestFaults(context.faults, subject, asked)


def _asked_for(request: web.Request, names: frozenset[str]) -> list[FaultRule]:
    if FAULT_HEADER not in request.headers:
        return []
    try:
        return parse_fault_header(", ".join(request.headers.getall(FAULT_HEADER)), names)
    except ValueError as error:
        raise ApiError(400, "invalid_fault", f"header {FAULT_HEADER}: {error}") from error


async def _facts_of(request: web.Request, context: Context, key_sha256: str | None) -> Facts:
    """Return the account, model and prompt of a request for rules that match on them; None for each unknown one."""
    model, prompt = await _asked_in_body(request)
    generation_id = request.match_info.get("id") or request.match_info.get("generation_id")
    asset_id = request.match_info.get("asset_id")

    def find(connection: sqlite3.Connection) -> Facts:
        holder = None if key_sha256 is None else find_owner(connection, key_sha256)
        account = holder.account if holder else None
        if generation_id and (record := find_generation(connection, generation_id)) is not None:
            render_spec = find_render_spec(connection, generation_id)
            return account or record.generation.account, render_spec.model, render_spec.prompt
        if asset_id and (asset := find_asset(connection, asset_id)) is not None:
            return account or asset.account, None, None
        return account, model, prompt

    try:
        return await context.database.run(find)
    except sqlite3.Error:
        return None, model, prompt  # the handler meets the same database error and reports it


async def _asked_in_body(request: web.Request) -> tuple[str | None, str | None]:
    """Return the model and prompt of a JSON body. The handler reads the same bytes again."""
    if request.method != hdrs.METH_POST:
        return None, None
    content = await received(request)
    try:
        body = orjson.loads(content.get())
    except (ApiError, orjson.JSONDecodeError):
        return None, None
    if not isinstance(body, dict):
        return None, None
    model, prompt = body.get("model"), body.get("prompt")
    return model if isinstance(model, str) else None, prompt if isinstance(prompt, str) else None
