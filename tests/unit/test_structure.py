"""Bounds of how the program is built: each is lowered when the figure falls, and never raised.

`python benchmarks/structure.py --names` shows what is behind the figures.
"""

import pytest

from support import source_figures as source

MOST_DOUBLED_NAMES = 2
MOST_DOUBLED_NAMES_OF_THE_SERVICE = 0
MOST_MODULES_WITH_A_CONNECTION = 0
MOST_METHODS_OF_THE_PORT = 14


def test_few_modules_share_a_name() -> None:
    """A name that two modules share has to be looked up by its package."""
    assert len(source.doubled_names(source.product_modules())) <= MOST_DOUBLED_NAMES
    assert len(source.doubled_names(source.service_modules())) <= MOST_DOUBLED_NAMES_OF_THE_SERVICE


def test_few_modules_outside_the_store_know_a_connection() -> None:
    """All that the rest of the program needs of the database comes through the store's door."""
    assert len(source.connection_modules()) <= MOST_MODULES_WITH_A_CONNECTION


def test_the_port_of_the_queue_fits_on_a_screen() -> None:
    """What the worker asks of the queue."""
    assert len(source.port_methods()) <= MOST_METHODS_OF_THE_PORT


@pytest.mark.parametrize(
    ("line", "knows"),
    [
        ("import sqlite3", True),
        ("from sqlite3 import Row", True),
        ("import aiosqlite.core", True),
        ("from batchkiln.shelf.rows import read", True),
        ("import batchkiln.shelf.rows", True),
        ("from batchkiln.shelf import WriteConnection", True),
        ("from batchkiln.shelf import Store", False),
        ("from batchkiln.core import states", False),
        ("from batchkiln.shelfmark import rows", False),
    ],
)
def test_a_module_that_knows_a_connection_is_found(line: str, knows: bool) -> None:  # noqa: FBT001  a case's verdict
    """Imports of a driver, of the store's inside, and of a connection through the door are seen, where nested too."""
    assert source.knows_a_connection(f"def use() -> None:\n    {line}\n", store="batchkiln.shelf") is knows


def test_code_is_counted_without_comments_and_docstrings() -> None:
    """A statement counts with each of its lines; prose counts nothing."""
    text = '"""Prose.\n\nMore.\n"""\n\n# why\nNAMES = (\n    "a",\n)\n"""What they are."""\n'

    assert source.code_lines(text) == 3
