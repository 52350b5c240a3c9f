"""GET and HEAD of signed output links."""

import asyncio
import sqlite3
from typing import Final

from aiohttp import hdrs, web
from msgspec import Struct

from batchkiln_service.context import CONTEXT, Context
from batchkiln_service.db.generations import find_generation, find_render_spec
from batchkiln_service.errors import ApiError
from batchkiln_service.media.renderer import OutputDelayedError, OutputUnwantedError
from batchkiln_service.rules.lifecycle import status_at
from batchkiln_service.rules.render_spec import Output, RenderSpec
from batchkiln_service.storage.file_response import OpenFile, file_reply
from batchkiln_service.storage.ranges import FileFacts

PATH: Final = "/storage/outputs/{generation_id}/{file_name}"


class _RetainedOutput(Struct, frozen=True):
    """A retained output and its specification, which renders it again if the file is lost."""

    generation_id: str
    output: Output
    render_spec: RenderSpec
    rendered_at_ms: int


async def download(request: web.Request) -> web.StreamResponse:
    """Send an output while its link is valid and it is retained. Service section 2.1."""
    context = request.app[CONTEXT]
    now_ms = context.clock.now_ms()
    verdict = context.links.check("GET", request.path, request.query, now_ms=now_ms)
    if verdict != "good":
        raise ApiError(403, f"link_{verdict}", f"the link is {verdict}; read the generation again for a new one")
    kept = await _kept(context, request.match_info["generation_id"], now_ms)
    output, file = await _opened(context, kept)
    # The ETag is the stored hash, because a file that is rendered again has the same bytes but other times.
    facts = FileFacts(output.size_bytes, f'"{output.sha256}"', kept.rendered_at_ms)
    suffix = output.file_name.rpartition(".")[2]
    headers: dict[str, str] = {
        hdrs.CONTENT_TYPE: output.content_type,
        hdrs.CONTENT_DISPOSITION: f'inline; filename="{kept.generation_id}.{suffix}"',
        hdrs.CACHE_CONTROL: "private, no-cache",
    }
    return file_reply(request, file, facts, headers=headers)


async def _kept(context: Context, generation_id: str, now_ms: int) -> _RetainedOutput:
    def find(connection: sqlite3.Connection) -> _RetainedOutput | None:
        record = find_generation(connection, generation_id)
        if record is None or record.output is None or record.generation.rendered_at_ms is None:
            return None
        if status_at(record.generation, now_ms, retention_ms=context.retention_ms) != "success":
            return None
        render_spec = find_render_spec(connection, generation_id)
        return _RetainedOutput(generation_id, record.output, render_spec, record.generation.rendered_at_ms)

    kept = await context.database.run(find)
    if kept is None:
        raise ApiError(404, "not_found", "this output is not retained")
    return kept


async def _opened(context: Context, kept: _RetainedOutput) -> tuple[Output, OpenFile]:
    """Open an output; a file lost in a crash is rendered again, with the same bytes."""
    output = kept.output
    file = await asyncio.to_thread(_open, context, output)
    if file is None:
        output = await _rendered_again(context, kept)
        file = await asyncio.to_thread(_open, context, output)
    if file is None:
        raise ApiError(404, "not_found", "this output is not retained any more")
    return output, file


def _open(context: Context, output: Output) -> OpenFile | None:
    try:
        file = OpenFile(context.renderer.path_of(output.file_name))
    except FileNotFoundError:
        return None
    return file if file.size_bytes == output.size_bytes else None


async def _rendered_again(context: Context, kept: _RetainedOutput) -> Output:
    try:
        return await asyncio.wrap_future(
            context.renderer.render_again(kept.generation_id, kept.output, kept.render_spec)
        )
    except OutputUnwantedError as error:
        raise ApiError(404, "not_found", "this output is not retained any more") from error
    except OutputDelayedError as error:
        raise ApiError(
            503, "unavailable", "this output is being restored; try again", retry_after_seconds=60
        ) from error
    except Exception as error:
        raise ApiError(404, "not_found", "this output is lost, and an input it needs is deleted") from error
