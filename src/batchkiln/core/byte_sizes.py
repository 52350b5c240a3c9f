"""The one spelling of byte sizes in everything that a person reads."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB")
_KIBI: Final = 1024


def format_size(size_bytes: int) -> str:
    """Return a size in the largest unit that it reaches, with one decimal where it is not whole: `1.5 KiB`."""
    amount, unit = float(size_bytes), 0
    while round(amount, 1) >= _KIBI and unit < len(_UNITS) - 1:
        amount, unit = amount / _KIBI, unit + 1
    return f"{amount:,.1f}".removesuffix(".0") + f" {_UNITS[unit]}"
