"""GET /models, /credits/balance and /openapi.json."""

import asyncio
import sqlite3

from aiohttp import web

from batchkiln.service.api.answering import answered, noted
from batchkiln.service.api.openapi import description
from batchkiln.service.books.admission import Ticket
from batchkiln.service.books.credits import balance_credits
from batchkiln.service.books.generations import settle
from batchkiln.service.context import CONTEXT
from batchkiln.service.rules.replies import Balance, ModelList, entry_of
from batchkiln.service.transport.bodies import reply


async def models(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /models: the catalogue."""
    context = request.app[CONTEXT]
    entries = ModelList(models=[entry_of(model) for model in context.catalog.values()])
    return reply(await answered(context, ticket, lambda _: entries))


async def balance(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /credits/balance: what the account has left."""
    context = request.app[CONTEXT]

    def work(connection: sqlite3.Connection) -> int:
        assert ticket.account is not None
        settle(connection, ticket.account, ticket.arrived_at_ms)
        return balance_credits(connection, ticket.account)

    return reply(Balance(balance=await answered(context, ticket, work)))


async def openapi(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /openapi.json: public. Service rule 5.9."""
    context = request.app[CONTEXT]
    await noted(context, ticket, status=200, code=None)
    document = await asyncio.to_thread(description)
    return web.Response(body=document, content_type="application/json", charset="utf-8")
