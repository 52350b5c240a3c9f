"""The selection of a few items: a function of the job's items alone."""

from collections.abc import Sequence

import pytest

from batchkiln.core.selection import Selectable, Selection


def items(*names: str, priorities: Sequence[int] = ()) -> list[Selectable]:
    order = [*priorities, *[0] * (len(names) - len(priorities))]
    return [Selectable(number, name, 1, order[number - 1], "queued") for number, name in enumerate(names, 1)]


def chosen(selection: Selection, found: list[Selectable]) -> set[str]:
    return {item.name for item in selection.chosen(found)}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("fox-*",), {"fox-1", "fox-2"}),
        (("*-1",), {"fox-1", "owl-1"}),
        (("owl-?", "fox-1"), {"owl-1", "fox-1"}),
        (("fox",), set()),
        (("FOX-*",), set()),
        (("[fo]*-1",), {"fox-1", "owl-1"}),
    ],
)
def test_patterns_match_whole_ids(patterns: tuple[str, ...], expected: set[str]) -> None:
    """As in a shell, whatever the case of the file system; several patterns add up."""
    assert chosen(Selection(patterns), items("fox-1", "fox-2", "owl-1")) == expected


def test_limit_takes_the_first_in_the_order_of_sending() -> None:
    """By priority, then by the manifest's order (contract, section 7)."""
    assert chosen(Selection(limit=2), items("a", "b", "c", priorities=(0, 0, 5))) == {"c", "a"}


def test_a_sample_is_the_same_every_time() -> None:
    """The same command selects the same items after a crash; another seed selects others."""
    many = items(*(f"item-{number}" for number in range(1000)))

    first, again, other = (chosen(Selection(sample=20, seed=seed), many) for seed in (1, 1, 2))

    assert len(first) == 20
    assert first == again != other


def test_a_new_item_changes_a_sample_by_one_at_most() -> None:
    """A manifest that grows does not draw anew."""
    many = items(*(f"item-{number}" for number in range(1000)))

    before, after = (chosen(Selection(sample=20), found) for found in (many[:-1], many))

    assert len(before - after) <= 1


def test_the_options_narrow_one_another() -> None:
    """The pattern first, then the sample, then the limit."""
    many = items(*(f"{kind}-{number}" for kind in ("fox", "owl") for number in range(100)))

    sampled = chosen(Selection(("fox-*",), sample=10), many)
    first = chosen(Selection(("fox-*",), sample=10, limit=3), many)

    assert len(sampled) == 10
    assert len(first) == 3
    assert first < sampled


def test_without_options_there_is_no_selection() -> None:
    """A seed alone selects nothing."""
    assert not Selection(seed=3)
    assert Selection(limit=1)
