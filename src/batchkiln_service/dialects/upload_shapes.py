"""The replies of the upload endpoints. Fixed: upload_url, upload_headers, url; the rest is open (section 2.3)."""

from collections.abc import Mapping
from typing import Any, Final

from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import Ids, asset_ids, spelled
from batchkiln_service.dialects.record_shape import instant
from batchkiln_service.dialects.shapes import (
    INSTANT,
    INTEGER,
    LINK,
    TEXT,
    At,
    Either,
    Leaf,
    ListOf,
    MapOf,
    Object,
    Schema,
    Shape,
    constant,
    described_as,
    field_of,
)
from batchkiln_service.dialects.traits import Dialect

_HEADERS: Final[Schema] = described_as(
    {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}, "All of them are sent on the PUT."
)
_OTHER_IDS: Final[Mapping[str, tuple[str, str]]] = {
    "upload": ("upload_session_id", "upl"),
    "batch": ("batch_id", "bat"),
    "owner": ("owner_id", "usr"),
}


def asset_name(dialect: Dialect) -> str:
    """Return the name of the asset's identifier in the reply of POST /uploads."""
    return spelled(dialect["asset_name"], dialect["spelling"])


def id_schema(dialect: Dialect) -> Schema:
    """Return the schema of an asset's identifier."""
    text = {
        "full": "Identifier of the asset. Pass it in `asset_ids` of POST /uploads/complete.",
        "some": "The asset's identifier.",
    }.get(dialect["description_texts"], "")
    described: Schema = {"type": "integer" if dialect["asset_id"] == "int" else "string"}
    if dialect["asset_id"] == "int" and dialect["tickets"] == "map_by_id":
        described["type"] = ["integer", "string"]  # names of fields are strings
    return described_as(described | ({"format": "uuid"} if dialect["asset_id"] == "uuid" else {}), text)


def tickets_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of POST /uploads, made from the list of the service's tickets."""
    ids, name = asset_ids(dialect), asset_name(dialect)
    identifier = Leaf(lambda given: ids.shown(given["asset_id"]), id_schema(dialect))
    each = _ticket(dialect, name, identifier)
    around = spelled(dialect["tickets_name"], dialect["spelling"])
    listed = Object({around: ListOf(each)})
    shape: Shape = listed
    match dialect["tickets"]:
        case "bare_list":
            shape = ListOf(each)
        case "map_by_id":
            within = each if dialect.number("map has ids", 2) == 0 else _ticket(dialect, None, identifier)
            text = str(id_schema(dialect).get("description", ""))
            shape = Object({around: MapOf(within, lambda given: str(ids.shown(given["asset_id"])), text)})
        case "map_by_name":
            shape = Object({around: MapOf(each, lambda given: str(given["name"]), "By the file's name.")})
        case "map_by_index":
            shape = Object({around: MapOf(each, lambda given: str(given["index"]), "By the place in the request.")})
        case "parallel":
            links, headers = ListOf(field_of("upload_url", LINK)), ListOf(_headers(dialect))
            shape = Object({f"{name}s": ListOf(identifier), "upload_url": links, "upload_headers": headers})
        case "flat_if_one":
            shape = Either(lambda given: len(given) == 1, At(lambda given: given[0], each), listed)
        case "list_in_list":
            inner = Object({around: ListOf(each), "count": Leaf(len, INTEGER)})
            shape = Object({"groups": At(lambda given: [given], ListOf(inner))})
        case _ if dialect.number("list extras", 3) == 0:
            shape = Object({**listed.fields, **extras(dialect, "envelope", frozenset({around}))})
        case _:
            pass
    return shape


def _ticket(dialect: Dialect, name: str | None, identifier: Shape) -> Shape:
    """Return the shape of a ticket, with the identifier under `name`, or without it if None."""
    spelling = dialect["spelling"]
    target: dict[str, Shape] = {
        "upload_url": field_of("upload_url", described_as(LINK, "PUT the bytes there.")),
        "upload_headers": _headers(dialect),
    }
    expires = Leaf(lambda given: instant(dialect, given["expires_at"]), INSTANT)
    beside: dict[str, Shape] = {} if name is None else {name: identifier}
    beside |= _other_ids(dialect, frozenset(beside))
    beside |= _file(dialect, frozenset(beside))
    match dialect["asset_place"] if name is not None else "beside":
        case "object":
            inner = beside.pop(name or "")
            fields = {"asset": Object({name or "": inner}), **beside, **target}
        case "above":
            fields = {**beside, "target": Object({**target, spelled("expires_at", spelling): expires})}
        case "within":
            whole = {**beside, **target}
            return Object({"upload": Object(whole), "status": constant("pending", TEXT)}, name="UploadTicket")
        case _:
            fields = {**target, **beside} if dialect.number("ids last", 2) else {**beside, **target}
    more = extras(dialect, "ticket", frozenset(fields))
    return Object({**fields, **more}, name="UploadTicket")


def _other_ids(dialect: Dialect, taken: frozenset[str]) -> dict[str, Shape]:
    """Return a second identifier of the same form; only its name and description tell them apart."""
    if dialect["other_ids"] == "none":
        return {}
    name, prefix = _OTHER_IDS[dialect["other_ids"]]
    name = spelled(name, dialect["spelling"])
    if name in taken:
        return {}
    form = dialect["asset_id"]
    digits = f"{dialect.number(name, 2**40) | 1 << 39:024x}"
    kind = "integer" if form == "int" else "string"
    text = "Names this upload in support requests." if dialect["description_texts"] == "full" else ""
    return {name: constant(Ids(prefix, form).shown(f"{prefix}_{digits}"), described_as({"type": kind}, text))}


def _file(dialect: Dialect, taken: frozenset[str]) -> dict[str, Shape]:
    """Return the fields of a ticket that identify its file."""
    name = field_of("name", TEXT)
    match dialect["ticket_file"]:
        case "none":
            return {}
        case "file_object":
            fields = {"name": name, "size": field_of("size", INTEGER), "type": field_of("type", TEXT)}
            return {"file": Object({"name": fields["name"], "size": fields["size"], "type": fields["type"]})}
        case word:
            word = spelled(word, dialect["spelling"])
            return {} if word in taken else {word: name}


def _headers(dialect: Dialect) -> Shape:
    def pairs(given: Mapping[str, Any]) -> list[tuple[str, str]]:
        return list(given["upload_headers"].items())

    match dialect["upload_headers"]:
        case "pairs":
            pair: Schema = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}
            return Leaf(lambda given: [list(pair) for pair in pairs(given)], {"type": "array", "items": pair})
        case "name_value" | "key_value" as words:
            first, _, second = words.partition("_")
            each: Schema = {"type": "object", "required": [first, second], "properties": {first: TEXT, second: TEXT}}
            return Leaf(
                lambda given: [{first: name, second: value} for name, value in pairs(given)],
                {"type": "array", "items": each},
            )
        case "numbers":
            return Leaf(
                lambda given: {name: int(value) if value.isdecimal() else value for name, value in pairs(given)},
                _HEADERS,
            )
        case _:
            return field_of("upload_headers", _HEADERS)


def completed_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of POST /uploads/complete, made from the list of the service's assets."""
    ids = asset_ids(dialect)
    identifier = Leaf(lambda given: ids.shown(given["asset_id"]), id_schema(dialect))
    around = spelled(dialect["assets_name"], dialect["spelling"])
    each = _asset(dialect, identifier)
    shape: Shape
    match dialect["assets"]:
        case "bare_list":
            shape = ListOf(each)
        case "map_by_id":
            shape = Object({around: MapOf(each, lambda given: str(ids.shown(given["asset_id"])), "By asset.")})
        case "flat_if_one":
            listed = Object({around: ListOf(each)})
            shape = Either(lambda given: len(given) == 1, At(lambda given: given[0], each), listed)
        case "parallel":
            shape = Object({"asset_ids": ListOf(identifier), "url": ListOf(field_of("url", LINK))})
        case "list_in_list":
            shape = Object({"groups": At(lambda given: [given], ListOf(Object({around: ListOf(each)})))})
        case _:
            shape = Object({around: ListOf(each), "count": Leaf(len, INTEGER)})
    return At(lambda given: _ordered(dialect, given), shape)


def _ordered(dialect: Dialect, given: list[Any]) -> list[Any]:
    """Return the assets in the dialect's order, which differs from the request's only if identifiers are included."""
    is_told = dialect["completed_name"] != "none" or dialect["assets"] in {"map_by_id", "parallel"}
    return given[::-1] if dialect["assets_order"] == "reversed" and is_told else given


def _asset(dialect: Dialect, identifier: Shape) -> Object:
    spelling = dialect["spelling"]
    url: Shape = field_of("url", described_as(LINK, "Use it in `inputs`."))
    fields: dict[str, Shape] = {}
    match dialect["completed_name"]:
        case "same":
            fields[asset_name(dialect)] = identifier
        case "other":
            fields["id" if asset_name(dialect) != "id" else spelled("asset_id", spelling)] = identifier
        case _:
            pass
    match dialect["url_place"]:
        case "nested":
            fields["image"] = Object({"url": url, "width": field_of("width", INTEGER)})
        case "content":
            fields["content"] = Object({"type": constant("image", TEXT), "url": url})
        case _:
            fields["url"] = url
    more = extras(dialect, "asset", frozenset(fields))
    size = {spelled("size_bytes", spelling): field_of("size", INTEGER)}
    return Object({**more, **fields, **size} if dialect.number("asset", 2) else {**fields, **more}, name="ReadyAsset")
