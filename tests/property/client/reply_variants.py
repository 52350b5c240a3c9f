"""Random dressings of documented replies: envelopes, nesting, lists or maps, spelling, additional fields.

Independent of the local service and of the client's readers: each draws what the service's document leaves open, and
keeps the names that it fixes.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    camel,
    lambda name: camel(name)[:1].upper() + camel(name)[1:],
    lambda name: name.replace("_", "-"),
    str.upper,
    lambda name: name.replace("_", ""),
)
ENVELOPES = ("data", "result", "response", "payload", "body", "resource", "reply", "content", "inner", "envelope", "x")
NOISE: Mapping[str, Any] = {
    "request_id": "req_5e1f7c2ab9",
    "requestId": "req_5e1f7c2ab9",
    "trace": "7d4e-11aa",
    "ok": True,
    "success": True,
    "code": 0,
    "message": "accepted",
    "status": "ok",
    "created": 1795000000,
    "meta": {"id": "req_77aa", "version": 3, "took_ms": 12},
    "warnings": [],
    "links": {"self": "https://api.example/self"},
    "pagination": {"page": 1, "total": 1},
    "error": None,
    "id": "req_77aa",
}
IDS = st.from_regex(r"(ast|f|obj|A)[_-][a-z0-9]{6,12}", fullmatch=True) | st.integers(10**6, 10**9).map(str)


def respelled(value: Any, spell: Callable[[str], str], keep: frozenset[str] = frozenset()) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {
            (name if name in keep else spell(name)): inner if "header" in name else respelled(inner, spell, keep)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [respelled(inner, spell, keep) for inner in value]
    return value


def wrapped(draw: Draw, value: Any, *, noise: frozenset[str]) -> Any:  # noqa: ANN401
    """Put a value into none to three envelopes, each with other fields beside it."""
    for name in draw(st.lists(st.sampled_from(ENVELOPES), max_size=3, unique=True)):
        beside = draw(st.lists(st.sampled_from(sorted(noise)), max_size=4, unique=True))
        fields = {other: NOISE[other] for other in beside} | {name: value}
        value = dict(draw(st.permutations(list(fields.items()))))
    return value


RECORD = {
    "model": "epsilon-2",
    "created_at": "2026-11-21T10:00:00.250Z",
    "credits": {"cost": 4},
    "error": None,
}


@st.composite
def records(draw: Draw) -> tuple[Any, str, str]:
    """Give a reply, its generation's id, its status; each documented field is there."""
    generation_id = draw(st.from_regex(r"[a-z]{0,4}[_-]?[a-z0-9]{4,20}", fullmatch=True))
    status = draw(st.sampled_from(["pending", "processing", "success", "failed", "canceled", "expired"]))
    link = {"type": "image", "url": "https://s.example/a.png?sig=1", "expires_at": "2026-11-21T10:00:00.250Z"}
    fields: dict[str, Any] = {"id": generation_id, "status": status, **RECORD}
    fields["outputs"] = [link] if status == "success" else []
    extra = {"progress": 50, "user_id": "u_1", "queue": {"id": "q_1", "position": 3}, "seed": 77, "parent_id": None}
    names = draw(st.lists(st.sampled_from(sorted(extra)), max_size=3, unique=True))
    fields |= {name: extra[name] for name in names}
    shape = draw(st.sampled_from(["flat", "attributes", "list"]))
    record: Any = dict(draw(st.permutations(list(fields.items()))))
    if shape == "attributes":
        record = {"type": "generation", "id": record.pop("id"), "attributes": record}
    record = respelled(record, draw(st.sampled_from(SPELLINGS)))
    return wrapped(draw, [record] if shape == "list" else record, noise=frozenset(NOISE)), generation_id, status


@st.composite
def preparations(draw: Draw) -> tuple[Any, list[str], list[tuple[str, str, tuple[tuple[str, str], ...]]]]:
    """Give a reply, the names asked for, and the tickets in their order: asset id, url, headers."""
    count = draw(st.integers(1, 5))
    names = [f"picture-{'abcde'[number]}.png" for number in range(count)]
    ids = draw(st.lists(IDS, min_size=count, max_size=count, unique=True))
    spell = draw(st.sampled_from(SPELLINGS))
    id_name = draw(st.sampled_from(["asset_id", "id", "asset", "file_id", "uuid", "key", "ref", "asset_key", "handle"]))
    has_names = draw(st.booleans())
    nesting = draw(st.sampled_from(["flat", "asset", "upload", "both"]))
    tickets, entries = [], []
    for name, asset_id in zip(names, ids, strict=True):
        url = f"https://storage.example/{draw(st.integers(0, 10**9))}?sig={asset_id}-secret"
        headers = {"Content-Length": str(len(name) * 100), "x-meta-owner-id": f"own-{asset_id}"}
        upload: dict[str, Any] = {"upload_url": url, "upload_headers": headers}
        asset: dict[str, Any] = {id_name: asset_id} | ({"name": name} if has_names else {})
        aside = {"expires_at": "2026-11-21T10:05:00Z", "method": "PUT", "status": "pending", "size": len(name)}
        entries.append(
            {
                "flat": asset | upload | aside,
                "asset": {"asset": asset, **upload, **aside},
                "upload": {**asset, "upload": upload | aside},
                "both": {"asset": asset | {"state": "new"}, "upload": upload | aside},
            }[nesting]
        )
        tickets.append((asset_id, url, tuple(headers.items())))
    entries = respelled(entries, spell)
    shuffled = draw(st.permutations(range(count))) if has_names else list(range(count))
    holder = draw(st.sampled_from(["files", "uploads", "assets", "items", "things"]))
    match draw(st.sampled_from(["list", "map", "bare"])):
        case "map" if has_names:
            reply: Any = {holder: {names[number]: entries[number] for number in shuffled}}
        case "bare" if count > 1:
            reply = [entries[number] for number in shuffled]
        case _:
            reply = {holder: [entries[number] for number in shuffled]}
    return wrapped(draw, reply, noise=frozenset(NOISE) - {"id"}), names, tickets


@st.composite
def completions(draw: Draw) -> tuple[Any, list[str], list[str]]:
    """Give a reply, the asset ids asked for, and the urls in their order."""
    count = draw(st.integers(1, 5))
    ids = draw(st.lists(IDS, min_size=count, max_size=count, unique=True))
    scheme = draw(st.sampled_from(["https://cdn.example/", "/assets/", "asset://"]))
    urls = [f"{scheme}{number}-{asset_id}" for number, asset_id in enumerate(ids)]
    id_name = draw(st.sampled_from(["asset_id", "id", "file_id", "uuid", "ref", None]))
    is_number = draw(st.booleans()) and all(asset_id.isdecimal() for asset_id in ids)
    entries: list[Any] = []
    for asset_id, url in zip(ids, urls, strict=True):
        told: dict[str, Any] = {} if id_name is None else {id_name: int(asset_id) if is_number else asset_id}
        aside = {
            "status": "ready",
            "preview_url": f"https://p.example/{asset_id}",
            "expires_at": "2026-12-01T00:00:00Z",
        }
        entries.append(draw(st.sampled_from([told | {"url": url} | aside, told | {"asset": {"url": url}} | aside])))
    entries = [entries[0]] if count == 1 else entries
    entries = respelled(entries, draw(st.sampled_from(SPELLINGS)))
    shuffled = draw(st.permutations(range(count))) if id_name is not None else list(range(count))
    holder = draw(st.sampled_from(["files", "uploads", "assets", "items", "things"]))
    match draw(st.sampled_from(["list", "map", "bare"])):
        case "map" if id_name is not None:
            reply: Any = {holder: {ids[number]: entries[number] for number in shuffled}}
        case "bare":
            reply = [entries[number] for number in shuffled]
        case _:
            reply = {holder: [entries[number] for number in shuffled]}
    return wrapped(draw, reply, noise=frozenset(NOISE)), ids, urls
