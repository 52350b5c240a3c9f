"""GET and HEAD of signed output URLs, with ranges. Outside of the API: no key and no window."""

import asyncio
import sqlite3

from aiohttp import web

from batchkiln.service.api.context import CONTEXT
from batchkiln.service.books.generations import Record, find_drawing, find_generation
from batchkiln.service.errors import ApiError
from batchkiln.service.rules.drawing import Drawing
from batchkiln.service.rules.lifecycle import status_at

PATH = "/storage/outputs/{generation_id}/{file_name}"


async def download(request: web.Request) -> web.StreamResponse:
    """Send an output while its link is good and it is retained. Service section 2.1."""
    context = request.app[CONTEXT]
    now_ms = context.clock.now_ms()
    verdict = context.links.check("GET", request.path, request.query, now_ms=now_ms)
    if verdict != "good":
        raise ApiError(403, f"link_{verdict}", f"the link is {verdict}; read the generation again for a new one")

    def find(connection: sqlite3.Connection) -> tuple[Record | None, Drawing]:
        generation_id = request.match_info["generation_id"]
        return find_generation(connection, generation_id), find_drawing(connection, generation_id)

    record, drawing = await asyncio.wrap_future(context.database.submit(find))
    if (
        record is None
        or record.output is None
        or status_at(record.generation, now_ms, retention_ms=context.retention_ms) == "expired"
    ):
        raise ApiError(404, "not_found", "this output is no longer retained")
    path = context.renderer.path_of(record.output.file_name)
    if not await asyncio.to_thread(path.exists):
        await asyncio.wrap_future(context.renderer.start(record.generation.id, drawing))
    return web.FileResponse(
        path, headers={"Content-Type": record.output.content_type, "Cache-Control": "private, no-store"}
    )
