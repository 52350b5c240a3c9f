"""The identity of an output across changing links."""

import pytest

from batchkiln.core.output_links import compare, extension_of, free_number, mark_of
from batchkiln.core.responses import OutputLink


def link(url: str, identity: str | None = None) -> OutputLink:
    return OutputLink("image", url, None, identity)


def test_mark_survives_a_new_signature_and_discloses_no_link() -> None:
    """A fresh link of the same file has the same mark, which is a hash (Law 8)."""
    mark = mark_of(link("https://files/a/1.png?sig=one"))

    assert mark == mark_of(link("https://files/a/1.png?sig=two"))
    assert mark != mark_of(link("https://files/a/2.png?sig=one"))
    assert mark.isalnum()
    assert len(mark) == 64


def test_identity_wins_over_the_address() -> None:
    """The id in the record takes precedence over the position."""
    assert mark_of(link("https://files/1", "out-1")) == mark_of(link("https://files/2", "out-1"))
    assert mark_of(link("https://files/1", "out-1")) != mark_of(link("https://files/1", "out-2"))


@pytest.mark.parametrize(
    ("url", "extension"),
    [
        ("https://files/a/Clip.MP4?sig=x.png", "mp4"),
        ("https://files/a.b/clip", None),
        ("https://files/.hidden", None),
        ("https://files/", None),
        ("https://[broken/x.png", None),
        ("/storage/x.tar.gz", "gz"),
    ],
)
def test_extension_is_that_of_the_path(url: str, extension: str | None) -> None:
    """Query and host have dots as well."""
    assert extension_of(link(url)) == extension


def test_links_that_differ_only_in_their_query_are_identified_by_bytes() -> None:
    """Equal marks identify nothing: a saved file may belong to either link."""
    links = [link("https://files/get?file=1"), link("https://files/get?file=2")]

    listing = compare(links, {1: "sha-1"}, {})

    assert [entry.mark for entry in listing.wanted] == [None, None]
    assert listing.unplaced == ("sha-1",)


def test_known_marks_need_no_bytes() -> None:
    """A saved output is not fetched again, at any position."""
    links = [link("https://files/2"), link("https://files/1")]

    listing = compare(links, {1: "sha-1"}, {1: mark_of(links[1])})

    assert [entry.link for entry in listing.wanted] == [links[0]]
    assert listing.unplaced == ()


@pytest.mark.parametrize(
    ("position", "taken", "number"), [(1, set(), 1), (1, {1}, 2), (2, {1}, 2), (1, {1, 2}, 3), (3, {3}, 1)]
)
def test_number_is_the_place_where_that_is_free(position: int, taken: set[int], number: int) -> None:
    """No two outputs of an attempt have one number."""
    assert free_number(position, frozenset(taken)) == number
