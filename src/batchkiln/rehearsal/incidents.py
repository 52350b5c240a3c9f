"""The incidents of a rehearsal, counted from the service's request log, and how each was resolved.

A failed request is resolved when the next request of its kind with the same API key succeeds.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field

from batchkiln.core.states import ItemState
from batchkiln.store import JobSummary
from batchkiln_service import FaultCount, LoggedRequest

ENDPOINTS: Final = {
    "/quotes": "quote",
    "/videos": "create",
    "/images": "create",
    "/uploads": "upload",
    "/uploads/complete": "complete",
    "/models": "models",
    "/credits/balance": "balance",
    "/openapi.json": "openapi",
}
NEVER: Final = "never succeeded"
_POLL: Final = "poll"
_STORAGE: Final = {"/storage/outputs/": "download", "/storage/uploads/": "put"}
# These faults affect the generation or its link and leave the request alone.
_SURVIVED: Final = {
    "fail_generation": "refunded, tried again",
    "cancel_generation": "tried again",
    "stay_pending": "waited for",
    "slow_generation": "waited for",
    "link_dies_early": "downloaded with a fresh link",
}
OF_GENERATIONS: Final = frozenset(_SURVIVED)
_ASKED_TO_WAIT: Final = frozenset({"throttle", "unavailable", "edge_block"})
_ENDINGS: Final = {"create": "sent again", "poll": "polled again", "models": "polled again", "quote": "asked again"}
_OK, _REDIRECT = 200, 300


class Incident(Struct, frozen=True):
    """One kind of fault at an endpoint: how often it occurred, and how often it was resolved in each way."""

    kind: str
    endpoint: str
    times: int
    endings: dict[str, int]


class LostRequest(Struct, frozen=True):
    """A request whose connection was cut; the service may not have received it."""

    at_ms: int
    key_sha256: str | None
    path: str
    kind: str


class IncidentLog(Struct):
    """The incidents found so far; `generations` lists those affected by a fault, by kind and endpoint."""

    endings: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    generations: list[tuple[str, str]] = field(default_factory=list)
    stored: Counter[tuple[str, str]] = field(default_factory=Counter)  # faults of file transfers, by kind and endpoint

    @property
    def affected_generations(self) -> list[str]:
        """The ids of the generations that a fault affected."""
        return [generation_id for _, generation_id in self.generations]

    def add_generations(self, states: Mapping[str, ItemState]) -> None:
        """Count the ends of the affected generations, by the states of their items."""
        for kind, generation_id in self.generations:
            endpoint = _POLL if kind == "link_dies_early" else "create"
            state = states.get(generation_id)
            ending = _SURVIVED[kind] if state is ItemState.DONE else f"item {state or 'unknown'}"
            self.endings[kind, endpoint, ending] += 1

    def add_stored(self, faults: Iterable[FaultCount], jobs: Iterable[JobSummary]) -> None:
        """Count the ends of file transfers.

        The service does not log them. They were repeated until the file was complete, unless an item's state shows
        the opposite.
        """
        expired = sum(job.items[ItemState.EXPIRED] + job.items[ItemState.DOWNLOADING] for job in jobs)
        ending = f"downloaded again, but {expired:,} too late" if expired else "fetched again"
        for fault in faults:
            if fault.endpoint in _STORAGE.values():
                self.stored[fault.kind, fault.endpoint] += fault.struck
        for (kind, endpoint), times in self.stored.items():
            self.endings[kind, endpoint, ending if endpoint == "download" else "sent again"] += times

    def by_kind(self) -> list[Incident]:
        """Return each kind of incident once, the most frequent first."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for (kind, endpoint, ending), times in self.endings.items():
            found.setdefault((kind, endpoint), Counter())[ending] += times
        every = [
            Incident(kind, endpoint, ended.total(), dict(ended.most_common()))
            for (kind, endpoint), ended in found.items()
        ]
        return sorted(every, key=lambda failure: (-failure.times, failure.kind, failure.endpoint))


def endpoint_of(path: str) -> str:
    """Return the endpoint of a path, from the log or from a request."""
    for start, endpoint in _STORAGE.items():
        if path.startswith(start):
            return endpoint
    path = path.removeprefix("/api/v1")
    return _POLL if path.startswith("/generations/") else ENDPOINTS.get(path, path)


def read_incidents(log: Iterable[LoggedRequest], lost: Iterable[LostRequest]) -> IncidentLog:
    """Return the incidents in the request log and the lost requests; both must be in order of time."""
    incident_log = IncidentLog()
    waiting: dict[str, deque[tuple[str, str | None]]] = {}
    cut = deque(lost)
    for seen in log:
        while cut and cut[0].at_ms <= seen.at_ms:
            _add_lost(incident_log, waiting, cut.popleft())
        endpoint = endpoint_of(seen.path)
        for fault in seen.faults:
            if fault in OF_GENERATIONS and seen.generation_id is not None:
                incident_log.generations.append((fault, seen.generation_id))
        failure = _failure_of(seen)
        if failure is not None:
            waiting.setdefault(endpoint, deque()).append((failure, seen.key_sha256))
        elif endpoint in waiting:
            _resolve(incident_log, waiting, endpoint, seen)
    for left in cut:
        _add_lost(incident_log, waiting, left)
    for endpoint, failures in waiting.items():
        incident_log.endings.update((kind, endpoint, NEVER) for kind, _ in failures)
    return incident_log


def _add_lost(
    incident_log: IncidentLog, waiting: dict[str, deque[tuple[str, str | None]]], request: LostRequest
) -> None:
    endpoint = endpoint_of(request.path)
    if endpoint in _STORAGE.values():  # the service does not log these
        incident_log.stored[f"connection_{request.kind}", endpoint] += 1
    else:
        waiting.setdefault(endpoint, deque()).append((f"connection_{request.kind}", request.key_sha256))


def _failure_of(seen: LoggedRequest) -> str | None:
    """Return why a request failed; None if it succeeded."""
    faults = [fault for fault in seen.faults if fault not in OF_GENERATIONS]
    if faults:
        return faults[0]
    return None if _OK <= seen.status < _REDIRECT else f"refused: {seen.code or seen.status}"


def _resolve(
    incident_log: IncidentLog, waiting: dict[str, deque[tuple[str, str | None]]], endpoint: str, seen: LoggedRequest
) -> None:
    """Count the waiting incidents of an endpoint that this successful request resolves."""
    still: deque[tuple[str, str | None]] = deque()
    for kind, key in waiting.pop(endpoint):
        if key in {None, seen.key_sha256} or seen.key_sha256 is None:
            incident_log.endings[kind, endpoint, _ending(kind, endpoint, seen)] += 1
        else:
            still.append((kind, key))
    if still:
        waiting[endpoint] = still


def _ending(kind: str, endpoint: str, seen: LoggedRequest) -> str:
    if endpoint == "create" and seen.is_replay:
        return "replayed"
    again = _ENDINGS.get(endpoint, "sent again")
    return f"waited, {again}" if kind in _ASKED_TO_WAIT else again


def lost_requests(cuts: Iterable[tuple[str, float, str | None, str]], *, starts_at_ms: int) -> Iterator[LostRequest]:
    """Yield the network's cut requests as lost requests with the service's instants."""
    for kind, at_seconds, key_sha256, path in cuts:
        yield LostRequest(starts_at_ms + round(at_seconds * 1000), key_sha256, path, kind)
