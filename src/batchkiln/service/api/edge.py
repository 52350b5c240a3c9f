"""The firewall before the API: so many requests a minute from one IP, else an HTML 403. Service section 7."""

from collections import OrderedDict, deque
from collections.abc import Iterable

MAX_ADDRESSES = 10_000  # the least recently seen address is forgotten beyond that
PAGE = "<!doctype html><html><head><title>Blocked</title></head><body><h1>Request blocked</h1></body></html>"


class EdgeFirewall:
    """A sliding log per address. Blocked requests are not counted, so that a waiting client gets through."""

    def __init__(self, limit: int, minute_ms: int) -> None:
        self._limit = limit
        self._minute_ms = minute_ms
        self._seen: OrderedDict[str, deque[int]] = OrderedDict()

    def restore(self, arrivals: Iterable[tuple[str, int]]) -> None:
        """Count requests of before a restart; pairs of address and instant, in order of time."""
        for ip, arrived_at_ms in arrivals:
            self.admits(ip, arrived_at_ms)

    def admits(self, ip: str, now_ms: int) -> bool:
        """Say whether a request may pass, and count it when it may."""
        arrivals = self._seen.setdefault(ip, deque())
        self._seen.move_to_end(ip)
        if len(self._seen) > MAX_ADDRESSES:
            self._seen.popitem(last=False)
        while arrivals and arrivals[0] <= now_ms - self._minute_ms:
            arrivals.popleft()
        if len(arrivals) >= self._limit:
            return False
        arrivals.append(now_ms)
        return True
