"""JSON bodies of requests and replies."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final, Generic, TypeVar

import aiohttp
import aiohttp.http
import orjson
from aiohttp import hdrs, web
from msgspec import Struct

from batchkiln_service.errors import ApiError
from batchkiln_service.rules.error_messages import excerpt
from batchkiln_service.rules.lifecycle import Status
from batchkiln_service.rules.replies import Error, ErrorDetail, GenerationError, Reply
from batchkiln_service.transport.access_log import CODE

Value = TypeVar("Value")
Next = TypeVar("Next")
# More than twice the longest prompt with every character written as two escapes of six bytes.
MAX_BODY_BYTES: Final = 256 * 1024
BODY_SECONDS: Final = 30.0  # real time within which a body must arrive
_CODINGS: Final = frozenset({"identity", "gzip", "deflate"})  # aiohttp takes unknown ones for none
# What aiohttp raises for an invalid body, or for a client that closes the connection before the end of its body.
UNREADABLE_BODY: Final = (
    web.RequestPayloadError,
    aiohttp.ClientPayloadError,
    aiohttp.http.HttpProcessingError,
    ConnectionResetError,
)


def reply(body: Reply, status: int = 200) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        body=body.model_dump_json().encode(), status=status, content_type="application/json", charset="utf-8"
    )


def refusal(error: ApiError) -> web.Response:
    """Return the response of an error: {error: {code, message}}."""
    response = reply(Error(error=ErrorDetail(code=error.code, message=error.message)), error.status)
    response[CODE] = error.code
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status == 401:  # noqa: PLR2004 - Unauthorized asks for the scheme by name
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def http_date(instant_ms: int) -> str:
    """Return an instant in the format of the Date header."""
    return _http_date_of(instant_ms // 1000)


@lru_cache(maxsize=16)  # computed once per second
def _http_date_of(second: int) -> str:
    return format_datetime(datetime.fromtimestamp(second, UTC), usegmt=True)


class Deferred(Struct, Generic[Value], frozen=True):
    """A value, or an error that is raised later, because it must not be disclosed to a caller without a key."""

    value: Value | None
    refusal: ApiError | None = None

    def get(self) -> Value:
        """Return the value, or raise the `ApiError`."""
        if self.refusal is not None:
            raise self.refusal
        return self.value  # type: ignore[return-value]  # one of the two is there

    def then(self, step: Callable[[Value], Next]) -> "Deferred[Next]":
        """Apply a step to the value, if there is one; an error of the step is kept as well."""
        if self.refusal is not None:
            return Deferred(None, self.refusal)
        return deferred(lambda: step(self.get()))


# The key under which a request stores its body once it is read.
_CONTENT: Final = web.RequestKey("content", Deferred[bytes])


def deferred(step: Callable[[], Value]) -> Deferred[Value]:
    """Return the result or the error of a step."""
    try:
        return Deferred(step())
    except ApiError as refusal:
        return Deferred(None, refusal)


async def received(request: web.Request, *, within_seconds: float = BODY_SECONDS) -> Deferred[bytes]:
    """Return the exact bytes of a JSON body, or an error 400, 408, 413 or 415. The limit is in real seconds.

    A body is read once and stored, so that a later call does not mistake the rest of a body that is too large for
    another body.
    """
    content: Deferred[bytes] | None = request.get(_CONTENT)
    if content is None:
        request[_CONTENT] = content = await _read(request, within_seconds)
    return content


def put_in_place(request: web.Request, content: bytes) -> None:
    """Set the stored body of a request."""
    request[_CONTENT] = Deferred(content)


async def _read(request: web.Request, within_seconds: float) -> Deferred[bytes]:
    if request.content_type != "application/json":
        return Deferred(None, ApiError(415, "unsupported_media_type", "send Content-Type: application/json"))
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() not in _CODINGS:
        return Deferred(None, ApiError(415, "unsupported_media_type", "send the body without Content-Encoding"))
    try:
        async with asyncio.timeout(within_seconds):
            return Deferred(await request.read())
    except TimeoutError:
        return Deferred(
            None, ApiError(408, "request_timeout", f"the body did not arrive in {within_seconds:g} seconds")
        )
    except web.HTTPRequestEntityTooLarge:
        return Deferred(None, ApiError(413, "body_too_large", f"a body has at most {MAX_BODY_BYTES} bytes"))
    except UNREADABLE_BODY:
        return Deferred(None, unreadable_body())


def unreadable_body() -> ApiError:
    """Return the error for a body that is incomplete or invalid HTTP."""
    return ApiError(400, "invalid_body", "the body cannot be read: check its length and encoding")


def parse_json(body: bytes) -> object:
    """Return the parsed body. Raise ApiError 400, also for an object with a repeated name."""
    try:
        parsed: object = orjson.loads(body)
        json.loads(body, object_pairs_hook=_check_names, parse_int=len, parse_float=len)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "invalid_json", f"the body is not JSON: {error.msg}, at character {error.pos}") from error
    except RecursionError as error:
        raise ApiError(400, "invalid_json", "the body is nested too deeply") from error
    return parsed


def _check_names(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, after in pairwise(names) if name == after)
        raise ApiError(400, "invalid_json", f"field {excerpt(twice)} is given twice")


def error_of(status: Status) -> GenerationError | None:
    """Return the error object of a record; None unless the generation failed or was canceled."""
    match status:
        case "failed":
            message = "The generation failed; its credits were refunded."
            return GenerationError(code="generation_failed", message=message)
        case "canceled":
            message = "The generation was canceled by the service."
            return GenerationError(code="generation_canceled", message=message)
        case _:
            return None
