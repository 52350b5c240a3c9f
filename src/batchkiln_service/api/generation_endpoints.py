"""POST /videos, /images and /quotes; GET /generations/{id}."""

import sqlite3
from functools import partial
from hashlib import sha256
from typing import Final

from aiohttp import web
from msgspec.structs import replace

from batchkiln_service.api.fault_injection import IS_REPLAY
from batchkiln_service.api.handling import ApiCall, execute, read_body
from batchkiln_service.api.scripted_outcomes import with_outcome_fault, with_prompt_directives
from batchkiln_service.clock import iso
from batchkiln_service.context import Context
from batchkiln_service.db.admission import Caller
from batchkiln_service.db.assets import resolve_inputs
from batchkiln_service.db.creates import NewGeneration, Sent, count_equal_bodies
from batchkiln_service.db.generations import Record, find_generation, has_failed_before, mark_polled, mark_shown, settle
from batchkiln_service.db.keys import digest_of, is_api_key
from batchkiln_service.db.request_log import generation_id_of
from batchkiln_service.errors import ApiError
from batchkiln_service.faults.fault_rules import LINK, OUTCOME
from batchkiln_service.rules.catalog import Kind
from batchkiln_service.rules.lifecycle import link_expiry_ms, status_at
from batchkiln_service.rules.render_spec import RenderSpec
from batchkiln_service.rules.replies import Cost, GenerationRecord, OutputLink, Quote
from batchkiln_service.rules.validation import IDEMPOTENCY_KEY, GenerationRequest, check_request
from batchkiln_service.transport.bodies import deferred, error_of, reply

PENDING_SECONDS: Final = 1.5  # from acceptance to the start of the work


async def create_image(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """POST /images."""
    return await _create(request, call, "image")


async def create_video(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """POST /videos."""
    return await _create(request, call, "video")


async def quote(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """POST /quotes: the price of a request that would be accepted; nothing is generated or charged."""
    _, checked = await read_body(request, call, partial(check_request, catalog=call.context.catalog))

    def work(connection: sqlite3.Connection, caller: Caller) -> int:
        wanted = checked.get()
        resolve_inputs(connection, caller.account, wanted.input_urls, now_ms=caller.now_ms)
        return wanted.cost_credits

    _, cost_credits = await execute(call, work)
    return reply(Quote(cost_credits=cost_credits))


async def poll(request: web.Request, call: ApiCall) -> web.StreamResponse:
    """GET /generations/{id}, for the API key that created it. Service rule 5.7."""
    generation_id, entry = request.match_info["id"], call.entry
    entry.generation_id = generation_id_of(generation_id)

    def gate(connection: sqlite3.Connection, caller: Caller) -> None:
        record = find_generation(connection, generation_id)
        if record is not None and record.generation.key_sha256 == caller.key_sha256:
            if record.generation.last_polled_at_ms is not None:
                entry.poll_gap_ms = caller.now_ms - record.generation.last_polled_at_ms
            call.context.creates.check_poll(record.generation, caller.now_ms)

    def work(connection: sqlite3.Connection, caller: Caller) -> Record:
        record = find_generation(connection, generation_id)
        if record is None or record.generation.account != caller.account:
            raise ApiError(404, "not_found", "there is no such generation")
        if record.generation.key_sha256 != caller.key_sha256:
            raise ApiError(403, "wrong_api_key", "poll with the API key that created the generation")
        mark_polled(connection, record.generation.id, caller.now_ms)
        _mark_shown(connection, call, record, caller.now_ms)
        return record

    caller, record = await execute(call, work, gate=gate)
    return reply(_record_of(request, call, record, caller.now_ms))


async def _create(request: web.Request, call: ApiCall, kind: Kind) -> web.StreamResponse:
    context, entry = call.context, call.entry
    content, checked = await read_body(request, call, partial(check_request, catalog=context.catalog, kind=kind))
    key = deferred(lambda: _idempotency_key(request))
    digest = content.then(lambda body: sha256(body).hexdigest())
    entry.idempotency_key, entry.body_sha256 = key.value, digest.value

    def work(connection: sqlite3.Connection, caller: Caller) -> Record:
        sent = Sent(key.get(), entry.arrival.path, digest.get())
        generation_id = context.creates.replay(connection, caller, sent)
        record = None if generation_id is None else find_generation(connection, generation_id)
        request[IS_REPLAY] = record is not None
        if record is None:
            record = _insert(connection, call, caller, sent, checked.get())
        entry.generation_id = record.generation.id
        _mark_shown(connection, call, record, caller.now_ms)
        return record

    caller, record = await execute(call, work, status=202)
    if record.render_spec is not None:
        context.renderer.start(record.generation.id, record.render_spec)
    return reply(_record_of(request, call, record, caller.now_ms), 202)


def _idempotency_key(request: web.Request) -> str:
    """Return the Idempotency-Key. Raise ApiError 400 unless exactly one is well formed. Service rule 4.1."""
    match request.headers.getall("Idempotency-Key", []):
        case [key] if IDEMPOTENCY_KEY.fullmatch(key):
            return key
        case _:
            raise _bad_key("one header Idempotency-Key is needed, of 16 to 128 letters, digits, '_' or '-'")


def _bad_key(message: str) -> ApiError:
    return ApiError(400, "invalid_idempotency_key", message)


def _insert(
    connection: sqlite3.Connection, call: ApiCall, caller: Caller, sent: Sent, wanted: GenerationRequest
) -> Record:
    """Check the request against the database, and insert the generation."""
    context = call.context
    if is_api_key(connection, digest_of(sent.idempotency_key)):
        raise _bad_key("the Idempotency-Key is an API key, and would be kept in clear; make up another, and new keys")
    assets = resolve_inputs(connection, caller.account, wanted.input_urls, now_ms=caller.now_ms)
    ordinal = count_equal_bodies(connection, caller.account, sent.body_sha256)
    new = _new_generation(context, caller, sent, wanted, assets, ordinal=ordinal)
    context.creates.check(connection, new)
    fault = call.outcome_fault(OUTCOME)  # only once the generation is certain to be created
    failed = partial(has_failed_before, connection, caller.account)
    new = with_prompt_directives(failed, with_outcome_fault(new, fault), wanted.prompt)
    if (context.config.instant or context.config.tiny_media) and new.outcome == "success":
        new = replace(new, output=context.renderer.instant(new.render_spec))
    context.creates.enter(connection, new)
    settle(connection, caller.account, caller.now_ms)
    record = find_generation(connection, new.id)
    assert record is not None
    is_owed = record.output is None and new.outcome == "success"
    return replace(record, render_spec=new.render_spec if is_owed else None)


def _new_generation(
    context: Context,
    caller: Caller,
    sent: Sent,
    wanted: GenerationRequest,
    asset_ids: tuple[str, ...],
    *,
    ordinal: int,
) -> NewGeneration:
    """Return the new generation with random durations and the specification of its output.

    Both depend on the seed, the body and `ordinal`, the number of earlier generations with this body, but not on the
    idempotency key: many clients generate a new one in each run.
    """
    width, height = wanted.size_pixels
    subject = f"{caller.account}:{sent.body_sha256}:{ordinal}"
    pending_ms, work_ms = _durations_ms(context, subject, wanted)
    return NewGeneration(
        id=context.new_id("gen", subject),
        account=caller.account,
        key_sha256=caller.key_sha256,
        idempotency_key=sent.idempotency_key,
        path=sent.path,
        body_sha256=sent.body_sha256,
        model=wanted.model.id,
        cost_credits=wanted.cost_credits,
        max_cost_credits=wanted.max_cost_credits,
        created_at_ms=caller.now_ms,
        processing_at_ms=caller.now_ms + pending_ms,
        finish_at_ms=caller.now_ms + pending_ms + work_ms,
        outcome="success",
        rehearsed_prompt=None,
        render_spec=RenderSpec(
            kind=wanted.model.kind,
            mode=wanted.mode,
            model=wanted.model.id,
            prompt=wanted.prompt,
            width=width,
            height=height,
            output_format=wanted.output_format,
            duration_seconds=wanted.duration_seconds,
            with_audio=wanted.generate_audio,
            image_mode=wanted.image_mode,
            asset_ids=asset_ids,
            variation=sha256(subject.encode()).hexdigest()[:16],
        ),
    )


def _mark_shown(connection: sqlite3.Connection, call: ApiCall, record: Record, now_ms: int) -> None:
    if not call.faults.loses_reply:
        mark_shown(connection, record.generation.id, now_ms)


def _durations_ms(context: Context, subject: str, wanted: GenerationRequest) -> tuple[int, int]:
    scale = 0.0 if context.config.instant else context.config.duration_scale
    seconds = context.random.duration_seconds(
        subject, mean=wanted.model.typical_seconds, spread=wanted.model.spread_seconds
    )
    return round(PENDING_SECONDS * 1000 * scale), round(seconds * 1000 * scale)


def _record_of(request: web.Request, call: ApiCall, record: Record, now_ms: int) -> GenerationRecord:
    """Return the record of Service section 2.1."""
    generation = record.generation
    status = status_at(generation, now_ms, retention_ms=call.context.retention_ms)
    return GenerationRecord(
        id=generation.id,
        model=generation.model,
        status=status,
        created_at=iso(generation.created_at_ms),
        credits=Cost(cost=generation.cost_credits),
        outputs=[_link(request, call, record, now_ms)] if status == "success" else [],
        error=error_of(status),
    )


def _link(request: web.Request, call: ApiCall, record: Record, now_ms: int) -> OutputLink:
    """Return an output with a fresh signed URL."""
    context = call.context
    assert record.output is not None
    assert record.generation.ended_at_ms is not None
    expires_at_ms = link_expiry_ms(
        now_ms,
        link_ms=round(context.config.link_seconds * 1000),
        ended_at_ms=record.generation.ended_at_ms,
        retention_ms=context.retention_ms,
    )
    link_expires_at_ms = expires_at_ms
    if (early := call.outcome_fault(LINK)) is not None:
        link_expires_at_ms = min(expires_at_ms, now_ms + round((early.seconds or 0) * 1000))
    suffix = record.output.file_name.rpartition(".")[2]
    path = f"/storage/outputs/{record.generation.id}/0.{suffix}"
    url = context.origin(request) + context.links.sign("GET", path, link_expires_at_ms)
    kind: Kind = "video" if record.output.type == "video" else "image"
    return OutputLink(type=kind, url=url, expires_at=iso(expires_at_ms))
