"""The operator's API: the report, faults at run time, the clock, a reset, and the end of stuck generations.

It needs no key: by default it is reachable only from this machine, and never by a web page.
"""

import ipaddress
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeVar

import orjson
from aiohttp import hdrs, web
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, ValidationError

from batchkiln_service.clock import ServiceClock, iso
from batchkiln_service.config import Seconds
from batchkiln_service.db.database import Database
from batchkiln_service.db.generations import count_active
from batchkiln_service.db.report import Report
from batchkiln_service.errors import ApiError, mistakes_in
from batchkiln_service.faults.fault_rules import FaultRule
from batchkiln_service.faults.registry import ActiveRule, Faults
from batchkiln_service.rules.lifecycle import Outcome
from batchkiln_service.transport.bodies import http_date, refusal
from batchkiln_service.transport.connections import SERVER
from batchkiln_service.transport.listener import STOP_SECONDS, origin_of, remembered_port

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Body = TypeVar("Body", bound=BaseModel)
MAX_BODY_BYTES: Final = 64 * 1024
MAX_RULES: Final = 1000  # compared with every request
_log = logging.getLogger(__name__)


class AdminContext(Struct, frozen=True):
    """The objects that the operator's endpoints use."""

    base_url: str
    time_scale: float
    clock: ServiceClock
    database: Database
    faults: Faults
    end: Callable[[str, Outcome], Awaitable[bool]]
    report: Callable[[], Awaitable[Report]]
    advance: Callable[[float], Awaitable[None]]
    reset: Callable[[], Awaitable[None]]
    is_open: bool = False  # whether other machines or containers may use it, by any host name


class End(BaseModel):
    """The body of POST /generations/{id}/end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome


class Advance(BaseModel):
    """The body of POST /clock."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    advance: Seconds


ADMIN: Final = web.AppKey("operated", AdminContext)
# fmt: off
_ENDPOINTS: Final = {
    "GET /": "this list",
    "GET /health": "whether the service answers and its database can be read",
    "GET /report": "the report on clients' requests, as far back as the request log",
    "GET /faults": "the active fault rules, with the numbers of requests that each matched (met) and affected (struck)",
    "POST /faults": "adds a rule, with the fields of `faults` in the configuration",
    "DELETE /faults": "none any more",
    "DELETE /faults/{number}": "one rule less",
    "GET /clock": "service time and its speed",
    "POST /clock": 'advances service time by that many seconds, once pending files are drawn: {"advance": 600}',
    "POST /reset": "starts over, as in a new folder: only API keys, the clock and the ports stay",
    "POST /generations/{id}/end": 'ends an active generation, as support would: {"outcome": "success|failed|canceled"}',
}
# fmt: on


def build_admin_app(admin: AdminContext) -> web.Application:
    """Return the application."""
    app = web.Application(middlewares=[_guard], client_max_size=MAX_BODY_BYTES)
    app[ADMIN] = admin
    app.add_routes(
        [
            web.get("/", _index),
            web.get("/health", _health),
            web.get("/report", _report),
            web.get("/faults", _list_faults),
            web.post("/faults", _add_fault),
            web.delete("/faults", _clear_faults),
            web.delete("/faults/{number:[0-9]{1,9}}", _withdraw_fault),
            web.get("/clock", _clock),
            web.post("/clock", _advance),
            web.post("/reset", _reset),
            web.post("/generations/{id}/end", _end),
        ]
    )
    app.on_response_prepare.append(_set_date)
    return app


async def listen_for_admin(
    stack: AsyncExitStack, app: web.Application, *, state_dir: Path, host: str, port: int
) -> str:
    """Bind the port until the stack is closed, and return its URL. Port 0 is the port of the last run, or any free one.

    Raise OSError if the port is in use.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    path = state_dir / "operator-port"
    wanted = [port] if port else [*remembered_port(path), 0]
    for number in wanted:
        try:
            await web.TCPSite(runner, host, number).start()
        except OSError:
            if number == wanted[-1]:
                raise
            continue
        break
    bound = int(runner.addresses[0][1])
    path.write_text(f"{bound}\n", encoding="ascii")
    return origin_of(host, bound)


async def _set_date(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[hdrs.SERVER] = SERVER
    response.headers[hdrs.DATE] = http_date(request.app[ADMIN].clock.now_ms())


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that a web page could send, and turn errors into JSON."""
    try:
        _check_sender(request)
        return await handler(request)
    except ApiError as error:
        return refusal(error)
    except web.HTTPException as error:
        response = refusal(ApiError(error.status, error.reason.lower().replace(" ", "_"), error.reason))
        if allowed := error.headers.get(hdrs.ALLOW):
            response.headers[hdrs.ALLOW] = allowed
        return response
    except Exception:  # noqa: BLE001 - a request boundary
        _log.exception("operator_request_failed")
        return refusal(ApiError(500, "internal_error", "the operator's port failed unexpectedly"))


def _check_sender(request: web.Request) -> None:
    """Raise ApiError 403 for a request of a web page, even of one whose host name resolves to this machine."""
    if hdrs.ORIGIN in request.headers:
        raise ApiError(403, "origin_not_allowed", "the operator's port is not for web pages: send no Origin header")
    if not request.app[ADMIN].is_open and not is_loopback(request.headers.get(hdrs.HOST, "")):
        raise ApiError(403, "host_not_allowed", "header Host must be 127.0.0.1, [::1] or localhost")


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without a port, is this machine's loopback interface."""
    name, _, port = host.rpartition(":") if host.count(":") == 1 or "]:" in host else (host, "", "")
    name = name.removeprefix("[").removesuffix("]")
    if port and not port.isdecimal():
        return False
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def _index(_: web.Request) -> web.Response:
    return _json({"endpoints": _ENDPOINTS, "bodies": "JSON, with the header Content-Type: application/json"})


async def _health(request: web.Request) -> web.Response:
    admin = request.app[ADMIN]
    active = await admin.database.run(count_active)
    return _json(
        {
            "status": "ok",
            "base_url": admin.base_url,
            "now": iso(admin.clock.now_ms()),
            "time_scale": admin.time_scale,
            "active_generations": active,
        }
    )


async def _report(request: web.Request) -> web.Response:
    report = await request.app[ADMIN].report()
    return web.Response(body=report.as_json(), content_type="application/json", charset="utf-8")


async def _list_faults(request: web.Request) -> web.Response:
    return _json({"faults": [_rule_document(active) for active in request.app[ADMIN].faults.active_rules()]})


async def _add_fault(request: web.Request) -> web.Response:
    faults = request.app[ADMIN].faults
    rule = await _body(request, FaultRule)
    if len(faults.active_rules()) >= MAX_RULES:
        raise ApiError(409, "too_many_faults", f"{MAX_RULES} rules are active, the maximum; delete some of them first")
    number = faults.add_rule(rule)
    return _json({"number": number, "rule": rule.model_dump(exclude_unset=True)}, 201)


async def _clear_faults(request: web.Request) -> web.Response:
    return _json({"withdrawn": request.app[ADMIN].faults.clear()})


async def _withdraw_fault(request: web.Request) -> web.Response:
    number = request.match_info["number"]
    if not request.app[ADMIN].faults.withdraw(int(number)):
        raise ApiError(404, "not_found", f"no rule {number} is active; GET /faults lists them")
    return _json({"withdrawn": 1})


async def _clock(request: web.Request) -> web.Response:
    admin = request.app[ADMIN]
    return _json({"now": iso(admin.clock.now_ms()), "time_scale": admin.time_scale})


async def _advance(request: web.Request) -> web.Response:
    admin = request.app[ADMIN]
    await admin.advance((await _body(request, Advance)).advance)
    return _json({"now": iso(admin.clock.now_ms())})


async def _reset(request: web.Request) -> web.Response:
    admin = request.app[ADMIN]
    await admin.reset()
    return _json({"status": "ok", "now": iso(admin.clock.now_ms())})


async def _end(request: web.Request) -> web.Response:
    admin, generation_id = request.app[ADMIN], request.match_info["id"]
    end = await _body(request, End)
    has_ended = await admin.end(generation_id, end.outcome)
    return _json({"id": generation_id, "outcome": end.outcome, "has_ended": has_ended})


async def _body(request: web.Request, model: type[Body]) -> Body:
    """Return the checked JSON body. Raise ApiError 400, 413, 415 or 422, which names the field."""
    if request.content_type != "application/json":
        raise ApiError(415, "unsupported_media_type", "send Content-Type: application/json")
    try:
        return model.model_validate(orjson.loads(await request.read()))
    except web.HTTPRequestEntityTooLarge as error:
        raise ApiError(413, "body_too_large", f"a body has at most {MAX_BODY_BYTES} bytes") from error
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "invalid_json", f"the body is not JSON: {error.msg}") from error
    except ValidationError as error:
        raise ApiError(422, "invalid_request", mistakes_in(error, model.model_fields)) from error


def _rule_document(active: ActiveRule) -> dict[str, object]:
    rule = active.rule.model_dump(exclude_unset=True)
    return {"number": active.number, "rule": rule, "met": active.met, "struck": active.struck}


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json", charset="utf-8")
