"""The firewall before the API."""

import sys

import pytest

from batchkiln_service.transport import firewall
from batchkiln_service.transport.firewall import Firewall

MINUTE_MS = 60_000


def test_window_slides_and_is_exact_to_the_millisecond() -> None:
    """A request makes room exactly a minute after it came. Service section 7."""
    wall = Firewall(2, MINUTE_MS)

    found = [wall.admits("a", now_ms) for now_ms in (0, 30_000, 59_999, 60_000, 60_001, 89_999, 90_000)]

    assert found == [True, True, False, True, False, False, True]


def test_addresses_are_counted_apart() -> None:
    """One client's traffic blocks no other address."""
    wall = Firewall(1, MINUTE_MS)

    assert wall.admits("a", 0)
    assert wall.admits("b", 0)
    assert not wall.admits("a", 0)


def test_blocked_requests_do_not_lengthen_the_wait() -> None:
    """A client that goes on asking gets through all the same, as soon as its window has room."""
    wall = Firewall(1, MINUTE_MS)
    wall.admits("a", 0)
    for now_ms in range(1000, MINUTE_MS, 1000):
        wall.admits("a", now_ms)

    assert wall.admits("a", MINUTE_MS)


def test_addresses_are_forgotten_after_their_minute() -> None:
    """Memory goes with the clients of one minute, not with all that ever came."""
    wall = Firewall(120, MINUTE_MS)
    for number in range(5000):
        wall.admits(f"10.0.{number // 256}.{number % 256}", number * 20)

    assert len(wall._seen) <= MINUTE_MS // 20 + 1


def test_addresses_beyond_the_bound_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a minute, too, the number of addresses has a bound; the one seen longest ago goes first."""
    monkeypatch.setattr(firewall, "MAX_ADDRESSES", 3)
    wall = Firewall(1, MINUTE_MS)

    for ip in ("a", "b", "a", "c", "d"):
        wall.admits(ip, 0)

    assert list(wall._seen) == ["a", "c", "d"]


def test_lifted_limit_counts_nothing() -> None:
    """A benchmark's millions of requests leave nothing behind."""
    wall = Firewall(10**12, MINUTE_MS)
    before = sys.getsizeof(wall._seen)
    for _ in range(1000):
        wall.admits("a", 0)

    assert sys.getsizeof(wall._seen) == before
    assert not wall._seen


def test_requests_of_before_a_restart_count() -> None:
    """Restarting opens no window."""
    wall = Firewall(2, MINUTE_MS)
    wall.restore([("a", 0), ("a", 50_000)])

    assert not wall.admits("a", 59_999)
    assert wall.admits("a", 60_000)
