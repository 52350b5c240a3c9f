"""The firewall before the API: so many requests a minute from one IP, else an HTML 403. Service section 7."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

MAX_ADDRESSES: Final = 10_000  # the least recently seen address is forgotten beyond that
UNREACHABLE: Final = 1_000_000  # requests a minute; a limit so high is none, and counting for it would only cost memory
PAGE: Final = "<!doctype html><html><head><title>Blocked</title></head><body><h1>Request blocked</h1></body></html>"


class Firewall:
    """A sliding log per address. Blocked requests are not counted, so that a waiting client gets through.

    An address is the one that the connection comes from; headers like X-Forwarded-For are what anybody may write.
    """

    def __init__(self, limit: int, minute_ms: int) -> None:
        self._limit = limit
        self._minute_ms = minute_ms
        self._seen: OrderedDict[str, deque[int]] = OrderedDict()  # the one heard of last is last

    def restore(self, arrivals: Iterable[tuple[str, int]]) -> None:
        """Count requests of before a restart; pairs of address and instant, in order of time."""
        for ip, arrived_at_ms in arrivals:
            self.admits(ip, arrived_at_ms)

    def admits(self, ip: str, now_ms: int) -> bool:
        """Say whether a request may pass, and count it when it may."""
        if self._limit >= UNREACHABLE:
            return True
        self._forget(now_ms - self._minute_ms)
        arrivals = self._seen.setdefault(ip, deque())
        self._seen.move_to_end(ip)
        while arrivals and arrivals[0] <= now_ms - self._minute_ms:
            arrivals.popleft()
        if len(arrivals) >= self._limit:
            return False
        arrivals.append(now_ms)
        return True

    def _forget(self, until_ms: int) -> None:
        """Drop the addresses that have had no request since, and those that are too many."""
        while self._seen:
            ip, arrivals = next(iter(self._seen.items()))
            if len(self._seen) < MAX_ADDRESSES and arrivals and arrivals[-1] > until_ms:
                return
            del self._seen[ip]
