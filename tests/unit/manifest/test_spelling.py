"""What a program gives as values is read back as the very same values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from batchkiln.core.errors import InputError
from batchkiln.manifest import as_stream, open_manifest

HEADER = {"version": 1, "job": "foxes", "defaults": {"model": "epsilon-2", "mode": "text-to-image"}}
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
PLAIN = TEXTS.filter(lambda text: text.strip() != "")


@given(st.lists(PLAIN, min_size=1, max_size=8), st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.booleans()))
def test_prompts_and_metadata_come_back_as_they_were(prompts: list[str], metadata: dict[str, Any]) -> None:
    """Any printable text, also one that YAML would take for a number, a line end or a key."""
    items = [{"id": f"item-{n}", "prompt": prompt, "metadata": metadata} for n, prompt in enumerate(prompts)]
    try:
        manifest = open_manifest("-", stdin=as_stream(HEADER, items), working_dir=Path())
        read = [placed.spec for placed in manifest.items()]
    except InputError as error:
        reasons = {mistake.reason for mistake in error.mistakes}
        assert all("holds U+" in reason or "metadata" in reason for reason in reasons), reasons
        return

    assert [spec.prompt for spec in read] == prompts


def test_items_are_read_as_they_come() -> None:
    """A generator is not drained before it is needed: a million items are never held."""
    drawn: list[int] = []

    def items() -> Iterator[str]:
        for number in range(100_000):
            drawn.append(number)
            yield f"prompt {number}"

    stream = as_stream({"version": 1}, items())
    stream.read(100)

    assert len(drawn) < 20_000


def test_no_items_is_an_empty_list() -> None:
    """And not a field that holds nothing."""
    assert as_stream({}, []).read() == b"items: []\n"


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), b"x"])
def test_what_json_does_not_hold_is_reported_with_its_item(value: object) -> None:
    """The item is named by its index, and the field in it."""
    with pytest.raises(InputError, match=r"^items\[1\].* cannot be written as JSON"):
        as_stream({}, ["fine", {"metadata": value}]).read()


def test_paths_are_written_as_text() -> None:
    """`inputs` of a program are often paths."""
    assert b'"images/owl.png"' in as_stream({}, [{"inputs": [Path("images/owl.png")]}]).read()
