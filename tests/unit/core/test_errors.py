"""Items in commands that a person is told to type, and lists of mistakes."""

import pytest

from batchkiln.core.errors import Diagnostic, InputError, command_arguments


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


def _sent(number: int, *, reason: str = "was already sent") -> Diagnostic:
    return Diagnostic(f"the item 'fox-{number}' {reason}", "birds.yaml", number, remedy="use a new id")


def test_mistakes_of_one_line_name_it_once() -> None:
    """As those of the rows of a matrix."""
    told = InputError([Diagnostic(f"the item 'fox-{number}' was sent", "birds.yaml", 7) for number in range(5)])

    assert told.paragraphs == ("birds.yaml:7: the item 'fox-0' was sent\n    4 more like this, in line 7",)


def test_many_mistakes_of_one_kind_are_written_out_once() -> None:
    """They differ in place and id only; the lines are named, and a mistake of another kind is not hidden."""
    other = Diagnostic("unknown field `promt`", "birds.yaml", 7)

    told = InputError([*(_sent(number) for number in range(1, 7)), other, _sent(9), *map(_sent, range(11, 15))])

    assert told.paragraphs == (
        (
            "birds.yaml:1: the item 'fox-1' was already sent\n    use a new id\n"
            "    10 more like this, in the lines 2, 3, 4, 5, 6, 9, 11, 12 and 2 more"
        ),
        "birds.yaml:7: unknown field `promt`",
    )
    assert len(told.mistakes) == 12


def test_few_mistakes_of_one_kind_are_all_written_out() -> None:
    """Three are easier to read in full than as a list of lines."""
    told = InputError([_sent(1), _sent(2), _sent(3), _sent(4, reason="is twice there")])

    assert len(told.paragraphs) == 4


def test_an_unfinished_search_for_mistakes_says_so() -> None:
    """Otherwise a corrected manifest surprises with the next kind of mistakes."""
    assert InputError("no job", is_partial=True).paragraphs[-1] == "the rest is checked once this is corrected"
    assert InputError([_sent(1), _sent(2)], is_partial=True).paragraphs[-1].endswith("once these are corrected")
