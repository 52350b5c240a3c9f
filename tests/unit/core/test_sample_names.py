"""Splits and names of a dataset: each follows from its item alone."""

from hypothesis import given, strategies as st

from batchkiln.core.sample_names import ITEMS_PER_FOLDER, Splits, media_dir, sample_key, sample_stem

NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("ab.-~2/"), min_size=1, max_size=40
).map(lambda text: text.strip() or "x")


def test_one_split_has_all() -> None:
    """Without shares everything is for training."""
    assert {Splits().split_of(f"item-{number}") for number in range(100)} == {"train"}


def test_splits_are_of_the_asked_size() -> None:
    """A hash spreads the items evenly enough."""
    splits = Splits((("train", 0.9), ("test", 0.1)))

    tests = sum(splits.split_of(f"item-{number}") == "test" for number in range(10_000))

    assert 900 < tests < 1100


def test_a_split_never_changes() -> None:
    """An export of next year must not move an item from test to train: these are facts about the hash."""
    splits = Splits((("train", 0.5), ("test", 0.5)))

    assert [splits.split_of(name) for name in ("red-fox", "owl-ink", "owl.ink", "größe")] == [
        "test",
        "train",
        "test",
        "train",
    ]


def test_the_order_of_splits_makes_no_difference() -> None:
    """A person who names them the other way round means the same dataset."""
    one, other = Splits((("train", 0.7), ("test", 0.3))), Splits((("test", 0.3), ("train", 0.7)))

    assert all(one.split_of(f"{at}") == other.split_of(f"{at}") for at in range(1000))


@given(NAMES, NAMES, st.integers(1, 3), st.integers(1, 3))
def test_no_two_outputs_share_a_name(one: str, other: str, first: int, second: int) -> None:
    """Whatever the ids look like, also like a second output of another item."""
    if (one, first) != (other, second):
        assert sample_stem(one, first) != sample_stem(other, second)
        assert sample_key(one, first) != sample_key(other, second)


@given(NAMES, st.integers(1, 3))
def test_keys_have_no_dots_and_names_no_folders(name: str, output: int) -> None:
    """A dot ends a WebDataset key; a slash would be a folder."""
    assert "." not in sample_key(name, output)
    assert not set("/\\:") & set(sample_key(name, output) + sample_stem(name, output))


def test_plain_ids_are_names_as_they_are() -> None:
    """What needs no change is not changed; a later output cannot be taken for another item."""
    assert (sample_stem("red-fox", 1), sample_key("red-fox", 1), sample_stem("v1.2", 1)) == (
        "red-fox",
        "red-fox",
        "v1.2",
    )
    assert sample_stem("fox", 2).startswith("fox_2~")


def test_folders_are_numbered_from_the_ten_thousandth_on() -> None:
    """Small datasets have no numbered folders; in large ones each has a bound."""
    assert media_dir(ITEMS_PER_FOLDER - 1) == ""
    assert media_dir(ITEMS_PER_FOLDER) == "0001/"
    assert media_dir(999_999) == "0099/"
