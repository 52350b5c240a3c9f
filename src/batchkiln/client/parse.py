"""Parses replies: status, headers and body become a value of `core.responses`. Pure; nothing here raises."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from batchkiln.client.amounts import find_balance, find_price, price_candidates
from batchkiln.client.asset_ids import candidate_paths
from batchkiln.client.error_messages import error_texts
from batchkiln.client.error_responses import (
    configured_meaning,
    is_api_error,
    not_an_api_reply,
    read_create_error,
    read_error,
    read_error_object,
    read_refusal,
    transient_error,
)
from batchkiln.client.http_response import RawReply
from batchkiln.client.json_tree import (
    JsonNode,
    as_jmespath,
    keys_as_jmespath,
    normalize_fields,
    normalize_name,
    read_number,
    read_text,
    read_url,
    walk,
)
from batchkiln.client.list_entries import entries_around
from batchkiln.client.records import find_record
from batchkiln.client.redact import describe_shape, safe_text
from batchkiln.client.reply_mapping import NO_MAPPING, ReplyMapping, search_path
from batchkiln.client.uploads import MissingField, is_unrelated_link, read_asset_urls, read_tickets
from batchkiln.core.response_rules import ReplyField, remedy_line
from batchkiln.core.responses import (
    Accepted,
    AccountBlocked,
    AssetsReady,
    BalanceRead,
    BalanceReply,
    Busy,
    CompleteReply,
    CreateReply,
    Described,
    DescribeReply,
    ErrorInfo,
    GenerationStatus,
    IdempotencyConflict,
    NoResponse,
    NotFound,
    NotUnderstood,
    PrepareReply,
    Quoted,
    QuoteReply,
    ReadReply,
    RecordRead,
    RefusalKind,
    Refused,
    Throttled,
    UploadsPrepared,
)

_TITLE_MAX_CHARACTERS: Final = 120
_OTHER_GENERATION: Final = "is about another generation"
_NOT_FOUND_STATUSES: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_REFUSAL_STATUSES: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_UNKNOWN_ID: Final = re.compile(
    r"\b(?:id|uuid|generation|task|job)\b[^.;]{0,30}\b"
    r"(?:not found|invalid|malformed|unknown|(?:does )?not exist|not valid)"
    r"|\b(?:invalid|malformed|unknown|no such|not a valid) (?:\w+ )?(?:id|uuid|generation|task|job)\b"
)
_ONGOING_OR_DONE: Final = frozenset({GenerationStatus.PENDING, GenerationStatus.PROCESSING, GenerationStatus.SUCCESS})


def parse_create(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> CreateReply:
    """Parse the reply to a create. A 2xx without an id is `NotUnderstood`: its outcome is unknown (Law 2)."""
    if not raw.is_success:
        reply = read_create_error(raw, mapping)
        if (
            isinstance(reply, Refused)
            and configured_meaning(raw, mapping) is None
            and _names_running_generation(raw, mapping)
        ):
            return IdempotencyConflict(reply.error)
        return reply
    record = find_record(raw, mapping)
    if record is not None:
        return Accepted(record)
    return configured_meaning(raw, mapping) or _not_understood(
        raw, "names no generation", ReplyField.GENERATION_ID, mapping
    )


def _names_running_generation(raw: RawReply, mapping: ReplyMapping) -> bool:
    """Return whether a refusal contains a record that runs or succeeded, which proves that a generation was created."""
    if not is_api_error(raw):
        return False
    record = find_record(raw, mapping)
    return record is not None and record.status in _ONGOING_OR_DONE


def parse_read(raw: RawReply, generation_id: str, mapping: ReplyMapping = NO_MAPPING) -> ReadReply:
    """Parse the reply to a poll. A record with another id than the requested one is not accepted."""
    if raw.is_success:
        record = find_record(raw, mapping, generation_id)
        if record is None:
            return _not_understood(raw, "is no generation record", ReplyField.GENERATION, mapping)
        if record.id != generation_id:
            return _not_understood(raw, _OTHER_GENERATION, ReplyField.GENERATION_ID, mapping)
        return RecordRead(record)
    if (reply := transient_error(raw, mapping)) is not None:
        return reply
    if is_api_error(raw) and (
        raw.status in _NOT_FOUND_STATUSES or (raw.status in _REFUSAL_STATUSES and _denies_id(raw))
    ):
        return NotFound(read_error(raw, mapping))
    return not_an_api_reply(raw)


def _denies_id(raw: RawReply) -> bool:
    """Return whether a refusal of a poll says that the id itself is unknown or malformed."""
    texts = error_texts(raw)
    return _UNKNOWN_ID.search(" ".join((*texts.codes, texts.prose))) is not None


def parse_quote(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> QuoteReply:
    """Parse the reply to a quote."""
    if not raw.is_success:
        return read_refusal(raw, mapping)
    cost = find_price(raw.document(), mapping)
    if cost is not None:
        return Quoted(cost)
    return _configured_refusal(raw, mapping) or _not_understood(raw, "names no price", ReplyField.PRICE, mapping)


def parse_prepare(raw: RawReply, names: Sequence[str], mapping: ReplyMapping = NO_MAPPING) -> PrepareReply:
    """Parse the reply to an upload request: one ticket per name, in the order requested."""
    if not raw.is_success:
        return read_refusal(raw, mapping)
    try:
        return UploadsPrepared(read_tickets(raw.document(), names, mapping))
    except MissingField as lacking:
        return _configured_refusal(raw, mapping) or _not_understood(
            raw, lacking.lacking, lacking.field, mapping, len(names)
        )


def parse_complete(raw: RawReply, asset_ids: Sequence[str], mapping: ReplyMapping = NO_MAPPING) -> CompleteReply:
    """Parse the reply to an upload completion: one URL per asset, in the order requested."""
    if not raw.is_success:
        return read_refusal(raw, mapping)
    try:
        return AssetsReady(read_asset_urls(raw.document(), asset_ids, mapping))
    except MissingField as lacking:
        for node in walk(raw.document()):
            error = _asset_error(node, raw)
            if error is not None:
                return Refused(RefusalKind.ASSET_GONE, error)
        return _configured_refusal(raw, mapping) or _not_understood(
            raw, lacking.lacking, lacking.field, mapping, len(asset_ids)
        )


def parse_balance(raw: RawReply, mapping: ReplyMapping = NO_MAPPING) -> BalanceReply:
    """Parse the reply to a balance request. The balance is rounded down.

    It is None if no field, or more than one, may be the balance.
    """
    if not raw.is_success:
        return transient_error(raw, mapping) or not_an_api_reply(raw)
    document = raw.document()
    if not isinstance(document, dict | list | int | float):
        return not_an_api_reply(raw)
    number = find_balance(document, mapping)
    if number is None and mapping.has(ReplyField.BALANCE):
        return _not_understood(raw, "names no balance", ReplyField.BALANCE, mapping)
    return BalanceRead(None if number is None else math.floor(number))


def parse_describe(raw: RawReply) -> DescribeReply:
    """Parse the reply to a request for the OpenAPI document."""
    document = raw.document()
    if not raw.is_success or not isinstance(document, Mapping):
        return transient_error(raw) or not_an_api_reply(raw)
    info = document.get("info")
    fields = info if isinstance(info, Mapping) else {}
    title, version = read_text(fields.get("title")), read_text(fields.get("version"))
    return Described(
        title and safe_text(title, _TITLE_MAX_CHARACTERS),
        version and safe_text(version, _TITLE_MAX_CHARACTERS),
        document,
    )


def _configured_refusal(raw: RawReply, mapping: ReplyMapping) -> Refused | Throttled | AccountBlocked | None:
    """Return the configured meaning of a 2xx, if a rule makes it a refusal."""
    reply = configured_meaning(raw, mapping)
    return Throttled(reply.retry_after, reply.error) if isinstance(reply, Busy) else reply


def _asset_error(node: JsonNode, raw: RawReply) -> ErrorInfo | None:
    """Return the error of an asset whose completion failed: an `error` in an object without a `url`."""
    if not isinstance(node.value, Mapping) or not node.path:
        return None
    fields = normalize_fields(node.value)
    if "error" not in fields or "url" in fields:
        return None
    return read_error_object(fields["error"], raw.secrets)


# --- replies that cannot be read ---


def _not_understood(
    raw: RawReply, lacking: str, field: ReplyField, mapping: ReplyMapping, count: int = 1
) -> NotUnderstood | NoResponse:
    """Return the missing field of a 2xx, the reply's shape, and the configuration line that would set the field's path.

    A path is suggested only if it finds `count` distinct values in this reply.
    """
    document = raw.document()
    if not isinstance(document, dict | list):
        return not_an_api_reply(raw)
    if mapping.has(field):
        path = mapping.rules.fields[field]
        lacking = f"{lacking} at {path}, where replies.fields.{field} says that it is"
        return NotUnderstood(lacking, describe_shape(document), raw.status)
    # The field that was read as the id is a wrong guess.
    guess = (
        None
        if lacking == _OTHER_GENERATION
        else next((path for path in _guessed_paths(document, field) if _finds_distinct(path, document, count)), None)
    )
    return NotUnderstood(lacking, describe_shape(document), raw.status, remedy_line(field, guess))


def _finds_distinct(path: str, document: object, count: int) -> bool:
    found = search_path(path, document)
    values = found if isinstance(found, list) else [found]
    texts = {str(value) for value in values if value is not None}
    return len(values) == count and len(texts) == count


def _guessed_paths(document: object, field: ReplyField) -> Iterator[str]:
    """Yield paths at which a field may be. They contain no values, and no names that may be values (Law 8)."""
    nodes = list(walk(document))
    if field is ReplyField.ASSET_ID:
        anchors = [node for node in nodes if node.name == "uploadurl" and isinstance(node.value, str)][:1]
        yield from (path for entry in entries_around(document, anchors) for path in candidate_paths(entry))
        yield from (keys_as_jmespath(node.path[:-2]) for node in anchors if len(node.path) > 1)
    elif field is ReplyField.PRICE:
        yield from (as_jmespath(node.path) for node in price_candidates(nodes))
        yield from (as_jmespath(node.path) for node in nodes if read_number(node.value) is not None)
    elif field in _GUESSED:
        is_meant = _GUESSED[field]
        meant = [node for node in nodes if is_meant(node)]
        yield from (as_jmespath(node.path) for node in sorted(meant, key=is_unrelated_link))


def _is_id(node: JsonNode) -> bool:
    return normalize_name(node.name).endswith("id") and read_text(node.value) is not None


def _is_url(node: JsonNode) -> bool:
    return isinstance(node.value, str) and read_url(node.value) is not None


def _is_record(node: JsonNode) -> bool:
    return isinstance(node.value, Mapping) and bool({"status", "model"} & normalize_fields(node.value).keys())


_GUESSED: Final[Mapping[ReplyField, Callable[[JsonNode], bool]]] = {
    ReplyField.GENERATION_ID: _is_id,
    ReplyField.GENERATION: _is_record,
    ReplyField.UPLOAD_URL: _is_url,
    ReplyField.ASSET_URL: _is_url,
}
