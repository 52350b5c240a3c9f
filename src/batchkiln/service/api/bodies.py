"""JSON that leaves and enters the API."""

from datetime import UTC, datetime
from email.utils import format_datetime

import orjson
from aiohttp import web

from batchkiln.service.errors import ApiError
from batchkiln.service.rules.lifecycle import Status

MAX_BODY_BYTES = 1024 * 1024


def reply(body: object, status: int = 200) -> web.Response:
    """Make a JSON response."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json", charset="utf-8")


def refusal(error: ApiError) -> web.Response:
    """Make the response of a refusal: {error: {code, message}}."""
    response = reply({"error": {"code": error.code, "message": error.message}}, error.status)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status == 401:  # noqa: PLR2004 - Unauthorized asks for the scheme by name
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def iso(instant_ms: int) -> str:
    """Return an instant as ISO 8601 UTC with milliseconds. Service section 2.1."""
    moment = datetime.fromtimestamp(instant_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(instant_ms: int) -> str:
    """Return an instant as the Date header has it."""
    return format_datetime(datetime.fromtimestamp(instant_ms // 1000, UTC), usegmt=True)


async def read_body(request: web.Request) -> bytes:
    """Read a JSON body's exact bytes. Raises ApiError 413 or 415."""
    if request.content_type != "application/json":
        raise ApiError(415, "unsupported_media_type", "send Content-Type: application/json")
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ApiError(413, "body_too_large", f"a body has at most {MAX_BODY_BYTES} bytes") from error


def parse_json(body: bytes) -> object:
    """Parse a body. Raises ApiError 400."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "invalid_json", f"the body is not JSON: {error}") from error
    return parsed


def error_of(status: Status) -> dict[str, str] | None:
    """Return the error object of a record; null unless the generation failed or was canceled."""
    match status:
        case "failed":
            return {"code": "generation_failed", "message": "The generation failed; its credits were refunded."}
        case "canceled":
            return {"code": "generation_canceled", "message": "The generation was canceled by the service."}
        case _:
            return None
