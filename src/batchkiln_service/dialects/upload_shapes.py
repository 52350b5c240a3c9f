"""The replies of the upload endpoints. Fixed: upload_url, upload_headers, url; the rest is open (section 2.3)."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from batchkiln_service.dialects.extra_fields import extras
from batchkiln_service.dialects.naming import Ids, asset_ids, spelled
from batchkiln_service.dialects.record_shape import instant
from batchkiln_service.dialects.shapes import (
    INSTANT,
    INTEGER,
    LINK,
    TEXT,
    Schema,
    Shape,
    at,
    constant,
    described_as,
    either,
    field_of,
    list_of,
    map_of,
    object_of,
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
    identifier = Shape(lambda given: ids.shown(given["asset_id"]), id_schema(dialect))
    each = _ticket(dialect, name, identifier)
    around = spelled(dialect["tickets_name"], dialect["spelling"])
    within = each if dialect.number("map has ids", 2) == 0 else _ticket(dialect, None, identifier)
    text = str(identifier.schema.get("description", ""))
    more = {} if dialect.number("list extras", 3) else extras(dialect, "envelope", frozenset({around}))
    shapes = _list_shapes(around, each) | {
        "list": object_of({around: list_of(each), **more}),
        "map_by_id": object_of({around: map_of(within, lambda given: str(ids.shown(given["asset_id"])), text)}),
        "map_by_name": object_of({around: map_of(each, lambda given: str(given["name"]), "By the file's name.")}),
        "map_by_index": object_of(
            {around: map_of(each, lambda given: str(given["index"]), "By the place in the request.")}
        ),
        "parallel": object_of(
            {
                f"{name}s": list_of(identifier),
                "upload_url": list_of(field_of("upload_url", LINK)),
                "upload_headers": list_of(_headers(dialect)),
            }
        ),
        "list_in_list": _grouped({around: list_of(each), "count": Shape(len, INTEGER)}),
    }
    return shapes[dialect["tickets"]]


def _list_shapes(around: str, each: Shape) -> dict[str, Shape]:
    """Return the shapes of the list in the replies to POST /uploads and POST /uploads/complete."""
    first = at(lambda given: given[0], each)
    listed = object_of({around: list_of(each)})
    return {"bare_list": list_of(each), "flat_if_one": either(lambda given: len(given) == 1, first, listed)}


def _grouped(fields: Mapping[str, Shape]) -> Shape:
    return object_of({"groups": at(lambda given: [given], list_of(object_of(fields)))})


def _ticket(dialect: Dialect, name: str | None, identifier: Shape) -> Shape:
    """Return the shape of a ticket, with the identifier under `name`, or without it if None."""
    spelling = dialect["spelling"]
    target: dict[str, Shape] = {
        "upload_url": field_of("upload_url", described_as(LINK, "PUT the bytes there.")),
        "upload_headers": _headers(dialect),
    }
    expires = Shape(lambda given: instant(dialect, given["expires_at"]), INSTANT)
    beside: dict[str, Shape] = {} if name is None else {name: identifier}
    beside |= _other_ids(dialect, frozenset(beside))
    beside |= _file(dialect, frozenset(beside))
    match dialect["asset_place"] if name is not None else "beside":
        case "object":
            inner = beside.pop(name or "")
            fields = {"asset": object_of({name or "": inner}), **beside, **target}
        case "above":
            fields = {**beside, "target": object_of({**target, spelled("expires_at", spelling): expires})}
        case "within":
            whole = {**beside, **target}
            return object_of({"upload": object_of(whole), "status": constant("pending")}, name="UploadTicket")
        case _:
            fields = {**target, **beside} if dialect.number("ids last", 2) else {**beside, **target}
    more = extras(dialect, "ticket", frozenset(fields))
    return object_of({**fields, **more}, name="UploadTicket")


def _other_ids(dialect: Dialect, taken: frozenset[str]) -> dict[str, Shape]:
    """Return a second identifier of the same form, which differs only in its name and description."""
    if dialect["other_ids"] == "none":
        return {}
    name, prefix = _OTHER_IDS[dialect["other_ids"]]
    name = spelled(name, dialect["spelling"])
    if name in taken:
        return {}
    form = dialect["asset_id"]
    digits = f"{dialect.number(name, 2**40) | 1 << 39:024x}"
    text = "Names this upload in support requests." if dialect["description_texts"] == "full" else ""
    shape = constant(Ids(prefix, form).shown(f"{prefix}_{digits}"))
    return {name: replace(shape, schema=described_as(shape.schema, text))}


def _file(dialect: Dialect, taken: frozenset[str]) -> dict[str, Shape]:
    """Return the fields of a ticket that identify its file."""
    name = field_of("name", TEXT)
    match dialect["ticket_file"]:
        case "none":
            return {}
        case "file_object":
            fields = {"name": name, "size": field_of("size", INTEGER), "type": field_of("type", TEXT)}
            return {"file": object_of({"name": fields["name"], "size": fields["size"], "type": fields["type"]})}
        case word:
            word = spelled(word, dialect["spelling"])
            return {} if word in taken else {word: name}


def _headers(dialect: Dialect) -> Shape:
    def pairs(given: Mapping[str, Any]) -> list[tuple[str, str]]:
        return list(given["upload_headers"].items())

    match dialect["upload_headers"]:
        case "pairs":
            pair: Schema = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}
            return Shape(lambda given: [list(pair) for pair in pairs(given)], {"type": "array", "items": pair})
        case "name_value" | "key_value" as words:
            first, _, second = words.partition("_")
            each: Schema = {"type": "object", "required": [first, second], "properties": {first: TEXT, second: TEXT}}
            return Shape(
                lambda given: [{first: name, second: value} for name, value in pairs(given)],
                {"type": "array", "items": each},
            )
        case "numbers":
            return Shape(
                lambda given: {name: int(value) if value.isdecimal() else value for name, value in pairs(given)},
                _HEADERS,
            )
        case _:
            return field_of("upload_headers", _HEADERS)


def completed_shape(dialect: Dialect) -> Shape:
    """Return the shape of the reply of POST /uploads/complete, made from the list of the service's assets."""
    ids = asset_ids(dialect)
    identifier = Shape(lambda given: ids.shown(given["asset_id"]), id_schema(dialect))
    around = spelled(dialect["assets_name"], dialect["spelling"])
    each = _asset(dialect, identifier)
    shapes = _list_shapes(around, each) | {
        "list": object_of({around: list_of(each), "count": Shape(len, INTEGER)}),
        "map_by_id": object_of({around: map_of(each, lambda given: str(ids.shown(given["asset_id"])), "By asset.")}),
        "parallel": object_of({"asset_ids": list_of(identifier), "url": list_of(field_of("url", LINK))}),
        "list_in_list": _grouped({around: list_of(each)}),
    }
    return at(lambda given: _ordered(dialect, given), shapes[dialect["assets"]])


def _ordered(dialect: Dialect, given: list[Any]) -> list[Any]:
    """Return the assets in the dialect's order, which differs from the request's only if identifiers are included."""
    has_name = dialect["completed_name"] != "none" or dialect["assets"] in {"map_by_id", "parallel"}
    return given[::-1] if dialect["assets_order"] == "reversed" and has_name else given


def _asset(dialect: Dialect, identifier: Shape) -> Shape:
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
            fields["image"] = object_of({"url": url, "width": field_of("width", INTEGER)})
        case "content":
            fields["content"] = object_of({"type": constant("image"), "url": url})
        case _:
            fields["url"] = url
    more = extras(dialect, "asset", frozenset(fields))
    size = {spelled("size_bytes", spelling): field_of("size", INTEGER)}
    return object_of(
        {**more, **fields, **size} if dialect.number("asset", 2) else {**fields, **more}, name="ReadyAsset"
    )
