"""From a reply's status, headers and body to a value of `core.responses`. Pure, and total: nothing here raises."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from batchkiln.client.coercion import read_number, read_text, read_url
from batchkiln.client.error_messages import said_by
from batchkiln.client.error_responses import (
    configured,
    create_refusal,
    is_api_error,
    read_error,
    read_error_object,
    refusal,
    trouble,
    unlike_api,
)
from batchkiln.client.figures import find_balance, find_price, prices_by_name
from batchkiln.client.guide import UNGUIDED, Guide, search
from batchkiln.client.http_response import RawReply
from batchkiln.client.identifiers import guesses
from batchkiln.client.json_tree import Place, as_jmespath, keys_as_jmespath, squash, squashed, walk
from batchkiln.client.list_entries import entries_around
from batchkiln.client.records import find_record
from batchkiln.client.redact import safe_text
from batchkiln.client.shape import describe_shape
from batchkiln.client.uploads import Lacking, is_other_link, read_asset_urls, read_tickets
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
_OTHER: Final = "is about another generation"
_NOT_THERE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_REFUSED: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_DENIAL: Final = re.compile(
    r"\b(?:id|uuid|generation|task|job)\b[^.;]{0,30}\b"
    r"(?:not found|invalid|malformed|unknown|(?:does )?not exist|not valid)"
    r"|\b(?:invalid|malformed|unknown|no such|not a valid) (?:\w+ )?(?:id|uuid|generation|task|job)\b"
)
_CREATED: Final = frozenset({GenerationStatus.PENDING, GenerationStatus.PROCESSING, GenerationStatus.SUCCESS})


def parse_create(raw: RawReply, guide: Guide = UNGUIDED) -> CreateReply:
    """Read the reply to a create. A 2xx without an id is `NotUnderstood`: its outcome is unknown (Law 2)."""
    if not raw.is_success:
        met = create_refusal(raw, guide)
        if isinstance(met, Refused) and configured(raw, guide) is None and _tells_generation(raw, guide):
            return IdempotencyConflict(met.error)
        return met
    record = find_record(raw, guide)
    if record is not None:
        return Accepted(record)
    return configured(raw, guide) or _not_understood(raw, "names no generation", ReplyField.GENERATION_ID, guide)


def _tells_generation(raw: RawReply, guide: Guide) -> bool:
    """Tell whether a refusal holds the record of a generation that goes on, or succeeded: then one was created."""
    if not is_api_error(raw):
        return False
    record = find_record(raw, guide)
    return record is not None and record.status in _CREATED


def parse_read(raw: RawReply, generation_id: str, guide: Guide = UNGUIDED) -> ReadReply:
    """Read the reply to a poll. A record that names plainly another id than the one asked for is not believed."""
    if raw.is_success:
        record = find_record(raw, guide, generation_id)
        if record is None:
            return _not_understood(raw, "is no generation record", ReplyField.GENERATION, guide)
        if record.id != generation_id:
            return _not_understood(raw, _OTHER, ReplyField.GENERATION_ID, guide)
        return RecordRead(record)
    if (met := trouble(raw, guide)) is not None:
        return met
    if is_api_error(raw) and (raw.status in _NOT_THERE or (raw.status in _REFUSED and _denies_id(raw))):
        return NotFound(read_error(raw, guide))
    return unlike_api(raw)


def _denies_id(raw: RawReply) -> bool:
    """Tell whether a refusal of a read says of the id itself that it is none."""
    said = said_by(raw)
    return _DENIAL.search(" ".join((*said.codes, said.prose))) is not None


def parse_quote(raw: RawReply, guide: Guide = UNGUIDED) -> QuoteReply:
    """Read the reply to a quote."""
    if not raw.is_success:
        return refusal(raw, guide)
    cost = find_price(raw.document(), guide)
    if cost is not None:
        return Quoted(cost)
    return _said_so(raw, guide) or _not_understood(raw, "names no price", ReplyField.PRICE, guide)


def parse_prepare(raw: RawReply, names: Sequence[str], guide: Guide = UNGUIDED) -> PrepareReply:
    """Read the reply to an upload preparation: one ticket per name, in the order asked."""
    if not raw.is_success:
        return refusal(raw, guide)
    try:
        return UploadsPrepared(read_tickets(raw.document(), names, guide))
    except Lacking as lacking:
        return _said_so(raw, guide) or _not_understood(raw, lacking.lacking, lacking.field, guide, len(names))


def parse_complete(raw: RawReply, asset_ids: Sequence[str], guide: Guide = UNGUIDED) -> CompleteReply:
    """Read the reply to an upload completion: one url per asset, in the order asked."""
    if not raw.is_success:
        return refusal(raw, guide)
    try:
        return AssetsReady(read_asset_urls(raw.document(), asset_ids, guide))
    except Lacking as lacking:
        for place in walk(raw.document()):
            error = _error_of_asset(place, raw)
            if error is not None:
                return Refused(RefusalKind.ASSET_GONE, error)
        return _said_so(raw, guide) or _not_understood(raw, lacking.lacking, lacking.field, guide, len(asset_ids))


def parse_balance(raw: RawReply, guide: Guide = UNGUIDED) -> BalanceReply:
    """Read the reply to a balance: rounded down, and None where no field, or more than one, could be meant."""
    if not raw.is_success:
        return trouble(raw, guide) or unlike_api(raw)
    document = raw.document()
    if not isinstance(document, dict | list | int | float):
        return unlike_api(raw)
    number = find_balance(document, guide)
    if number is None and guide.has(ReplyField.BALANCE):
        return _not_understood(raw, "names no balance", ReplyField.BALANCE, guide)
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


def _said_so(raw: RawReply, guide: Guide) -> Refused | Throttled | AccountBlocked | None:
    """Return what a person says of a success that is none."""
    met = configured(raw, guide)
    return Throttled(met.retry_after, met.error) if isinstance(met, Busy) else met


def _error_of_asset(place: Place, raw: RawReply) -> ErrorInfo | None:
    """Return why an asset of a completion failed: an error beside its other fields, and no url."""
    if not isinstance(place.value, Mapping) or not place.path:
        return None
    fields = squashed(place.value)
    if "error" not in fields or "url" in fields:
        return None
    return read_error_object(fields["error"], raw.secrets)


# --- what was not found ---


def _not_understood(
    raw: RawReply, lacking: str, field: ReplyField, guide: Guide, count: int = 1
) -> NotUnderstood | NoResponse:
    """Say what a success lacks, with its shape, and the configuration line that would tell where it stands.

    Only a path is told that finds `count` values in this very reply.
    """
    document = raw.document()
    if not isinstance(document, dict | list):
        return unlike_api(raw)
    if guide.has(field):
        path = guide.rules.fields[field]
        lacking = f"{lacking} at {path}, where replies.fields.{field} says that it is"
        return NotUnderstood(lacking, describe_shape(document), raw.status)
    # What was read as the id is no guess of where the right one stands.
    guess = (
        None
        if lacking == _OTHER
        else next((path for path in _guesses(document, field) if _finds(path, document, count)), None)
    )
    return NotUnderstood(lacking, describe_shape(document), raw.status, remedy_line(field, guess))


def _finds(path: str, document: object, count: int) -> bool:
    found = search(path, document)
    values = found if isinstance(found, list) else [found]
    texts = {str(value) for value in values if value is not None}
    return len(values) == count and len(texts) == count


def _guesses(document: object, field: ReplyField) -> Iterator[str]:
    """Give the paths where a field might stand: never a value, nor a name that may be one (Law 8)."""
    places = list(walk(document))
    if field is ReplyField.ASSET_ID:
        anchors = [place for place in places if place.name == "uploadurl" and isinstance(place.value, str)][:1]
        yield from (path for entry in entries_around(document, anchors) for path in guesses(entry))
        yield from (keys_as_jmespath(place.path[:-2]) for place in anchors if len(place.path) > 1)
    elif field is ReplyField.PRICE:
        yield from (as_jmespath(place.path) for place in prices_by_name(places))
        yield from (as_jmespath(place.path) for place in places if read_number(place.value) is not None)
    elif field in _GUESSED:
        is_meant = _GUESSED[field]
        meant = [place for place in places if is_meant(place)]
        yield from (as_jmespath(place.path) for place in sorted(meant, key=is_other_link))


def _is_id(place: Place) -> bool:
    return squash(place.name).endswith("id") and read_text(place.value) is not None


def _is_url(place: Place) -> bool:
    return isinstance(place.value, str) and read_url(place.value) is not None


def _is_record(place: Place) -> bool:
    return isinstance(place.value, Mapping) and bool({"status", "model"} & squashed(place.value).keys())


_GUESSED: Final[Mapping[ReplyField, Callable[[Place], bool]]] = {
    ReplyField.GENERATION_ID: _is_id,
    ReplyField.GENERATION: _is_record,
    ReplyField.UPLOAD_URL: _is_url,
    ReplyField.ASSET_URL: _is_url,
}
