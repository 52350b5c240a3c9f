"""GET /models, /credits/balance and /openapi.json."""

import sqlite3

from aiohttp import web

from batchkiln.service.api.answering import answered, noted
from batchkiln.service.api.bodies import reply
from batchkiln.service.api.context import CONTEXT
from batchkiln.service.api.openapi import describe
from batchkiln.service.books.admission import Ticket
from batchkiln.service.books.credits import balance_credits
from batchkiln.service.books.generations import settle


async def models(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /models: the catalogue."""
    context = request.app[CONTEXT]
    entries = [model.as_json() for model in context.catalog.values()]
    return reply(await answered(context, ticket, lambda _: {"models": entries}))


async def balance(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /credits/balance: what the account has left."""
    context = request.app[CONTEXT]

    def work(connection: sqlite3.Connection) -> int:
        assert ticket.account is not None
        settle(connection, ticket.account, ticket.arrived_at_ms)
        return balance_credits(connection, ticket.account)

    return reply({"balance": await answered(context, ticket, work)})


async def openapi(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /openapi.json: public. Service rule 5.9."""
    context = request.app[CONTEXT]
    await noted(context, ticket, status=200, code=None)
    return reply(describe(context.catalog, context.origin()))
