"""Items in commands that a person is told to type."""

import pytest

from batchkiln.core.errors import command_arguments


@pytest.mark.parametrize(
    ("job", "item", "typed"),
    [
        ("birds", "fox", "birds fox"),
        ("birds", "a fox", "birds 'a fox'"),
        ("birds", "-fox", "-- birds -fox"),
        ("-birds", "fox", "-- -birds fox"),
    ],
)
def test_no_name_is_taken_for_an_option(job: str, item: str, typed: str) -> None:
    """A job may begin with a dash as well as an item."""
    assert command_arguments(job, item) == typed
