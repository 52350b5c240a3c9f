"""What a person who has read the description of a dialect writes into `replies:`: where fields stand, what codes mean.

The places are found, not known: the dialect's shapes are made from values that occur nowhere else.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from batchkiln_service.dialects import Dialect
from batchkiln_service.dialects.endpoints import Endpoint
from batchkiln_service.dialects.error_replies import meant
from batchkiln_service.dialects.naming import asset_ids, generation_ids

Path = tuple[str | int, ...]
_NAMES: Final = ("first.png", "second.png")
_IDS: Final = ("ast_000000000000008000000001", "ast_000000000000008000000002")
_MEANINGS: Final = {"busy": "busy", "in_progress": "busy", "no_credits": "no_credits", "asset_gone": "asset_gone"}


def replies_of(dialect: Dialect) -> str:
    """Return the part `replies:` of a profile, in YAML of one line."""
    found = {name: path for name, path in _fields(dialect) if path is not None}
    refusals = [
        {"means": means, "status": refusal.status, "code": refusal.code}
        for meaning, means in _MEANINGS.items()
        for refusal in [meant(dialect, meaning, 429)]
    ]
    return json.dumps({"fields": found, "refusals": refusals})


def _fields(dialect: Dialect) -> Iterator[tuple[str, str | None]]:
    tickets = Endpoint.PREPARE.shape(dialect)
    two, one = (tickets.make([_ticket(number) for number in range(count)]) for count in (2, 1))
    ids = [_shown(dialect, own) for own in _IDS]
    links = [f"https://one.invalid/{number}" for number in range(2)]
    is_flat = dialect["tickets"] == "flat_if_one"
    yield "asset_id", _either(_spread(two, ids), _single(one, ids[0]) if is_flat else None)
    yield "upload_url", _either(_spread(two, links), _single(one, links[0]) if is_flat else None)
    several, flat = _named(two, "upload_headers"), _named(one, "upload_headers") if is_flat else None
    yield "upload_headers", _either(several, flat)
    assets = Endpoint.COMPLETE.shape(dialect)
    two, one = (assets.make([_asset(number) for number in range(count)]) for count in (2, 1))
    links = [f"https://two.invalid/{number}" for number in range(2)]
    is_turned = list(_leaves(two, links[0])) > list(_leaves(two, links[1]))
    several = _spread(two, links)
    flat = _single(one, links[0]) if dialect["assets"] == "flat_if_one" else None
    if flat is None and is_turned and several is not None:
        several = f"reverse({several})"
    yield "asset_url", _either(several, flat)
    quote = Endpoint.QUOTE.shape(dialect).make({"cost_credits": 4711})
    yield "price", _single(quote, 4711) or _single(quote, 4711.0)
    yield "balance", _balance(dialect)
    record = Endpoint.READ.shape(dialect).make(_record())
    whole = _single(record, "processing")
    yield "generation", None if whole is None else _above(record, whole)
    yield "generation_id", _single(record, _generation_id(dialect))


def _balance(dialect: Dialect) -> str | None:
    made = Endpoint.BALANCE.shape(dialect).make({"balance": 4711})
    return _single(made, 4711) or _single(made, "4711") or _single(made, 4711.0)


def _either(several: str | None, flat: str | None) -> str | None:
    """Join the path to several with the one to one that stands alone."""
    return several if flat is None or several is None else f"{several} || {flat}"


def _above(record: object, path: str) -> str | None:
    """Return the object that holds the status; None where that is all of the reply."""
    above = path.rpartition(".")[0]
    return above or ("[0]" if isinstance(record, list) else None)


def _shown(dialect: Dialect, own: str) -> str | int:
    return asset_ids(dialect).shown(own)


def _generation_id(dialect: Dialect) -> str:
    return str(generation_ids(dialect).shown(_record()["id"]))  # type: ignore[arg-type]  # a text


def _ticket(number: int) -> dict[str, object]:
    return {
        "asset_id": _IDS[number],
        "name": _NAMES[number],
        "upload_url": f"https://one.invalid/{number}",
        "upload_headers": {"Content-Type": "image/png", "Content-Length": "71"},
        "expires_at": "2026-03-01T00:05:00.000Z",
        "index": number,
        "type": "image/png",
        "size": 71,
    }


def _asset(number: int) -> dict[str, object]:
    return {
        "asset_id": _IDS[number],
        "url": f"https://two.invalid/{number}",
        "status": "ready",
        "type": "image/png",
        "size": 71,
        "width": 8,
        "height": 8,
        "expires_at": "2026-03-01T00:05:00.000Z",
    }


def _record() -> dict[str, object]:
    return {
        "id": "gen_000000000000008000000001",
        "model": "epsilon-2",
        "status": "processing",
        "created_at": "2026-03-01T00:00:00.000Z",
        "credits": {"cost": 4},
        "outputs": [],
        "error": None,
    }


def _leaves(document: object, wanted: object, path: Path = ()) -> Iterator[Path]:
    """Give the places of a value; the name of a field is one, too, as (…, name, "keys")."""
    if type(document) is type(wanted) and document == wanted:
        yield path
    elif isinstance(document, list):
        for number, one in enumerate(document):
            yield from _leaves(one, wanted, (*path, number))
    elif isinstance(document, dict):
        for name, one in document.items():
            yield from _leaves(one, wanted, (*path, name))
        if str(wanted) in document:
            yield (*path, str(wanted), -1)


def _named(document: object, name: str) -> str | None:
    """Return the path to the first field of a name, or to all of them, where there are several."""
    paths = list(_fields_named(document, name))
    if not paths:
        return None
    if len(paths) == 1:
        return _written(paths[0], None)
    return _written(paths[0], _first_unlike(*paths[:2]))


def _fields_named(document: object, name: str, path: Path = ()) -> Iterator[Path]:
    steps = (
        enumerate(document) if isinstance(document, list) else document.items() if isinstance(document, dict) else ()
    )
    for step, one in steps:
        if step == name:
            yield (*path, step)
        else:
            yield from _fields_named(one, name, (*path, step))


def _first_unlike(first: Path, second: Path) -> int:
    return next(at for at, (one, other) in enumerate(zip(first, second, strict=True)) if one != other)


def _single(document: object, wanted: object) -> str | None:
    path = next(_leaves(document, wanted), None)
    if path is None:
        return None
    return _written(path, None)


def _spread(document: object, wanted: Sequence[object]) -> str | None:
    """Return the path to the values in the order of the reply: where places differ, all of that level are meant."""
    first, second = (next(_leaves(document, one), None) for one in wanted)
    if first is None or second is None or len(first) != len(second):
        return None
    return _written(first, _first_unlike(first, second))


def _written(path: Path, differs: int | None) -> str:
    """Write a path as JMESPath; at `differs`, each of that level is meant."""
    if path and path[-1] == -1:
        around = _written(path[:-2], None) or "@"
        return f"keys({around})" if differs is not None else f"keys({around})[0]"
    text = ""
    for at, step in enumerate(path):
        if isinstance(step, int):
            text += "[]" if at == differs else f"[{step}]"
        else:
            name = step if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", step) else json.dumps(step)
            if at == differs:
                text = f"values({text or '@'})[]"  # what stands behind `*` is one name at most, in the library
            else:
                text += f".{name}" if text else name
    return text
