"""The address of a gallery says all that a page, its stream and its forms need."""

from urllib.parse import urlencode

import pytest
from aiohttp import web

from batchkiln.api import Sorting
from batchkiln.core.states import ItemState
from batchkiln.dashboard.gallery import View, view_of

WORDS = {"state": "done", "text": "red  fox & <b>", "model": "epsilon-2", "code": "a b", "verdict": "kept"}


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"after": "7"},
        {"before": "7", "large": "1"},
        {"meta": "species=red fox", "sort": "newest"},
        {"meta": ["species", "light=dusk, fog & a=b"], "sort": "reverse", "after": "12", "large": ""},
        WORDS,
    ],
)
def test_address_of_a_view_means_the_same_view(query: dict[str, str | list[str]]) -> None:
    """Also after it went through a form or the address of a stream."""
    view = view_of("birds", urlencode(query, doseq=True))

    assert view_of("birds", view.query) == view


def test_view_reads_every_filter() -> None:
    """Words are searched one by one, so spaces between them mean nothing."""
    view = view_of("birds", urlencode(WORDS | {"meta": " species = owl ", "sort": "newest"}))

    assert (view.wanted.state, view.wanted.text, view.wanted.verdict) == (ItemState.DONE, "red fox & <b>", "kept")
    assert (view.wanted.metadata, view.sorting) == ((("species", "owl"),), Sorting.NEWEST)


def test_conditions_on_metadata_must_all_hold() -> None:
    """As those of the commands; of two on one field, which no item can match, the later one holds."""
    view = view_of("birds", "meta=species%3Dowl&meta=light&meta=&meta=species%3Dfox")

    assert view.wanted.metadata == (("species", "fox"), ("light", None))
    assert view.meta == ["species=fox", "light"]
    assert view.url() == "/jobs/birds/items?meta=species%3Dfox&meta=light"


def test_several_conditions_in_one_field_are_noticed() -> None:
    """Their spaces and signs may well be those of one value, so the page only says how the field is read."""
    view = view_of("birds", urlencode({"meta": ["light=dusk bird=wren", "place=a = b", "size=a=b"]}, doseq=True))

    assert view.run_together == ["light=dusk bird=wren"]


def test_first_page_of_a_search_has_no_place() -> None:
    """A changed filter begins anew."""
    view = view_of("birds", "text=fox&after=7&large=1")

    assert view.url() == "/jobs/birds/items?text=fox"
    assert view.url(state=ItemState.HELD) == "/jobs/birds/items?state=held&text=fox"
    assert view.here == "/jobs/birds/items?text=fox&after=7&large=1"


@pytest.mark.parametrize(
    "query", [{"state": "x"}, {"sort": "x"}, {"verdict": "x"}, {"after": "x"}, {"before": "-1"}, {"after": "9" * 19}]
)
def test_mistyped_address_is_refused(query: dict[str, str]) -> None:
    """And nothing of it is repeated."""
    with pytest.raises(web.HTTPBadRequest):
        view_of("birds", urlencode(query))


def test_empty_view_searches_everything() -> None:
    """By the index alone."""
    assert view_of("birds", "text=++&state=&meta=") == View("birds", view_of("birds", "").wanted)
    assert not view_of("birds", "text=++").wanted.is_by_content
