"""The short texts by which a Python shell and a notebook show the results of the Python interface."""

from collections.abc import Iterable
from typing import Final

_LONG: Final = 200


class Shown:
    """A value with a one-line `repr`, and a small table in a notebook.

    The fields stay as they are; only the display is short. It stands before `Struct`, which has a `repr` of its own.
    """

    __slots__ = ()

    def _shown(self) -> Iterable[tuple[str, object]]:
        """Return names and values for display. An empty text, None and an empty sequence are left out."""
        raise NotImplementedError

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {text}" for name, text in self.__rich_repr__())
        return f"<{type(self).__name__} {parts}>"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        """Return the names and texts that rich shows; of a struct, it does not ask for the `repr`."""
        return [(name, _text(value, "; ")) for name, value in self._shown() if _is_said(value)]

    def _repr_html_(self) -> str:
        """Return the table that IPython and Jupyter show."""
        from html import escape  # noqa: PLC0415  only a notebook needs it

        rows = (
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{'<br>'.join(map(escape, _text(value, _BREAK).split(_BREAK)))}</td></tr>"
            for name, value in self._shown()
            if _is_said(value)
        )
        return f"<table>{''.join(rows)}</table>"


_BREAK: Final = "\n"


def _is_said(value: object) -> bool:
    return value is not None and value not in ("", (), [])


def _text(value: object, between: str) -> str:
    """Return a value as text. The parts of a sequence, such as warnings, are joined; another long text is cut."""
    if isinstance(value, tuple | list):
        return between.join(map(_whole, value))
    text = _whole(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def _whole(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
