"""The firewall before the API: limits the requests per minute of each IP address, by an HTML 403. Service section 7."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

MAX_ADDRESSES: Final = 10_000  # the least recently seen address is dropped beyond this
UNREACHABLE: Final = 1_000_000  # a limit this high is treated as none, to save memory
PAGE: Final = "<!doctype html><html><head><title>Blocked</title></head><body><h1>Request blocked</h1></body></html>"


class Firewall:
    """A sliding log per IP address. Blocked requests are not counted, so that a waiting client gets through.

    The address is that of the connection; headers such as X-Forwarded-For are ignored, because anybody can send them.
    """

    def __init__(self, limit: int, minute_ms: int) -> None:
        self._limit = limit
        self._minute_ms = minute_ms
        self._seen: OrderedDict[str, deque[int]] = OrderedDict()  # most recently seen last

    def restore(self, arrivals: Iterable[tuple[str, int]]) -> None:
        """Count requests from before a restart: pairs of address and instant, oldest first."""
        for ip, arrived_at_ms in arrivals:
            self.admits(ip, arrived_at_ms)

    def reset(self) -> None:
        """Forget all earlier requests, as after a first start."""
        self._seen.clear()

    def admits(self, ip: str, now_ms: int) -> bool:
        """Return whether a request may pass, and count it if so."""
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
        """Drop addresses without a request in the last minute, and those beyond the maximum."""
        while self._seen:
            ip, arrivals = next(iter(self._seen.items()))
            if len(self._seen) < MAX_ADDRESSES and arrivals and arrivals[-1] > until_ms:
                return
            del self._seen[ip]
