"""GET /models, /credits/balance and /openapi.json."""

import asyncio
import sqlite3

from aiohttp import hdrs, web

from batchkiln_service.api.handling import ApiCall, execute
from batchkiln_service.api.openapi import description
from batchkiln_service.db.admission import Caller, browser_refused
from batchkiln_service.db.credits import balance_credits
from batchkiln_service.rules.replies import Balance, ModelList, entry_of
from batchkiln_service.transport.bodies import reply


async def models(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """GET /models: the catalogue."""
    del request
    await execute(call, lambda _, __: None)
    return reply(ModelList(models=[entry_of(model) for model in call.context.catalog.values()]))


async def balance(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """GET /credits/balance: the remaining credits of the account."""
    del request

    def work(connection: sqlite3.Connection, caller: Caller) -> int:
        return balance_credits(connection, caller.account)

    _, credits_left = await execute(call, work)
    return reply(Balance(balance=credits_left))


async def openapi(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """GET /openapi.json: needs no key, but refuses browsers. Service rules 5.5 and 5.9."""
    del call
    if hdrs.ORIGIN in request.headers:
        raise browser_refused()
    document = await asyncio.to_thread(description)
    return web.Response(body=document, content_type="application/json", charset="utf-8")
