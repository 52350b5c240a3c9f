"""POST /videos, /images and /quotes; GET /generations/{id}."""

import sqlite3
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Final

from aiohttp import web

from batchkiln.service.api.answering import answered
from batchkiln.service.api.fates import as_asked, fated
from batchkiln.service.books.admission import Ticket
from batchkiln.service.books.assets import resolve_inputs
from batchkiln.service.books.creating import NewGeneration
from batchkiln.service.books.generations import (
    Record,
    find_generation,
    mark_polled,
    settle,
)
from batchkiln.service.context import CONTEXT, Context
from batchkiln.service.errors import ApiError
from batchkiln.service.faults import FATE, LINK
from batchkiln.service.rules.catalog import Kind
from batchkiln.service.rules.drawing import Drawing
from batchkiln.service.rules.lifecycle import link_expiry_ms, status_at
from batchkiln.service.rules.replies import Cost, GenerationRecord, OutputLink, Quote
from batchkiln.service.rules.validation import IDEMPOTENCY_KEY, GenerationRequest, check_request
from batchkiln.service.transport.bodies import deferred, error_of, iso, parse_json, received, reply

PENDING_SECONDS: Final = 1.5  # between acceptance and the start of the work


async def create_image(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """POST /images."""
    return await _create(request, ticket, "image")


async def create_video(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """POST /videos."""
    return await _create(request, ticket, "video")


async def quote(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """POST /quotes: the price of a request that would be accepted; nothing is generated or charged."""
    context = request.app[CONTEXT]
    checked = (await received(request)).then(parse_json).then(partial(check_request, catalog=context.catalog))

    def work(connection: sqlite3.Connection) -> int:
        asked = checked.get()
        resolve_inputs(connection, _account(ticket), asked.input_urls, now_ms=ticket.arrived_at_ms)
        return asked.cost_credits

    return reply(Quote(cost_credits=await answered(context, ticket, work)))


async def poll(request: web.Request, ticket: Ticket) -> web.StreamResponse:
    """GET /generations/{id}, for the API key that created it. Service rule 5.7."""
    context = request.app[CONTEXT]
    ticket.generation_id = request.match_info["id"]
    now_ms = ticket.arrived_at_ms

    def gate(connection: sqlite3.Connection) -> None:
        settle(connection, _account(ticket), now_ms)
        record = find_generation(connection, request.match_info["id"])
        if record is not None and record.generation.key_sha256 == ticket.key_sha256:
            if record.generation.last_polled_at_ms is not None:
                ticket.poll_gap_ms = now_ms - record.generation.last_polled_at_ms
            context.creates.check_poll(record.generation, now_ms)

    def work(connection: sqlite3.Connection) -> Record:
        record = find_generation(connection, request.match_info["id"])
        if record is None or record.generation.account != ticket.account:
            raise ApiError(404, "not_found", "there is no such generation")
        if record.generation.key_sha256 != ticket.key_sha256:
            raise ApiError(403, "wrong_api_key", "poll with the API key that created the generation")
        mark_polled(connection, record.generation.id, now_ms)
        return record

    record = await answered(context, ticket, work, gate=gate)
    return reply(_shown(context, record, ticket))


async def _create(request: web.Request, ticket: Ticket, kind: Kind) -> web.StreamResponse:
    context = request.app[CONTEXT]
    key = deferred(lambda: _idempotency_key(request))
    content = await received(request)
    digest = content.then(lambda body: sha256(body).hexdigest())
    ticket.idempotency_key, ticket.body_sha256 = key.value, digest.value
    checked = content.then(parse_json).then(partial(check_request, catalog=context.catalog, kind=kind))

    def work(connection: sqlite3.Connection) -> Record:
        key.get()
        digest.get()
        settle(connection, _account(ticket), ticket.arrived_at_ms)
        record = _replayed(connection, context, ticket)
        if record is None:
            record = _entered(connection, context, ticket, checked.get())
        ticket.generation_id = record.generation.id
        return record

    record = await answered(context, ticket, work, status=202)
    if record.drawing is not None:
        context.renderer.start(record.generation.id, record.drawing)
    return reply(_shown(context, record, ticket), 202)


def _idempotency_key(request: web.Request) -> str:
    """Service rule 4.1."""
    key = request.headers.get("Idempotency-Key", "")
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise ApiError(400, "invalid_idempotency_key", "Idempotency-Key needs 16 to 128 letters, digits, '_' or '-'")
    return key


def _replayed(connection: sqlite3.Connection, context: Context, ticket: Ticket) -> Record | None:
    """Return what an earlier request under this key created. Service rules 4.2 and 4.3."""
    assert ticket.idempotency_key is not None
    assert ticket.key_sha256 is not None
    assert ticket.body_sha256 is not None
    resolve = context.creates.replay(connection, account=_account(ticket), idempotency_key=ticket.idempotency_key)
    if resolve is None:
        return None
    return find_generation(connection, resolve(ticket.key_sha256, ticket.path, ticket.body_sha256))


def _entered(
    connection: sqlite3.Connection,
    context: Context,
    ticket: Ticket,
    asked: GenerationRequest,
) -> Record:
    """Check what needs the books, and enter the generation."""
    account = _account(ticket)
    assets = resolve_inputs(connection, account, asked.input_urls, now_ms=ticket.arrived_at_ms)
    new = _planned(context, ticket, asked, assets)
    context.creates.check(connection, new)
    fate = ticket.draw_fault(FATE)  # not before it is sure that there is a generation
    new = as_asked(connection, fated(new, fate), asked.prompt)
    if (context.config.instant or context.config.tiny_media) and new.outcome == "success":
        new = replace(new, output=context.renderer.instant(new.drawing))
    context.creates.enter(connection, new)
    settle(connection, account, ticket.arrived_at_ms)
    record = find_generation(connection, new.id)
    assert record is not None
    is_owed = record.output is None and new.outcome == "success"
    return replace(record, drawing=new.drawing if is_owed else None)


def _planned(context: Context, ticket: Ticket, asked: GenerationRequest, asset_ids: tuple[str, ...]) -> NewGeneration:
    """Draw how long the generation takes, and lay down how its output looks."""
    assert ticket.key_sha256 is not None
    assert ticket.idempotency_key is not None
    assert ticket.body_sha256 is not None
    width, height = asked.size_pixels
    pending_ms, work_ms = _durations_ms(context, ticket, asked)
    return NewGeneration(
        id=context.new_id("gen"),
        account=_account(ticket),
        key_sha256=ticket.key_sha256,
        idempotency_key=ticket.idempotency_key,
        path=ticket.path,
        body_sha256=ticket.body_sha256,
        model=asked.model.id,
        cost_credits=asked.cost_credits,
        max_cost_credits=asked.max_cost_credits,
        created_at_ms=ticket.arrived_at_ms,
        processing_at_ms=ticket.arrived_at_ms + pending_ms,
        finish_at_ms=ticket.arrived_at_ms + pending_ms + work_ms,
        outcome="success",
        rehearsed_prompt=None,
        drawing=Drawing(
            kind=asked.model.kind,
            mode=asked.mode,
            model=asked.model.id,
            prompt=asked.prompt,
            width=width,
            height=height,
            output_format=asked.output_format,
            duration_seconds=asked.duration_seconds,
            with_audio=asked.generate_audio,
            image_mode=asked.image_mode,
            asset_ids=asset_ids,
        ),
    )


def _durations_ms(context: Context, ticket: Ticket, asked: GenerationRequest) -> tuple[int, int]:
    scale = 0.0 if context.config.instant else context.config.duration_scale
    seconds = context.dice.duration_seconds(
        f"{ticket.account}:{ticket.idempotency_key}",
        mean=asked.model.typical_seconds,
        spread=asked.model.spread_seconds,
    )
    return round(PENDING_SECONDS * 1000 * scale), round(seconds * 1000 * scale)


def _shown(context: Context, record: Record, ticket: Ticket) -> GenerationRecord:
    """Return the record of Service section 2.1."""
    generation, now_ms = record.generation, ticket.arrived_at_ms
    status = status_at(generation, now_ms, retention_ms=context.retention_ms)
    return GenerationRecord(
        id=generation.id,
        model=generation.model,
        status=status,
        created_at=iso(generation.created_at_ms),
        credits=Cost(cost=generation.cost_credits),
        outputs=[_link(context, record, ticket)] if status == "success" else [],
        error=error_of(status),
    )


def _link(context: Context, record: Record, ticket: Ticket) -> OutputLink:
    """Return an output with a fresh signed URL."""
    now_ms = ticket.arrived_at_ms
    assert record.output is not None
    assert record.generation.ended_at_ms is not None
    expires_at_ms = link_expiry_ms(
        now_ms,
        link_ms=round(context.config.link_seconds * 1000),
        ended_at_ms=record.generation.ended_at_ms,
        retention_ms=context.retention_ms,
    )
    dies_at_ms = expires_at_ms
    if (early := ticket.draw_fault(LINK)) is not None:
        dies_at_ms = min(expires_at_ms, now_ms + round((early.seconds or 0) * 1000))
    suffix = record.output.file_name.rpartition(".")[2]
    path = f"/storage/outputs/{record.generation.id}/0.{suffix}"
    url = ticket.origin + context.links.sign("GET", path, dies_at_ms)
    kind: Kind = "video" if record.output.type == "video" else "image"
    return OutputLink(type=kind, url=url, expires_at=iso(expires_at_ms))


def _account(ticket: Ticket) -> str:
    assert ticket.account is not None, "the route was reached without a key"
    return ticket.account
