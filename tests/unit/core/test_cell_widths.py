"""How many columns of a terminal a text takes."""

import pytest
from rich.cells import cell_len

from batchkiln.core.cell_widths import cell_width, elided


@pytest.mark.parametrize(
    "text", ["", "red fox", "日本語", "e\u0301", "한국어", "\N{FULLWIDTH LATIN SMALL LETTER F}", "\N{FOX FACE}…→é"]
)
def test_a_width_is_as_rich_counts_it(text: str) -> None:
    """Tables and lines agree: wide characters take two columns, combining ones none."""
    assert cell_width(text) == cell_len(text)


@pytest.mark.parametrize("text", ["a" * 90, "日本語" * 30, "red fox", "日a本b語c"])
@pytest.mark.parametrize("columns", [1, 2, 7, 8, 40])
def test_an_elided_text_keeps_its_beginning_and_its_end(text: str, columns: int) -> None:
    """It never takes more columns than it may; what fits is left as it is."""
    shown = elided(text, columns)

    begin, _, end = shown.partition("…")
    assert cell_len(shown) <= columns
    assert shown == text or (text.startswith(begin) and text.endswith(end))
    assert (shown == text) is (cell_len(text) <= columns)
