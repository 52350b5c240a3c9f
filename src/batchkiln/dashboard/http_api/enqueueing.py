"""Manifests over HTTP: enqueued as `batchkiln enqueue` does, or planned as `batchkiln plan` does."""

import asyncio
import io
import re
from typing import BinaryIO, Final

import orjson

from batchkiln.api import ApplyOptions
from batchkiln.api.documents import EnqueuedDocument, applied_document
from batchkiln.api.queue import opened
from batchkiln.config import AccessScope
from batchkiln.core.errors import Diagnostic, InputError, QueueUnusable
from batchkiln.dashboard.http_api.bodies import (
    JSON,
    JSON_MANIFEST_LIMITS,
    MANIFEST_LIMITS,
    MANIFESTS_AT_ONCE,
    YAML,
    busy,
    check_media_type,
    received_body,
)
from batchkiln.dashboard.http_api.operation import Call
from batchkiln.dashboard.http_api.problems import Kind, ProblemError, mistakes_of
from batchkiln.dashboard.http_api.requests import Body, EnqueueQuery
from batchkiln.planning.catalogues import Catalogues
from batchkiln.planning.plan import make_plan
from batchkiln.planning.plan_document import PlanDocument, plan_document
from batchkiln.planning.queue_access import open_access

NAME: Final = "<request>"
"""The name of the body in error messages."""

_NOTHING: Final = "Nothing was enqueued, and nothing was charged."

# Two escapes that are one character beyond the basic plane; JSON writes it so, and YAML does not.
_PAIR: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


async def enqueue(call: Call[EnqueueQuery, Body]) -> EnqueuedDocument | PlanDocument:
    """Enqueue a manifest, or plan it. Enqueueing it again is safe: known items stay unchanged."""
    query, intake = call.query, call.context.intake
    if query.on_change == "redo":
        call.require(AccessScope.DECIDE, "to make changed items again.")
    if query.prune:
        call.require(AccessScope.DECIDE, "to cancel items that left the manifest.")
    media_type = check_media_type(call.request, (*YAML, JSON))
    if intake.receiving >= MANIFESTS_AT_ONCE:
        raise busy("Other manifests are being received.")
    intake.receiving += 1
    try:
        limits = JSON_MANIFEST_LIMITS if media_type == JSON else MANIFEST_LIMITS
        async with received_body(call.request, limits) as body:
            manifest = await asyncio.to_thread(_from_json, body) if media_type == JSON else body
            return await _apply(call, manifest)
    except QueueUnusable:
        raise
    except InputError as error:
        remedy = "Correct what `mistakes` lists, and send the manifest again."
        raise ProblemError(Kind.INVALID, str(error), remedy, _NOTHING, mistakes_of(error)) from error
    finally:
        intake.receiving -= 1


async def _apply(call: Call[EnqueueQuery, Body], manifest: BinaryIO) -> EnqueuedDocument | PlanDocument:
    app, query = call.context.app, call.query
    options = ApplyOptions(on_change=query.on_change, prune=query.prune, allow_duplicates=query.allow_duplicates)
    async with open_access(app) as access:
        catalogues = Catalogues(access)
        if query.dry_run:
            plan = await make_plan(
                access, ["-"], options=options, stdin=manifest, stdin_name=NAME, catalogues=catalogues
            )
            return plan_document(plan)
        async with call.context.intake.lock, opened(app) as queue:  # a large manifest is applied alone
            applied = await queue.apply(
                ["-"], options=options, stdin=manifest, stdin_name=NAME, catalogue_of=catalogues.of
            )
    return {"jobs": [applied_document(entry) for entry in applied]}


def _from_json(body: BinaryIO) -> BinaryIO:
    """Return a JSON manifest as YAML with the same lines. Raise `InputError` if it is not JSON."""
    content = body.read()
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError([Diagnostic(f"not valid JSON: {error.msg}", NAME, error.lineno, error.colno)]) from error
    return io.BytesIO(_PAIR.sub(_character, content))


def _character(pair: re.Match[bytes]) -> bytes:
    text = bytes.fromhex((pair[2] + pair[3]).decode()).decode("utf-16-be")
    return pair[1] + text.encode()
