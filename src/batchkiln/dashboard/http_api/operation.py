"""One operation of the HTTP interface: its place, its scope, its models, and what a request goes through."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeVar, get_origin

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct
from pydantic import ValidationError

from batchkiln.config import AccessScope
from batchkiln.dashboard.auth import Principal
from batchkiln.dashboard.context import PRINCIPAL, Context, context_of
from batchkiln.dashboard.http_api.bodies import read_json
from batchkiln.dashboard.http_api.problems import Kind, ProblemError
from batchkiln.dashboard.http_api.requests import Body, Query

PREFIX: Final = "/api/v1"
EVENT_STREAM: Final = "text/event-stream"
FILE: Final = "application/octet-stream"

Q = TypeVar("Q", bound=Query)
B = TypeVar("B", bound=Body)
_Reply = web.StreamResponse | Mapping[str, Any]


class Call(Struct, Generic[Q, B], frozen=True):
    """A request whose sender may make it, with its valid parameters and its valid body."""

    request: web.Request
    context: Context
    principal: Principal
    query: Q
    body: B

    @property
    def job(self) -> str:
        """The job of the path."""
        return self.request.match_info["job"]

    @property
    def item(self) -> str:
        """The item of the path."""
        return self.request.match_info["item"]

    def require(self, scope: AccessScope, purpose: str) -> None:
        """Raise `ProblemError` if the sender lacks a scope that only some parameters need."""
        if scope not in self.principal.scopes:
            raise lacks_scope(self.principal, scope, purpose)


class Operation(Struct, frozen=True):
    """A method and a path below `PREFIX`, with the needed scope; None if every token may.

    `reply` is the type of the JSON reply; or the media type of another one. `takes_manifest` is set if the handler
    reads the body itself.
    """

    name: str
    method: str
    path: str
    scope: AccessScope | None
    summary: str
    handler: Callable[[Call[Any, Any]], Awaitable[_Reply]]
    reply: Any
    query: type[Query] = Query
    body: type[Body] | None = None
    takes_manifest: bool = False
    kinds: tuple[Kind, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether the operation never changes anything."""
        return self.method == "GET"

    def route(self) -> web.RouteDef:
        """Return the route for aiohttp."""
        if self.is_read:
            return web.get(PREFIX + self.path, self._handler(), allow_head=False)
        return web.route(self.method, PREFIX + self.path, self._handler())

    def _handler(self) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            principal = request[PRINCIPAL]
            if self.scope is not None and self.scope not in principal.scopes:
                raise lacks_scope(principal, self.scope, self.summary)
            query = _valid_query(self.query, request)
            body = Body() if self.body is None else _valid_body(self.body, await read_json(request))
            reply = await self.handler(Call(request, context_of(request), principal, query, body))
            if isinstance(reply, web.StreamResponse):
                return reply
            return web.Response(body=orjson.dumps(reply), content_type="application/json")

        return handle


def lacks_scope(principal: Principal, scope: AccessScope, purpose: str) -> ProblemError:
    """Return the problem of a token without a scope."""
    told = f"The token {principal.name} has no scope {scope}, which this needs: {purpose}"
    remedy = f"Use a token with the scope {scope}, or add it to http.tokens.{principal.name}.scopes."
    return ProblemError(Kind.NO_SCOPE, told, remedy, more={"needed_scope": scope})


def _valid_query(model: type[Query], request: web.Request) -> Query:
    given: dict[str, Any] = {}
    for name in request.query:
        values = request.query.getall(name)
        found = model.model_fields.get(name)
        is_list = found is not None and get_origin(found.annotation) is tuple
        if not is_list and len(values) > 1:
            raise ProblemError(Kind.MALFORMED, f"The parameter {name} is given twice.", "Give it once.")
        given[name] = values if is_list else values[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _invalid(Kind.MALFORMED, "The parameters are not valid.", error) from None


def _valid_body(model: type[Body], content: bytes) -> Body:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        is_json = all(problem["type"] != "json_invalid" for problem in error.errors(include_url=False))
        if is_json:
            raise _invalid(Kind.INVALID, "The body has mistakes.", error) from None
        raise _invalid(Kind.MALFORMED, "The body is not valid JSON.", error) from None


def _dotted(location: tuple[int | str, ...]) -> str:
    """Return the place of a mistake, without the names that pydantic gives to the members of a union."""
    return ".".join(str(part) for part in location if not str(part).startswith(("list[", "dict[")))


def _invalid(kind: Kind, detail: str, error: ValidationError) -> ProblemError:
    mistakes = [
        {
            "reason": f"{_dotted(problem['loc'])}: {problem['msg']}".removeprefix(": "),
            "file": None,
            "line": None,
            "column": None,
            "remedy": None,
        }
        for problem in error.errors(include_url=False, include_input=False)
    ]
    more = {"mistakes": mistakes, "omitted": 0}
    return ProblemError(kind, detail, "Correct what `mistakes` lists.", more=more)
