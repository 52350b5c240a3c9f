"""The faults of a rehearsal and their rates: faults of the local service, and cut connections."""

import random  # noqa: TID251  drawn from the rehearsal's seed alone, so that it can be repeated
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct

from batchkiln.rehearsal.network import NetworkFault
from batchkiln_service import Endpoint, FaultRule, Misbehaviour

Level = Literal["none", "mild", "rough"]


class Rate(Struct, frozen=True):
    """The percentage of an endpoint's requests that a fault affects, at each level."""

    kind: Misbehaviour
    endpoint: Endpoint
    mild: float
    rough: float
    seconds: float | None = None


RATES: Final = (
    Rate("reply_lost", "create", mild=1, rough=5),
    Rate("reply_lost", "read", mild=0.2, rough=2),
    Rate("reset_before", "any", mild=0.2, rough=2),
    Rate("unavailable", "create", mild=0.5, rough=3),
    Rate("unavailable", "read", mild=0.2, rough=2),
    Rate("throttle", "create", mild=0.5, rough=3, seconds=20),
    Rate("throttle", "read", mild=0.2, rough=1, seconds=20),
    Rate("edge_block", "any", mild=0, rough=0.2),
    Rate("html", "read", mild=0, rough=0.5),
    Rate("cut_body", "download", mild=1, rough=5),
    Rate("storage_unavailable", "download", mild=0.5, rough=3),
    Rate("reset_before", "put", mild=0.5, rough=3),
    Rate("link_dies_early", "poll", mild=0.5, rough=3),
    Rate("fail_generation", "create", mild=1, rough=5),
    Rate("slow_generation", "create", mild=1, rough=3),
    Rate("cancel_generation", "create", mild=0, rough=0.5),
    Rate("stay_pending", "create", mild=0, rough=0.5, seconds=1800),
)
CUT_REQUESTS: Final = {"none": 0.0, "mild": 0.3, "rough": 2.0}
"""Percentage of requests that lose their connection."""

_CUTS: Final[tuple[NetworkFault, ...]] = ("lost", "reset_before", "reset_after", "cut")
_DELAY_SECONDS: Final = 0.02


def fault_rules(level: Level) -> tuple[FaultRule, ...]:
    """Return the local service's faults at a level."""
    if level == "none":
        return ()
    rates = [(rate, rate.mild if level == "mild" else rate.rough) for rate in RATES]
    return tuple(
        FaultRule(kind=rate.kind, endpoint=rate.endpoint, times=None, probability=percent / 100, seconds=rate.seconds)
        for rate, percent in rates
        if percent
    )


class Cut(Struct, frozen=True):
    """A request that lost its connection: how, when, the hash of its API key, and its path."""

    kind: NetworkFault
    at_seconds: float
    key_sha256: str | None
    path: str


class ConnectionCuts:
    """Cuts some of the program's connections, and records which requests were lost."""

    def __init__(self, level: Level, seed: int, *, sender: str) -> None:
        """Cut connections of the node `sender`."""
        self.cuts: list[Cut] = []
        self._chance = random.Random(f"cut connections {seed}")  # noqa: S311  guards nothing
        self._probability = CUT_REQUESTS[level] / 100
        self._sender = sender
        self._head: bytes = b""

    def inspect(self, sender: str, content: bytes) -> None:
        """Inspect bytes that are about to be written; `next_fault` is called for them next."""
        self._head = content.partition(b"\r\n\r\n")[0] if sender == self._sender else b""

    def delay_seconds(self) -> float:
        """Return the network's delay of sent bytes, in seconds."""
        return _DELAY_SECONDS

    def next_fault(self, sender: str, now: float) -> NetworkFault:
        """Draw whether the last inspected request is cut; later bytes of the same request are never cut."""
        line, *headers = self._head.split(b"\r\n")
        words = line.split(b" ")
        if sender != self._sender or not line.endswith(b"HTTP/1.1") or self._chance.random() >= self._probability:
            return "none"
        kind = self._chance.choice(_CUTS)
        self.cuts.append(Cut(kind, now, _key_sha256(headers), words[1].decode("latin-1").partition("?")[0]))
        return kind


def _key_sha256(headers: list[bytes]) -> str | None:
    """Return the hash of the API key in a request's headers; the API key itself is not stored."""
    for header in headers:
        name, _, value = header.partition(b":")
        scheme, _, key = value.strip().partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"bearer":
            return sha256(key.strip()).hexdigest()
    return None
