"""The items of a job that a person chooses by state, error code, metadata and verdict."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from batchkiln.core.errors import InputError
from batchkiln.core.states import ItemState
from batchkiln.store import Filter, Reader

_PREFIX: Final = "metadata."

IDS: Final = "items must be a list of ids"

Verdicts = Literal["kept", "dropped", "unreviewed"]

StateNames = Literal[
    "queued", "submitting", "active", "downloading", "done", "failed", "rejected", "expired", "canceled", "held"
]
"""The texts of `ItemState`, for a program that does not import it."""

E = TypeVar("E", bound=StrEnum)


def member_of(kind: type[E], value: str, argument: str) -> E:
    """Return the member of an enumeration with this value. Raise `InputError` with all values for another one."""
    if value not in {*kind}:
        raise InputError(f"{argument} must be one of {', '.join(kind)}, not {value!r}")
    return kind(value)


def texts_of(given: object, meaning: str, *, or_else: str = "") -> tuple[str, ...]:
    """Return the texts that a program gave as a list of `meaning`, such as "items must be a list of ids".

    A single text is an iterable of its letters, each of which may be the id of another item: every method that takes
    several ids, jobs or paths refuses it here. Raise `InputError`; `or_else` names what else is allowed.
    """
    wanted = f"{meaning}{or_else}; nothing was changed"
    if isinstance(given, str):
        raise InputError(f"{wanted}. For one, write [{given!r}]")
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise InputError(f"{wanted}; this is {type(given).__name__}")
    texts = tuple(given)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"{wanted}. {text!r} is {type(text).__name__}, not a text")
    return texts


def ids_of(items: Iterable[str] | None) -> tuple[str, ...]:
    """Return the ids of items that a program named; none for None, which stands for all items of the job.

    Raise `InputError` for another value, and for an empty list, which a program that found nothing would give.
    """
    if items is None:
        return ()
    ids = texts_of(items, IDS)
    if not ids:
        raise InputError("items is an empty list; nothing was changed. Leave it out for all items of the job")
    return ids


class ItemSelection(Struct, frozen=True):
    """The items that the options choose: those in some states, or in all, that match a filter."""

    states: tuple[ItemState, ...] = ()
    wanted: Filter = field(default_factory=Filter)

    def __bool__(self) -> bool:
        """Return whether any option was given."""
        return bool(self.states) or self.wanted.is_by_content

    def within(self, states: Sequence[ItemState]) -> "ItemSelection":
        """Return the selection, with these states if it names none."""
        return self if self.states else replace(self, states=tuple(states))

    def names(self, reader: Reader, job: str) -> list[str]:
        """Return the names of the chosen items."""
        return [item.name for item in reader.items.matching(job, self.states, self.wanted)]


def selection_of(
    states: Sequence[str] | None, code: str | None, where: Sequence[str] | None, verdict: Verdicts | None
) -> ItemSelection:
    """Return the selection of the options' values.

    Raise `InputError` for a condition that is not understood, and for two that no item can fulfil.
    """
    chosen = tuple(ItemState(state) for state in dict.fromkeys(states or ()))
    return ItemSelection(chosen, Filter(code=code, metadata=_metadata_of(where or ()), verdict=verdict))


def _metadata_of(conditions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the keys and values of conditions such as `metadata.species=fox`."""
    found: dict[str, str] = {}
    for condition in conditions:
        key, separator, value = condition.removeprefix(_PREFIX).partition("=")
        if not condition.startswith(_PREFIX) or not separator or not key:
            raise InputError(f"{condition}: write metadata.KEY=VALUE, for example metadata.species=fox")
        if found.setdefault(key, value) != value:
            raise InputError(
                f"{condition}: no item matches, because {_PREFIX}{key}={found[key]} must hold as well, and a key has "
                "one value; give each key once"
            )
    return tuple(found.items())


def names_of(reader: Reader, job: str, items: Sequence[str], selection: ItemSelection) -> list[str] | None:
    """Return the items that a person named or chose by options; None for neither. Raise `InputError` for both."""
    if not selection:
        return list(items) or None
    if items:
        raise InputError("name items, or choose them by options such as --state, not both; nothing was changed")
    return selection.names(reader, job)
