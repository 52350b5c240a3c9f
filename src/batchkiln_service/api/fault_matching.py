"""Select the faults of a request: those it asks for, and those of the active rules that match it."""

import sqlite3
from typing import Final

import orjson
from aiohttp import hdrs, web

from batchkiln_service.context import CONTEXT, PREFIX, Context
from batchkiln_service.db.assets import find_asset
from batchkiln_service.db.generations import find_generation, find_render_spec
from batchkiln_service.db.keys import find_owner
from batchkiln_service.db.request_log import Credentials
from batchkiln_service.errors import ApiError
from batchkiln_service.faults.fault_rules import FaultRule, Subject, parse_fault_header
from batchkiln_service.faults.registry import RequestFaults
from batchkiln_service.transport.bodies import received

FAULT_HEADER: Final = "X-Batchkiln-Fault"
Facts = tuple[str | None, str | None, str | None]  # account, model, prompt


async def faults_of(request: web.Request, names: frozenset[str], asking: Credentials | None) -> RequestFaults:
    """Return the faults of a request. Raises ApiError 400 if it asks for an unknown fault."""
    context = request.app[CONTEXT]
    asked = _asked_for(request, names) if context.config.request_faults else []
    subject = Subject(names, request.method, request.path.removeprefix(PREFIX))
    if context.faults.looks_closer(names):
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
