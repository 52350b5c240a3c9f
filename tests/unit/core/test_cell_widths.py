"""How many columns of a terminal a text takes."""

import pytest
from rich.cells import cell_len

from batchkiln.core.cell_widths import cell_width


@pytest.mark.parametrize(
    "text", ["", "red fox", "日本語", "e\u0301", "한국어", "\N{FULLWIDTH LATIN SMALL LETTER F}", "\N{FOX FACE}…→é"]
)
def test_a_width_is_as_rich_counts_it(text: str) -> None:
    """Tables and lines agree: wide characters take two columns, combining ones none."""
    assert cell_width(text) == cell_len(text)
