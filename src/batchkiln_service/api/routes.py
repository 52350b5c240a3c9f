"""The routes of the API, the endpoints that only read the catalogue, balance and description, and the application."""

import asyncio
import sqlite3
from typing import Final

from aiohttp import HttpVersion11, hdrs, web

from batchkiln_service.api import generation_endpoints, upload_endpoints
from batchkiln_service.api.handling import ApiCall, execute
from batchkiln_service.api.middleware import Route, endpoint, firewall_and_errors, set_date, storage_endpoint
from batchkiln_service.api.openapi import description
from batchkiln_service.api.pages import add_pages
from batchkiln_service.context import CONTEXT, PREFIX, Context
from batchkiln_service.db.admission import Caller, browser_refused
from batchkiln_service.db.credits import balance_credits
from batchkiln_service.rules.replies import Balance, ModelList, entry_of
from batchkiln_service.storage import output_download, upload
from batchkiln_service.transport.bodies import MAX_BODY_BYTES, reply


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


# fmt: off
ROUTES: Final = (
    Route("GET",  "/models",           models,       "read",   frozenset({"models", "read"})),
    Route("GET",  "/credits/balance",  balance,      "read",   frozenset({"balance", "read"})),
    Route("POST", "/quotes",           generation_endpoints.quote,        "quote",  frozenset({"quote"})),
    Route("POST", "/videos",           generation_endpoints.create_video, "create", frozenset({"create"})),
    Route("POST", "/images",           generation_endpoints.create_image, "create", frozenset({"create"})),
    Route("GET",  "/generations/{id}", generation_endpoints.poll,         "read",   frozenset({"poll", "read"})),
    Route("POST", "/uploads",          upload_endpoints.prepare,      "upload", frozenset({"upload"})),
    Route("POST", "/uploads/complete", upload_endpoints.complete,     "upload", frozenset({"complete", "upload"})),
    Route("GET",  "/openapi.json",     openapi, "other", frozenset({"openapi"}), is_public=True),
)
# fmt: on


def build_app(context: Context) -> web.Application:
    """Return the web application: the API below its prefix, the storage, and the pages for people."""
    app = web.Application(middlewares=[firewall_and_errors], client_max_size=MAX_BODY_BYTES)
    app[CONTEXT] = context
    for route in ROUTES:
        app.router.add_route(route.method, PREFIX + route.path, endpoint(route), expect_handler=answer_expect)
    app.router.add_put(upload.PATH, storage_endpoint(upload.receive, frozenset({"put"})))
    app.router.add_get(output_download.PATH, storage_endpoint(output_download.download, frozenset({"download"})))
    add_pages(app)
    app.on_response_prepare.append(set_date)
    return app


async def answer_expect(request: web.Request) -> None:
    """Answer `Expect: 100-continue`; other expectations are ignored (RFC 9110, 10.1.1)."""
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the reply itself has not started
