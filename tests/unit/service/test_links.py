"""Signed links."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from batchkiln.service.storage.links import Links, Method, Verdict

PATH = "/storage/outputs/gen_1/0.png"
LINKS = Links(b"secret")


def judged(link: str, *, now_ms: int = 0, bound: str = "", method: Method = "GET", links: Links = LINKS) -> Verdict:
    parts = urlsplit(link)
    return links.check(method, parts.path, dict(parse_qsl(parts.query)), now_ms=now_ms, bound=bound)


def test_link_is_good_until_it_expires() -> None:
    """The instant of expiry is the first at which it is dead. Service section 2.1."""
    link = LINKS.sign("GET", PATH, 1_000)

    assert (judged(link, now_ms=999), judged(link, now_ms=1_000)) == ("good", "expired")


def test_links_of_one_instant_differ() -> None:
    """Each read gives a fresh URL. Service section 2.1."""
    assert LINKS.sign("GET", PATH, 1_000) != LINKS.sign("GET", PATH, 1_000)


@pytest.mark.parametrize(("old", "new"), [("expires=1000", "expires=9999"), ("gen_1", "gen_2"), ("nonce=", "nonce=0")])
def test_edited_link_is_forged(old: str, new: str) -> None:
    """Every part of a link is signed."""
    assert judged(LINKS.sign("GET", PATH, 1_000).replace(old, new)) == "forged"


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
