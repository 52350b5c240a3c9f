"""Additional fields that the service's description does not name; `extra_fields.toml` is the table."""

from collections.abc import Mapping
from typing import Any, Final

from batchkiln_service.dialects.naming import spelled
from batchkiln_service.dialects.shapes import Shape, constant, object_of
from batchkiln_service.dialects.traits import Dialect, load_table

_COUNTS: Final[Mapping[str, int]] = {"none": 0, "few": 2, "many": 5}


def extras(dialect: Dialect, place: str, taken: frozenset[str] = frozenset()) -> dict[str, Shape]:
    """Return zero or more additional fields for a place, under names that are not in `taken`."""
    pool = _POOLS[place]
    names = sorted(pool, key=lambda name: dialect.number(f"extra {place} {name}", 2**32))
    chosen = names[: _COUNTS[dialect["extras"]]]
    spelling = dialect["spelling"]
    return {spelled(name, spelling): pool[name] for name in chosen if spelled(name, spelling) not in taken}


def _shape_of(value: Any) -> Shape:  # noqa: ANN401 - a value of TOML
    """Return the shape of a constant."""
    if isinstance(value, dict):
        return object_of({name: _shape_of(part) for name, part in value.items()})
    return constant(value)


_POOLS: Final[Mapping[str, Mapping[str, Shape]]] = {
    place: {name: _shape_of(value) for name, value in fields.items()}
    for place, fields in load_table("extra_fields.toml").items()
}
