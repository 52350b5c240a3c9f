"""The firewall before the API."""

import sys

import pytest

from batchkiln_service.transport import edge
from batchkiln_service.transport.edge import EdgeFirewall

MINUTE_MS = 60_000


def test_window_slides_and_is_exact_to_the_millisecond() -> None:
    """A request makes room exactly a minute after it came. Service section 7."""
    firewall = EdgeFirewall(2, MINUTE_MS)

    found = [firewall.admits("a", now_ms) for now_ms in (0, 30_000, 59_999, 60_000, 60_001, 89_999, 90_000)]

    assert found == [True, True, False, True, False, False, True]


def test_addresses_are_counted_apart() -> None:
    """One client's traffic blocks no other address."""
    firewall = EdgeFirewall(1, MINUTE_MS)

    assert firewall.admits("a", 0)
    assert firewall.admits("b", 0)
    assert not firewall.admits("a", 0)


def test_blocked_requests_do_not_lengthen_the_wait() -> None:
    """A client that goes on asking gets through all the same, as soon as its window has room."""
    firewall = EdgeFirewall(1, MINUTE_MS)
    firewall.admits("a", 0)
    for now_ms in range(1000, MINUTE_MS, 1000):
        firewall.admits("a", now_ms)

    assert firewall.admits("a", MINUTE_MS)


def test_addresses_are_forgotten_after_their_minute() -> None:
    """Memory goes with the clients of one minute, not with all that ever came."""
    firewall = EdgeFirewall(120, MINUTE_MS)
    for number in range(5000):
        firewall.admits(f"10.0.{number // 256}.{number % 256}", number * 20)

    assert len(firewall._seen) <= MINUTE_MS // 20 + 1


def test_addresses_beyond_the_bound_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a minute, too, the number of addresses has a bound; the one seen longest ago goes first."""
    monkeypatch.setattr(edge, "MAX_ADDRESSES", 3)
    firewall = EdgeFirewall(1, MINUTE_MS)

    for ip in ("a", "b", "a", "c", "d"):
        firewall.admits(ip, 0)

    assert list(firewall._seen) == ["a", "c", "d"]


def test_lifted_limit_counts_nothing() -> None:
    """A benchmark's millions of requests leave nothing behind."""
    firewall = EdgeFirewall(10**12, MINUTE_MS)
    before = sys.getsizeof(firewall._seen)
    for _ in range(1000):
        firewall.admits("a", 0)

    assert sys.getsizeof(firewall._seen) == before
    assert not firewall._seen


def test_requests_of_before_a_restart_count() -> None:
    """Restarting opens no window."""
    firewall = EdgeFirewall(2, MINUTE_MS)
    firewall.restore([("a", 0), ("a", 50_000)])

    assert not firewall.admits("a", 59_999)
    assert firewall.admits("a", 60_000)
