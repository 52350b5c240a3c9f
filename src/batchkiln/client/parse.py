"""From a reply's status, headers and body to a value of `core.replies`. Pure, and total: nothing here raises."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeVar

from batchkiln.client.lenient import read_cost, read_number, read_text
from batchkiln.client.raw import RawReply
from batchkiln.client.redact import safe_text
from batchkiln.client.refusals import (
    is_api_error,
    is_busy,
    is_over_quote,
    read_error,
    read_error_object,
    refusal,
    retry_after,
    trouble,
    unlike_api,
)
from batchkiln.client.shape import describe_shape
from batchkiln.client.wire import (
    AssetWire,
    GenerationWire,
    OutputWire,
    TicketWire,
    normalized,
    read_wire,
    unwrapped,
)
from batchkiln.core.replies import (
    Accepted,
    AssetsReady,
    BalanceRead,
    BalanceReply,
    Busy,
    CompleteReply,
    CreateReply,
    Described,
    DescribeReply,
    GenerationRecord,
    GenerationStatus,
    KeyConflict,
    NoReply,
    NotFound,
    NotUnderstood,
    OutputLink,
    PrepareReply,
    Quoted,
    QuoteReply,
    ReadReply,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
    UploadsPrepared,
    UploadTicket,
)

STATUS_WORD_MAX_CHARACTERS: Final = 60
_TITLE_MAX_CHARACTERS: Final = 120
_ID_MAX_CHARACTERS: Final = 500
_OUTPUTS_MAX: Final = 64
_PRICES: Final = (
    "cost_credits",
    "credits_cost",
    "cost",
    "price",
    "total_credits",
    "total",
    "amount",
    "credits",
    "quote",
)
_BALANCES: Final = (
    *("balance", "balance_credits", "credit_balance", "credits_balance", "remaining_credits", "credits_remaining"),
    *("remaining", "available_credits", "credits_available", "available", "credits", "amount", "total", "value"),
)
_LISTS: Final = ("files", "uploads", "assets", "data", "items", "results", "urls")


NumberT = TypeVar("NumberT", int, float)


def parse_create(raw: RawReply) -> CreateReply:
    """Read the reply to a create. A 2xx without an id is `NoReply`: its outcome is unknown (Law 2)."""
    if raw.is_success:
        record = find_record(raw)
        return _not_understood(raw, "names no generation") if record is None else Accepted(record)
    if is_over_quote(raw):
        return Refused(RefusalKind.OVER_QUOTE, read_error(raw))
    if raw.status == HTTPStatus.CONFLICT:
        return _conflict(raw)
    if (met := trouble(raw)) is not None:
        return met
    refused = refusal(raw)
    return Busy(refused.retry_after, refused.error) if isinstance(refused, Throttled) else refused


def parse_read(raw: RawReply, generation_id: str) -> ReadReply:
    """Read the reply to a poll. A record that names another id than the one asked for is not believed."""
    if raw.is_success:
        record = find_record(raw)
        if record is None:
            return _not_understood(raw, "is no generation record")
        return RecordRead(record) if record.id == generation_id else NoReply("the reply is about another generation")
    if (met := trouble(raw)) is not None:
        return met
    if raw.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE} and is_api_error(raw):
        return NotFound(read_error(raw))
    return unlike_api(raw)


def parse_quote(raw: RawReply) -> QuoteReply:
    """Read the reply to a quote."""
    if raw.is_success:
        cost = _find_number(raw.document(), _PRICES, read_cost)
        return _not_understood(raw, "names no price") if cost is None else Quoted(cost)
    return trouble(raw) or refusal(raw)


def parse_prepare(raw: RawReply, names: Sequence[str]) -> PrepareReply:
    """Read the reply to an upload preparation: one ticket per name, in the order asked."""
    if not raw.is_success:
        return trouble(raw) or refusal(raw)
    wires = [wire for entry in _find_list(raw.document()) if (wire := read_wire(TicketWire, entry)) is not None]
    if [wire.name for wire in wires] != list(names):
        by_name = {wire.name: wire for wire in wires}
        if len(by_name) == len(wires) and len(set(names)) == len(names) and set(by_name) == set(names):
            wires = [by_name[name] for name in names]
    tickets = [
        UploadTicket(wire.asset_id, wire.upload_url, wire.upload_headers)
        for wire in wires
        if wire.asset_id is not None and wire.upload_url is not None and wire.upload_headers is not None
    ]
    if len(tickets) != len(names) or len(wires) != len(names):
        return _not_understood(raw, f"has no usable upload for each of {len(names)} files")
    return UploadsPrepared(tuple(tickets))


def parse_complete(raw: RawReply, asset_ids: Sequence[str]) -> CompleteReply:
    """Read the reply to an upload completion: one url per asset, in the order asked."""
    if not raw.is_success:
        return trouble(raw) or refusal(raw)
    wires = [wire for entry in _find_list(raw.document()) if (wire := read_wire(AssetWire, entry)) is not None]
    by_id = {wire.asset_id: wire for wire in wires if wire.asset_id is not None}
    if set(asset_ids) <= set(by_id):
        wires = [by_id[asset_id] for asset_id in asset_ids]
    for wire in wires:
        if wire.url is None and (error := read_error_object(wire.error, raw.secrets)) is not None:
            return Refused(RefusalKind.ASSET_GONE, error)
    urls = [wire.url for wire in wires if wire.url is not None]
    if len(urls) != len(asset_ids) or len(wires) != len(asset_ids):
        return _not_understood(raw, f"has no url for each of {len(asset_ids)} assets")
    return AssetsReady(tuple(urls))


def parse_balance(raw: RawReply) -> BalanceReply:
    """Read the reply to a balance: rounded down, and None where no field could be understood."""
    if not raw.is_success:
        return trouble(raw) or unlike_api(raw)
    document = raw.document()
    if not isinstance(document, dict | list | int | float):
        return unlike_api(raw)
    number = _find_number(document, _BALANCES, read_number)
    if number is None and isinstance(document, Mapping):
        numbers = [found for value in document.values() if (found := read_number(value)) is not None]
        number = numbers[0] if len(numbers) == 1 else None
    return BalanceRead(None if number is None else math.floor(number))


def parse_describe(raw: RawReply) -> DescribeReply:
    """Read the reply to `/openapi.json`."""
    document = raw.document()
    if not raw.is_success or not isinstance(document, Mapping):
        return trouble(raw) or unlike_api(raw)
    info = document.get("info")
    fields = info if isinstance(info, Mapping) else {}
    title, version = read_text(fields.get("title")), read_text(fields.get("version"))
    return Described(
        title and safe_text(title, _TITLE_MAX_CHARACTERS),
        version and safe_text(version, _TITLE_MAX_CHARACTERS),
        document,
    )


def find_record(raw: RawReply) -> GenerationRecord | None:
    """Find the generation record, directly or in an envelope; the candidate that has most of its fields wins.

    What has no id is none: `{"status": "failed"}` may be the envelope's own, and taking it for a verified
    failure would pay twice (Law 2). Nor is an error with some id of the request.
    """
    wires = [wire for fields in unwrapped(raw.document()) if (wire := read_wire(GenerationWire, fields)) is not None]
    candidates = [wire for wire in wires if wire.id is not None and (wire.status is not None or not wire.error)]
    wire = max(candidates, key=lambda candidate: candidate.fields_understood, default=None)
    if wire is None or wire.id is None or len(wire.id) > _ID_MAX_CHARACTERS or not wire.id.isprintable():
        return None
    return GenerationRecord(
        id=wire.id,
        status=GenerationStatus.of(wire.status),
        status_word=safe_text(wire.status or "", STATUS_WORD_MAX_CHARACTERS, raw.secrets),
        created_at=wire.created_at,
        cost_credits=wire.cost_credits,
        outputs=tuple(_links(wire.outputs)),
        error=read_error_object(wire.error, raw.secrets),
    )


def _conflict(raw: RawReply) -> KeyConflict | Busy:
    """Tell a changed body (Service rule 4.3) from another active generation of the account."""
    error = read_error(raw)
    return Busy(retry_after(raw), error) if is_busy(raw) else KeyConflict(error)


def _links(entries: Sequence[object]) -> Iterator[OutputLink]:
    """Give the links that can be fetched; an object of links by name counts as a list of them."""
    for entry in entries[:_OUTPUTS_MAX]:
        wire = read_wire(OutputWire, entry)
        if wire is not None and wire.url is not None:
            yield OutputLink((wire.type or "").lower()[:STATUS_WORD_MAX_CHARACTERS], wire.url, wire.expires_at)
        elif isinstance(entry, Mapping):
            for name, value in normalized(entry).items():
                named = read_wire(OutputWire, value) if isinstance(value, str | Mapping) else None
                if named is not None and named.url is not None:
                    yield OutputLink(named.type or name.removesuffix("_url"), named.url, named.expires_at)


def _find_number(document: object, names: Sequence[str], read: Callable[[object], NumberT | None]) -> NumberT | None:
    """Find the first of the named figures, at this level, below one of the names, or in an envelope."""
    if (number := read(document)) is not None:
        return number
    for fields in unwrapped(document):
        for name in names:
            value = fields.get(name)
            number = _find_number(value, names, read) if isinstance(value, Mapping) else read(value)
            if number is not None:
                return number
    return None


def _find_list(document: object) -> list[object]:
    """Find the list of entries, under any usual name; an object by id becomes a list; one entry alone is a list."""
    if isinstance(document, list):
        return document
    if not isinstance(document, Mapping):
        return []
    fields = normalized(document)
    for name in _LISTS:
        value = fields.get(name)
        if isinstance(value, list):
            return value
        if isinstance(value, Mapping):
            return _find_list(value) if any(key in normalized(value) for key in _LISTS) else _by_key(value)
    return [document]


def _by_key(entries: Mapping[str, object]) -> list[object]:
    """Turn {key: entry} into entries that know their key; an object that is itself an entry stays one."""
    if not all(isinstance(value, Mapping) for value in entries.values()):
        is_links = bool(entries) and all(isinstance(value, str) and "://" in value for value in entries.values())
        if is_links and not {"url", "upload_url"} & set(normalized(entries)):
            return [{"asset_id": key, "url": value} for key, value in entries.items()]
        return [entries]
    return [{"asset_id": key, "name": key, **value} for key, value in entries.items() if isinstance(value, Mapping)]


def _not_understood(raw: RawReply, lacking: str) -> NotUnderstood | NoReply:
    document = raw.document()
    if not isinstance(document, dict | list):
        return unlike_api(raw)
    return NotUnderstood(lacking, describe_shape(document), raw.status)
