"""The options that choose items of a job: by state, error code, metadata and verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Final, Literal

import click

from batchkiln.api import Filter, Reader
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.core.states import ItemState

_PREFIX: Final = "metadata."

Verdicts = Literal["kept", "dropped", "unreviewed"]


@dataclass(frozen=True, slots=True)
class ItemSelection:
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


_STATES: Final = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in ItemState]),
    help="Only items in this state; can be repeated.",
)
_CODE: Final = click.option("--code", metavar="CODE", help="Only items with this error code.")
_WHERE: Final = click.option("--where", metavar="metadata.KEY=VALUE", help="Only items with this metadata value.")
_VERDICTS: Final = (
    click.option("--kept", "verdict", flag_value="kept", help="Only items that a person kept."),
    click.option("--dropped", "verdict", flag_value="dropped", help="Only items that a person dropped."),
    click.option("--unreviewed", "verdict", flag_value="unreviewed", help="Only done items without a verdict."),
)


def item_filters(*, of_files: bool = False) -> Callable[[Callable[..., ExitStatus]], Callable[..., ExitStatus]]:
    """Decorate a command's function: it receives the options as `selection`.

    With `of_files`, only the options that apply to done items.
    """
    options = (_WHERE, *_VERDICTS) if of_files else (_STATES, _CODE, _WHERE, *_VERDICTS)

    def decorate(body: Callable[..., ExitStatus]) -> Callable[..., ExitStatus]:
        @wraps(body)
        def call(*args: Any, **kwargs: Any) -> ExitStatus:  # noqa: ANN401  the command's own
            given = {name: kwargs.pop(name, None) for name in ("states", "code", "where", "verdict")}
            return body(*args, selection=selection_of(**given), **kwargs)

        for option in reversed(options):
            option(call)
        return call

    return decorate


def selection_of(
    states: Sequence[str] | None, code: str | None, where: str | None, verdict: Verdicts | None
) -> ItemSelection:
    """Return the selection of the options' values. Raise `InputError` for a condition that is not understood."""
    key = value = None
    if where is not None:
        key, separator, value = where.removeprefix(_PREFIX).partition("=")
        if not where.startswith(_PREFIX) or not separator or not key:
            raise InputError(f"--where {where}: write metadata.KEY=VALUE, for example metadata.species=fox")
    chosen = tuple(ItemState(state) for state in dict.fromkeys(states or ()))
    return ItemSelection(chosen, Filter(code=code, key=key, value=value, verdict=verdict))


def names_of(reader: Reader, job: str, items: Sequence[str], selection: ItemSelection) -> list[str] | None:
    """Return the items that a person named or chose by options; None for neither. Raise `InputError` for both."""
    if not selection:
        return list(items) or None
    if items:
        raise InputError("name items, or choose them by options such as --state, not both; nothing was changed")
    return selection.names(reader, job)
