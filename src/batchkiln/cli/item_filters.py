"""The options that choose items of a job: by state, error code, metadata and verdict."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from batchkiln.api.item_selection import selection_of
from batchkiln.core.errors import ExitStatus
from batchkiln.core.states import ItemState

_STATES: Final = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in ItemState]),
    help="Only items in this state; can be repeated.",
)
_CODE: Final = click.option("--code", metavar="CODE", help="Only items with this error code.")
_WHERE: Final = click.option(
    "--where",
    metavar="metadata.KEY=VALUE",
    multiple=True,
    help="Only items with this metadata value; can be repeated with other keys, and all must hold.",
)
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
