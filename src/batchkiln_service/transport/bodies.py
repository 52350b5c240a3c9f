"""JSON that leaves and enters the API."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final, Generic, TypeVar

import aiohttp
import aiohttp.http
import orjson
from aiohttp import web

from batchkiln_service.errors import ApiError
from batchkiln_service.rules.error_messages import excerpt
from batchkiln_service.rules.lifecycle import Status
from batchkiln_service.rules.replies import Error, ErrorDetail, GenerationError, Reply
from batchkiln_service.transport.access_log import CODE

Value = TypeVar("Value")
Next = TypeVar("Next")
# The longest prompt, every character of it written as two escapes of six bytes, takes less than half of it.
MAX_BODY_BYTES: Final = 256 * 1024
BODY_SECONDS: Final = 30.0  # real ones: how long a client may take to send a body


def reply(body: Reply, status: int = 200) -> web.Response:
    """Make a JSON response."""
    return web.Response(
        body=body.model_dump_json().encode(), status=status, content_type="application/json", charset="utf-8"
    )


def refusal(error: ApiError) -> web.Response:
    """Make the response of a refusal: {error: {code, message}}."""
    response = reply(Error(error=ErrorDetail(code=error.code, message=error.message)), error.status)
    response[CODE] = error.code
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status == 401:  # noqa: PLR2004 - Unauthorized asks for the scheme by name
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def http_date(instant_ms: int) -> str:
    """Return an instant as the Date header has it."""
    return _http_date_of(instant_ms // 1000)


@lru_cache(maxsize=16)  # every reply has one, and a second has many replies
def _http_date_of(second: int) -> str:
    return format_datetime(datetime.fromtimestamp(second, UTC), usegmt=True)


@dataclass(frozen=True, slots=True)
class Deferred(Generic[Value]):
    """A value, or the refusal in its place, kept until it is known who is asking: who has no key learns nothing."""

    value: Value | None
    refusal: ApiError | None = None

    def get(self) -> Value:
        """Return the value. Raises the `ApiError` that stands in its place."""
        if self.refusal is not None:
            raise self.refusal
        return self.value  # type: ignore[return-value]  # one of the two is there

    def then(self, step: Callable[[Value], Next]) -> "Deferred[Next]":
        """Go on with the value, where there is one; a refusal by the step is kept likewise."""
        if self.refusal is not None:
            return Deferred(None, self.refusal)
        return deferred(lambda: step(self.get()))


# Where a request holds its body, once somebody has read it.
_CONTENT: Final = web.RequestKey("content", Deferred[bytes])


def deferred(step: Callable[[], Value]) -> Deferred[Value]:
    """Keep what a step returns, or its refusal."""
    try:
        return Deferred(step())
    except ApiError as refusal:
        return Deferred(None, refusal)


async def received(request: web.Request, *, within_seconds: float = BODY_SECONDS) -> Deferred[bytes]:
    """Read a JSON body's exact bytes; a refusal is 400, 408, 413 or 415. The seconds are real ones.

    A body is read once, whoever asks for it: what is left of one that was too large must not be taken for another.
    """
    content: Deferred[bytes] | None = request.get(_CONTENT)
    if content is None:
        request[_CONTENT] = content = await _read(request, within_seconds)
    return content


def put_in_place(request: web.Request, content: bytes) -> None:
    """Let whoever reads the body of a request have this one."""
    request[_CONTENT] = Deferred(content)


async def _read(request: web.Request, within_seconds: float) -> Deferred[bytes]:
    if request.content_type != "application/json":
        return Deferred(None, ApiError(415, "unsupported_media_type", "send Content-Type: application/json"))
    try:
        async with asyncio.timeout(within_seconds):
            return Deferred(await request.read())
    except TimeoutError:
        return Deferred(
            None, ApiError(408, "request_timeout", f"the body did not arrive in {within_seconds:g} seconds")
        )
    except web.HTTPRequestEntityTooLarge:
        return Deferred(None, ApiError(413, "body_too_large", f"a body has at most {MAX_BODY_BYTES} bytes"))
    except (web.RequestPayloadError, aiohttp.ClientPayloadError, aiohttp.http.HttpProcessingError):
        return Deferred(None, ApiError(400, "invalid_body", "the body cannot be read: check its length and encoding"))


def parse_json(body: bytes) -> object:
    """Parse a body. Raises ApiError 400, also for a field that is given twice: nobody can say which one is meant."""
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
    """Return the error object of a record; null unless the generation failed or was canceled."""
    match status:
        case "failed":
            message = "The generation failed; its credits were refunded."
            return GenerationError(code="generation_failed", message=message)
        case "canceled":
            message = "The generation was canceled by the service."
            return GenerationError(code="generation_canceled", message=message)
        case _:
            return None
