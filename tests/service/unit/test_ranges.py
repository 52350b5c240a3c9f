"""What a GET or HEAD of a file is answered with."""

from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st
from multidict import CIMultiDict

from batchkiln_service.storage.ranges import FileFacts, Sending, decide

ETAG = '"0123abcd"'
MODIFIED = "Mon, 21 Sep 2026 00:00:10 GMT"
EARLIER = "Mon, 21 Sep 2026 00:00:09 GMT"
LATER = "Mon, 21 Sep 2026 00:00:11 GMT"
FACTS = FileFacts(size_bytes=1000, etag=ETAG, modified_at_ms=1_789_948_810_999)
WHOLE = Sending(200, 0, 1000)
CONDITIONS = ["Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"]


def decided(headers: Mapping[str, str], *, method: str = "GET") -> Sending:
    return decide(method, CIMultiDict(headers), FACTS)


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("bytes=0-", Sending(206, 0, 1000)),
        ("bytes=100-", Sending(206, 100, 1000)),
        ("bytes=0-0", Sending(206, 0, 1)),
        ("bytes=999-999", Sending(206, 999, 1000)),
        ("bytes=990-2000", Sending(206, 990, 1000)),
        ("bytes=-1", Sending(206, 999, 1000)),
        ("bytes=-1000", Sending(206, 0, 1000)),
        ("bytes=-5000", Sending(206, 0, 1000)),
        ("Bytes= 7-9 ", Sending(206, 7, 10)),
        ("bytes=0000000000000000000000000000000000007-9", Sending(206, 7, 10)),
        (f"bytes=7-{'9' * 5000}", Sending(206, 7, 1000)),
        ("bytes=1000-", Sending(416)),
        ("bytes=1000-1001", Sending(416)),
        ("bytes=-0", Sending(416)),
        (f"bytes={'9' * 5000}-", Sending(416)),
    ],
)
def test_single_range_is_cut_to_the_file(asked: str, sent: Sending) -> None:
    """First and last byte, to the end, from the end; beyond the end there is nothing."""
    assert decided({"Range": asked}) == sent


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5-3",
        "bytes=a-b",
        "bytes=1-2-3",
        "bytes=\u0661-",
        "rows=0-1",
        "bytes=0x1-",
    ],
)
def test_range_that_cannot_be_read_is_ignored(asked: str) -> None:
    """Nonsense gets the whole file, as if nothing had been asked for."""
    assert decided({"Range": asked}) == WHOLE


def test_several_ranges_get_the_whole_file() -> None:
    """A multipart reply is never made, whether they come in one header or in two."""
    twice = CIMultiDict([("Range", "bytes=0-1"), ("Range", "bytes=4-5")])

    assert decided({"Range": "bytes=0-1, 4-5"}) == WHOLE
    assert decide("GET", twice, FACTS) == WHOLE


def test_range_means_nothing_to_head() -> None:
    """RFC 9110 defines ranges for GET alone."""
    assert decided({"Range": "bytes=0-1"}, method="HEAD") == WHOLE


@pytest.mark.parametrize(
    ("condition", "sent"),
    [
        (ETAG, Sending(206, 5, 1000)),
        (f" {ETAG} ", Sending(206, 5, 1000)),
        (f"W/{ETAG}", WHOLE),
        ('"another"', WHOLE),
        (MODIFIED, Sending(206, 5, 1000)),
        (LATER, WHOLE),
        (EARLIER, WHOLE),
        ("yesterday", WHOLE),
        ("", WHOLE),
    ],
)
def test_range_applies_to_the_same_file_only(condition: str, sent: Sending) -> None:
    """If-Range is the very ETag or the very date; otherwise the whole file comes, so that no file is mixed of two."""
    assert decided({"Range": "bytes=5-", "If-Range": condition}) == sent


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"If-None-Match": ETAG}, Sending(304)),
        ({"If-None-Match": f"W/{ETAG}"}, Sending(304)),
        ({"If-None-Match": f'"a", {ETAG}'}, Sending(304)),
        ({"If-None-Match": "*"}, Sending(304)),
        ({"If-None-Match": '"a"'}, WHOLE),
        ({"If-Modified-Since": MODIFIED}, Sending(304)),
        ({"If-Modified-Since": LATER}, Sending(304)),
        ({"If-Modified-Since": EARLIER}, WHOLE),
        ({"If-Modified-Since": "Mon, 99 Foo 2026"}, WHOLE),
        ({"If-None-Match": '"a"', "If-Modified-Since": LATER}, WHOLE),
        ({"If-None-Match": ETAG, "Range": "bytes=5-"}, Sending(304)),
    ],
)
def test_file_that_the_client_has_is_not_sent(headers: Mapping[str, str], sent: Sending) -> None:
    """304; the ETag counts before the date, and both before a range."""
    assert decided(headers) == sent
    assert sent.status != 304 or decided(headers, method="HEAD") == sent


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"If-Match": ETAG}, WHOLE),
        ({"If-Match": "*"}, WHOLE),
        ({"If-Match": f'"a", {ETAG}', "Range": "bytes=5-"}, Sending(206, 5, 1000)),
        ({"If-Match": '"a"'}, Sending(412)),
        ({"If-Match": f"W/{ETAG}, "}, Sending(412)),
        ({"If-Match": ""}, Sending(412)),
        ({"If-Match": '"a"', "If-None-Match": ETAG}, Sending(412)),
        ({"If-Unmodified-Since": MODIFIED}, WHOLE),
        ({"If-Unmodified-Since": EARLIER}, Sending(412)),
        ({"If-Unmodified-Since": "never"}, WHOLE),
        ({"If-Match": ETAG, "If-Unmodified-Since": EARLIER}, WHOLE),
    ],
)
def test_another_file_than_the_one_meant_is_not_sent(headers: Mapping[str, str], sent: Sending) -> None:
    """412, before anything else is looked at; a weak ETag is never a match."""
    assert decided(headers) == sent


@given(st.dictionaries(st.sampled_from(CONDITIONS), st.text()), st.sampled_from(["GET", "HEAD"]))
def test_whatever_is_asked_has_an_answer(headers: dict[str, str], method: str) -> None:
    """No header makes it raise, and a part always lies within the file."""
    sent = decided(headers, method=method)

    if sent.has_bytes:
        assert 0 <= sent.start < sent.stop <= FACTS.size_bytes
