"""The middleware of a dialect: translates identifiers in requests, and the bodies and headers of replies."""

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import hdrs, web

from batchkiln_service.api.handling import log_response
from batchkiln_service.context import CONTEXT, PREFIX, Context
from batchkiln_service.db.creates import find_by_idempotency_key
from batchkiln_service.db.credits import balance_credits
from batchkiln_service.db.request_log import LoggedResponse
from batchkiln_service.dialects import dialect_outputs, error_replies
from batchkiln_service.dialects.endpoints import Endpoint, success_status
from batchkiln_service.dialects.error_replies import Refusal
from batchkiln_service.dialects.naming import asset_ids, generation_ids
from batchkiln_service.dialects.openapi_rewrite import dialect_description
from batchkiln_service.dialects.traits import Dialect
from batchkiln_service.errors import ApiError
from batchkiln_service.storage import output_download as own_downloads, upload
from batchkiln_service.transport import firewall
from batchkiln_service.transport.access_log import CODE, ENTRY
from batchkiln_service.transport.bodies import http_date, put_in_place, received

if TYPE_CHECKING:
    from batchkiln_service.dialects.shapes import Shape

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_DAY_MS: Final = 86_400_000
_JSON_TYPES: Final = {
    "plain": "application/json",
    "charset": "application/json",
    "vendor": "application/vnd.api+json",
    "hal": "application/hal+json",
}
_PUT_STATUSES: Final = {"ok": 200, "created": 201, "no_content": 204}
_UNAVAILABLE_PAGE: Final = "<!doctype html><title>503</title><p>Down for maintenance"
_IN_PROGRESS_MOST_SECONDS: Final = 90
_BUSY_SECONDS: Final = 10
_EDGE_TEXT: Final = "Forbidden: too many requests from your address"


def install_dialect(app: web.Application, context: Context, dialect: Dialect) -> None:
    """Install a dialect in an application that has not started."""
    middleware = _DialectMiddleware(context, dialect)

    @web.middleware
    async def translated(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await middleware.execute(request, handler)

    app.middlewares.insert(0, translated)
    app.on_response_prepare.append(middleware.set_time_headers)


class _DialectMiddleware:
    """The middleware of one dialect."""

    def __init__(self, context: Context, dialect: Dialect) -> None:
        self._context = context
        self._dialect = dialect
        self._ids = generation_ids(dialect)
        self._asset_ids = asset_ids(dialect)
        self._shapes: dict[Endpoint, Shape] = {}
        self._error = error_replies.body_shape(dialect)

    async def execute(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Translate a request, run the handler, and translate the reply."""
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        endpoint = Endpoint.of(request.method, path.removeprefix(PREFIX))
        if endpoint is Endpoint.DESCRIPTION:
            return await self._described(request, handler)
        await self._translate(request, endpoint)
        known = await self._known(request) if endpoint is Endpoint.CREATE else None
        response = await handler(request)
        if path == own_downloads.PATH:
            return await dialect_outputs.send_output(self._dialect, request, response)
        if path == upload.PATH and response.status == 200:  # noqa: PLR2004
            return web.Response(status=_PUT_STATUSES[self._dialect["put_status"]])
        if not path.startswith(PREFIX) or not isinstance(response, web.Response) or response.prepared:
            return response
        if known is not None and response.status == 202 and (refusal := await self._find_refusal(known)) is not None:  # noqa: PLR2004
            await log_response(
                self._context, request[ENTRY], LoggedResponse(refusal.status, "replay_refused", request[ENTRY].fault)
            )
            return self._refusing(refusal, _BUSY_SECONDS, {})
        return self._translated(response, endpoint)

    async def set_time_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set the dialect's headers with the service's time."""
        now_ms = request.app[CONTEXT].clock.now_ms() + self._date_offset_ms
        response.headers[hdrs.DATE] = http_date(now_ms)
        has_date = {"never": False, "successes": response.status < 400}.get(self._dialect["date_header"], True)  # noqa: PLR2004
        if not has_date:
            response.headers.popall(hdrs.DATE, None)

    @property
    def _date_offset_ms(self) -> int:
        return {"days_ahead": 2 * _DAY_MS, "days_behind": -2 * _DAY_MS}.get(self._dialect["date_header"], 0)

    async def _described(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if response.status != 200 or not isinstance(response, web.Response):  # noqa: PLR2004
            return response
        if not str(response.content_type).endswith("json") or response.prepared:
            return response
        document = dialect_description(self._dialect)
        return web.Response(body=document, content_type="application/json", charset="utf-8")

    async def _translate(self, request: web.Request, endpoint: Endpoint | None) -> None:
        if endpoint is Endpoint.READ:
            request.match_info["id"] = self._ids.own(request.match_info["id"])
        if endpoint is not Endpoint.COMPLETE:
            return
        content = await received(request)
        try:
            body = orjson.loads(content.get())
            body["asset_ids"] = [self._own_asset_id(one) for one in body["asset_ids"]]
        except (ApiError, orjson.JSONDecodeError, TypeError, KeyError):
            return  # the handler reports what is wrong with the body
        put_in_place(request, orjson.dumps(body))

    def _own_asset_id(self, given: object) -> object:
        is_number = isinstance(given, int) and not isinstance(given, bool)
        is_key = self._dialect["tickets"] == "map_by_id" and isinstance(given, str)  # names of fields are strings
        if not is_key and is_number != (self._dialect["asset_id"] == "int"):
            return None if is_number else "unknown"  # not of the type in which it was sent
        return self._asset_ids.own(given)

    def _translated(self, response: web.Response, endpoint: Endpoint | None) -> web.Response:
        code = response.get(CODE)
        if code == "edge_blocked":
            return self._firewall()
        if not isinstance(response.body, bytes) or response.content_type != "application/json":
            return response
        document = orjson.loads(response.body)
        if response.status >= 400:  # noqa: PLR2004
            return self._refused(response, document)
        if endpoint is None:
            return response
        return self._succeeded(endpoint, document)

    def _succeeded(self, endpoint: Endpoint, document: Any) -> web.Response:  # noqa: ANN401
        given = self._given(endpoint, document)
        if endpoint not in self._shapes:
            self._shapes[endpoint] = endpoint.shape(self._dialect)
        body = orjson.dumps(self._shapes[endpoint].make(given))
        return self._json(body, success_status(self._dialect, endpoint), _JSON_TYPES[self._dialect["json_type"]])

    def _given(self, endpoint: Endpoint, document: Any) -> Any:  # noqa: ANN401
        """Return the data from which the endpoint's reply is shaped."""
        match endpoint:
            case Endpoint.PREPARE:
                return [
                    ticket
                    | {
                        "index": index,
                        "type": ticket["upload_headers"]["Content-Type"],
                        "size": int(ticket["upload_headers"]["Content-Length"]),
                    }
                    for index, ticket in enumerate(document["uploads"])
                ]
            case Endpoint.COMPLETE:
                return document["assets"]
            case Endpoint.MODELS:
                return document["models"]
            case Endpoint.CREATE | Endpoint.READ:
                outputs = dialect_outputs.outputs_of(self._dialect, self._context, document["outputs"])
                record = document | {"outputs": outputs}
                if endpoint is Endpoint.READ:
                    record["shown_as"] = self._dialect["id_echo"]
                return record
            case _:
                return document

    def _refused(self, response: web.Response, document: Mapping[str, Any]) -> web.Response:
        error = document["error"]
        given = response.headers.get(hdrs.RETRY_AFTER)
        if response.status == 503 and self._dialect["unavailable_page"] != "json":  # noqa: PLR2004
            page = _UNAVAILABLE_PAGE if self._dialect["unavailable_page"] == "html" else ""
            unavailable = web.Response(status=503, text=page, content_type="text/html")
            self._add_retry_after(unavailable, given)
            return unavailable
        refusal = error_replies.refused(self._dialect, response.status, error["code"], error["message"])
        kept = {
            str(name): response.headers[name]
            for name in (hdrs.ALLOW, hdrs.WWW_AUTHENTICATE)
            if name in response.headers
        }
        return self._refusing(refusal, None if given is None else int(given), kept)

    def _refusing(self, refusal: Refusal, retry_after_seconds: int | None, headers: Mapping[str, str]) -> web.Response:
        media_type = error_replies.media_type(self._dialect, refusal)
        if media_type == error_replies.PLAIN:
            response = web.Response(status=refusal.status, text=error_replies.plain_text(refusal))
        else:
            response = self._json(orjson.dumps(self._error.make(refusal)), refusal.status, media_type)
        response.headers.update(headers)
        self._add_retry_after(response, None if retry_after_seconds is None else str(retry_after_seconds))
        return response

    def _add_retry_after(self, response: web.Response, seconds: str | None) -> None:
        if seconds is None:
            return
        now_ms = self._context.clock.now_ms() + self._date_offset_ms
        value = {
            "seconds": seconds,
            "date": http_date(now_ms + 1000 * int(seconds)),
            "zero": "0",
            "one": "1",
            "negative": "-5",
            "past_date": http_date(now_ms - 3_600_000),
        }.get(self._dialect["retry_after"])
        if value is not None:
            response.headers[hdrs.RETRY_AFTER] = value

    def _json(self, body: bytes, status: int, media_type: str) -> web.Response:
        charset = "utf-8" if self._dialect["json_type"] == "charset" else None
        response = web.Response(body=body, status=status, content_type=media_type, charset=charset)
        match self._dialect["reply_headers"]:
            case "request_id":
                response.headers["X-Request-Id"] = "req_0b7f9a3c"
            case "rate_limits":
                response.headers.update(
                    {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "41", "X-RateLimit-Reset": "1772355600"}
                )
            case _:
                pass
        return response

    def _firewall(self) -> web.Response:
        match self._dialect["edge_page"]:
            case "text":
                response = web.Response(status=403, text=_EDGE_TEXT)
            case "empty":
                response = web.Response(status=403)
            case _:
                response = web.Response(status=403, text=firewall.PAGE, content_type="text/html")
        return response

    async def _known(self, request: web.Request) -> sqlite3.Row | None:
        """Return the generation of an earlier request with this key, if the dialect does not simply replay it."""
        key = request.headers.get("Idempotency-Key")
        if self._dialect["replay"] == "record" or key is None:
            return None

        return await self._context.database.run(lambda connection: find_by_idempotency_key(connection, key))

    async def _find_refusal(self, known: sqlite3.Row) -> Refusal | None:
        """Return the refusal of a replay by checks that run before the key is looked up, if any."""
        now_ms = self._context.clock.now_ms()
        if self._dialect["replay"] == "in_progress":
            seconds = 1 + self._dialect.number("in progress", _IN_PROGRESS_MOST_SECONDS)
            is_early = now_ms < known["created_at_ms"] + 1000 * seconds
            return error_replies.meant(self._dialect, "in_progress", 409) if is_early else None
        if known["ended_at_ms"] is None:
            return error_replies.meant(self._dialect, "busy", 429)
        left = await self._context.database.run(lambda connection: balance_credits(connection, known["account"]))
        return error_replies.meant(self._dialect, "no_credits", 402) if left < known["cost_credits"] else None
