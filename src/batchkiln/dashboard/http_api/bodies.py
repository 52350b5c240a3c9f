"""Reads the bodies of requests within bounds of size and time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast

from aiohttp import web
from msgspec import Struct

from batchkiln.dashboard.http_api.problems import RETRY_AFTER, Kind, ProblemError

JSON: Final = "application/json"
YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
_IN_MEMORY_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16


class BodyLimits(Struct, frozen=True):
    """The bounds of a body: its size, the longest silence, and its duration in seconds of real time."""

    size_bytes: int
    idle_seconds: float = 20.0
    total_seconds: float = 300.0


MANIFEST_LIMITS: Final = BodyLimits(64 << 20)
JSON_MANIFEST_LIMITS: Final = BodyLimits(16 << 20)  # it is in memory as a whole
JSON_LIMITS: Final = BodyLimits(2 << 20, total_seconds=60.0)

MANIFESTS_AT_ONCE: Final = 4
"""The number of manifests that are received at a time. A further one is refused, because each occupies a disk."""


def check_media_type(request: web.Request, accepted: tuple[str, ...]) -> str:
    """Return the content type of a request. Raise `ProblemError` if it is not accepted, or is not UTF-8."""
    found = request.content_type if "Content-Type" in request.headers else ""
    charset = (request.charset or "utf-8").lower().replace("_", "-")
    if found not in accepted or charset not in {"utf-8", "utf8", "us-ascii"}:
        listed = ", ".join(accepted)
        told = f"The content type {found or '(none)'} is not accepted." if found not in accepted else "Send UTF-8."
        headers = {"Accept-Post": listed}
        raise ProblemError(Kind.MEDIA_TYPE, told, f"Send one of {listed}, in UTF-8.", headers=headers)
    return found


@asynccontextmanager
async def received_body(request: web.Request, limits: BodyLimits) -> AsyncIterator[BinaryIO]:
    """Yield the body as a temporary file. Raise `ProblemError` if it is too large or too slow."""
    if (request.content_length or 0) > limits.size_bytes:
        raise _too_large(limits)
    with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool:
        size_bytes = 0
        try:
            async with asyncio.timeout(limits.total_seconds):
                while piece := await asyncio.wait_for(request.content.read(_PIECE_BYTES), limits.idle_seconds):
                    size_bytes += len(piece)
                    if size_bytes > limits.size_bytes:
                        raise _too_large(limits)
                    await asyncio.to_thread(spool.write, piece)
        except TimeoutError:
            told = f"The body paused for {limits.idle_seconds:.0f} s, or took more than {limits.total_seconds:.0f} s."
            raise ProblemError(Kind.SLOW, told, "Send it again.", headers={"Connection": "close"}) from None
        spool.seek(0)
        yield cast("BinaryIO", spool)


async def read_json(request: web.Request) -> bytes:
    """Return the body of a JSON request; `{}` for none. Raise `ProblemError`."""
    if not request.body_exists:
        return b"{}"
    check_media_type(request, (JSON,))
    async with received_body(request, JSON_LIMITS) as body:
        return await asyncio.to_thread(body.read) or b"{}"


def busy(reason: str) -> ProblemError:
    """Return the problem of a server that does as much as it may at present."""
    return ProblemError(Kind.BUSY, reason, "Repeat the request later.", headers=RETRY_AFTER)


def _too_large(limits: BodyLimits) -> ProblemError:
    told = f"The body has more than {limits.size_bytes:,} bytes."
    headers = {"Connection": "close"}
    return ProblemError(Kind.TOO_LARGE, told, "Send less, in several requests or jobs.", headers=headers)
