"""Signed links."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, strategies as st
from multidict import MultiDict

from batchkiln_service.transport.links import Links, Method, Verdict

PATH = "/storage/outputs/gen_1/0.png"
LINKS = Links(b"secret")


def judged(link: str, *, now_ms: int = 0, bound: str = "", method: Method = "GET", links: Links = LINKS) -> Verdict:
    parts = urlsplit(link)
    return links.check(method, parts.path, MultiDict(parse_qsl(parts.query)), now_ms=now_ms, bound=bound)


def test_link_is_good_until_it_expires() -> None:
    """The instant of expiry is the first at which it is dead. Service section 2.1."""
    link = LINKS.sign("GET", PATH, 1_000)

    assert (judged(link, now_ms=999), judged(link, now_ms=1_000)) == ("good", "expired")


def test_links_of_one_instant_differ() -> None:
    """Each read gives a fresh URL. Service section 2.1."""
    assert LINKS.sign("GET", PATH, 1_000) != LINKS.sign("GET", PATH, 1_000)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("expires=1000", "expires=9999"),
        ("expires=1000", "expires=01000"),
        ("expires=1000", "expires=%D9%A1000"),
        ("expires=1000", f"expires={'9' * 5000}"),
        ("expires=1000", "expires="),
        ("expires=1000", "expires=-1"),
        ("expires=1000&", ""),
        ("expires=1000", "expires=1000&expires=1000"),
        ("expires=1000", "expires=1000&more=1"),
        ("gen_1", "gen_2"),
        ("nonce=", "nonce=0"),
        ("signature=", "signature=%ED%A0%80"),
        ("signature=", "signature=a&signature="),
    ],
)
def test_edited_link_is_forged(old: str, new: str) -> None:
    """Every part of a link is signed, and nothing is added, left out or said twice."""
    link = LINKS.sign("GET", PATH, 1_000)
    assert judged(link) == "good"

    assert judged(link.replace(old, new)) == "forged"


def test_link_is_bound_to_method_headers_and_secret() -> None:
    """An upload's link is good for its own headers, by PUT, at its own service."""
    link = LINKS.sign("PUT", PATH, 1_000, "Content-Length: 5")

    assert judged(link, method="PUT", bound="Content-Length: 5") == "good"
    assert judged(link, method="PUT", bound="Content-Length: 6") == "forged"
    assert judged(link, method="GET", bound="Content-Length: 5") == "forged"
    assert judged(link, method="PUT", bound="Content-Length: 5", links=Links(b"other")) == "forged"


def test_bare_path_is_no_link() -> None:
    """Without a signature nothing is served."""
    assert judged(PATH) == "forged"


NAMES = st.sampled_from(["expires", "nonce", "signature"]) | st.text(max_size=3)
VALUES = st.text(st.characters(exclude_categories=())) | st.integers().map(str)


@pytest.mark.long
@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_any_query_has_a_verdict(pairs: list[tuple[str, str]]) -> None:
    """No query makes it raise, also with lone surrogates, and none that was not signed is good."""
    assert LINKS.check("GET", PATH, MultiDict(pairs), now_ms=0) == "forged"
