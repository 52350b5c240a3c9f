"""Additional fields that the service's description does not name: other identifiers, figures and links."""

from collections.abc import Mapping
from typing import Final

from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import INSTANT, INTEGER, LINK, NUMBER, TEXT, TRUTH, Object, Shape, constant
from batchkiln_service.dialects.traits import Dialect

_DOCS: Final = "https://docs.service.invalid/api/v1"
_LATER: Final = "2026-12-31T23:59:59.000Z"
_OFTEN: Final[Mapping[str, int]] = {"none": 0, "few": 2, "many": 5}


def extras(dialect: Dialect, place: str, taken: frozenset[str] = frozenset()) -> dict[str, Shape]:
    """Return additional fields for a place, none to many, under names that are not in `taken`."""
    pool = _POOLS[place]
    names = sorted(pool, key=lambda name: dialect.number(f"extra {place} {name}", 2**32))
    chosen = names[: _OFTEN[dialect["extras"]]]
    spelling = dialect["spelling"]
    return {spelled(name, spelling): pool[name] for name in chosen if spelled(name, spelling) not in taken}


def _text(value: str) -> Shape:
    return constant(value, TEXT)


def _number(value: float) -> Shape:
    return constant(value, INTEGER if isinstance(value, int) else NUMBER)


def _link(path: str) -> Shape:
    return constant(f"{_DOCS}/{path}", LINK)


def _at(value: str = _LATER) -> Shape:
    return constant(value, INSTANT)


_LINKS: Final = Object({"self": _link("self"), "docs": _link("generations"), "support": _link("support")})
_USER: Final = Object({"id": _text("usr_5521"), "name": _text("studio"), "plan": _text("pro")})
_QUEUE: Final = Object({"position": _number(3), "status": _text("ok"), "length": _number(40)})
_USAGE: Final = Object({"used": _number(140), "limit": _number(2000), "reset_at": _at()})

_POOLS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "envelope": {
        "request_id": _text("req_0b7f9a3c"),
        "trace_id": _text("4bf92f3577b34da6a3ce929d0e0e4736"),
        "api_version": _text("v1"),
        "server_time": _at("2026-03-01T00:00:00.000Z"),
        "took_ms": _number(41),
        "region": _text("eu-west"),
        "usage": _USAGE,
        "warnings": constant([], {"type": "array", "items": TEXT}),
        "links": _LINKS,
    },
    "record": {
        "updated_at": _at(),
        "started_at": _at("2026-02-28T23:00:00.000Z"),
        "progress": _number(0.4),
        "eta_seconds": _number(37),
        "user": _USER,
        "user_id": _text("usr_5521"),
        "project_id": _text("prj_77"),
        "queue": _QUEUE,
        "links": _LINKS,
        "retry_count": _number(0),
        "thumbnail_url": _link("thumbnail.jpg"),
        "price_usd": _number(0.42),
        "seed": _number(918273645),
        "kind": _text("generation"),
        "object": _text("generation"),
        "tags": constant([], {"type": "array", "items": TEXT}),
        "is_public": constant(value=False, described=TRUTH),
        "retention_days": _number(14),
    },
    "credits": {
        "currency": _text("credits"),
        "balance": _number(9000),
        "reserved": _number(3),
        "estimated": _number(999),
        "unit_price": _number(0.01),
    },
    "output": {
        "id": _text("out_1"),
        "width": _number(1024),
        "height": _number(768),
        "size": _number(1_048_576),
        "thumbnail_url": _link("thumbnail.jpg"),
        "preview": Object({"url": _link("preview.jpg"), "type": _text("image"), "width": _number(64)}),
        "content_hash": _text("9f86d081884c7d65"),
        "index": _number(0),
        "is_watermarked": constant(value=False, described=TRUTH),
    },
    "ticket": {
        "method": _text("PUT"),
        "max_size": _number(31_457_280),
        "expires_in": _number(300),
        "bucket": _text("uploads-eu"),
        "status": _text("pending"),
        "created_at": _at("2026-03-01T00:00:00.000Z"),
        "docs_url": _link("uploads"),
        "complete_url": _link("uploads/complete"),
        "region": _text("eu-west"),
        "part_size": _number(5_242_880),
    },
    "asset": {
        "status": _text("ready"),
        "thumbnail_url": _link("thumbnail.jpg"),
        "preview": Object({"url": _link("preview.jpg"), "width": _number(64)}),
        "checksum": _text("9f86d081884c7d659a2feaa0c55ad015"),
        "created_at": _at("2026-03-01T00:00:00.000Z"),
        "owner": _USER,
        "uses_left": _number(100),
        "bucket": _text("uploads-eu"),
        "moderation": Object({"id": _text("mod_81"), "status": _text("passed"), "score": _number(0.01)}),
    },
    "quote": {
        "currency": _text("credits"),
        "price_usd": _number(0.42),
        "credits_remaining": _number(9000),
        "valid_until": _at(),
        "quote_id": _text("quo_5"),
        "unit_cost": _number(1),
        "total": _number(9999),
        "discount": _number(0),
    },
    "balance": {
        "currency": _text("credits"),
        "user_id": _number(5521),
        "plan": _text("pro"),
        "renews_at": _at(),
        "spent_today": _number(140),
        "daily_budget": _number(2000),
        "is_subscribed": constant(value=True, described=TRUTH),
    },
    "model": {
        "display_name": _text("A model"),
        "version": _text("2"),
        "provider": _text("studio"),
        "description": _text("Makes pictures and clips."),
        "is_beta": constant(value=False, described=TRUTH),
        "docs_url": _link("models"),
        "released_at": _at("2026-01-01T00:00:00.000Z"),
        "popularity": _number(87),
    },
    "error": {
        "request_id": _text("req_0b7f9a3c"),
        "documentation_url": _link("errors"),
        "timestamp": _at("2026-03-01T00:00:00.000Z"),
        "id": _text("err_9"),
        "support": _text("Contact support with the request id."),
    },
}
