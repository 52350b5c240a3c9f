"""Incidents are read from the service's log: by kind, by endpoint, and by how each ended."""

from msgspec.structs import replace

from batchkiln.core.states import ItemState
from batchkiln.rehearsal.incidents import NEVER, Incident, LostRequest, read_incidents
from batchkiln_service import LoggedRequest

CREATE = LoggedRequest(
    at_ms=1_000,
    key_sha256="k",
    path="/images",
    status=202,
    code=None,
    faults=(),
    generation_id="gen_1",
    is_replay=False,
)
POLL = replace(CREATE, path="/generations/{id}", status=200)
BUSY = replace(CREATE, status=503, code="unavailable", faults=("unavailable",), generation_id=None)


def incidents(*log: LoggedRequest, lost: tuple[LostRequest, ...] = ()) -> list[Incident]:
    return read_incidents(log, lost).by_kind()


def test_lost_reply_that_was_replayed() -> None:
    """The next create was answered with the generation of the first: it is a replay, and is called one."""
    lost = replace(CREATE, faults=("reply_lost",))

    told = incidents(lost, replace(CREATE, at_ms=2_000, is_replay=True))

    assert told == [Incident("reply_lost", "create", 1, {"replayed": 1})]


def test_request_that_never_arrived_was_sent_again() -> None:
    """The network cut it, the service has no row of it: the next create made the generation."""
    lost = LostRequest(at_ms=500, key_sha256="k", path="/api/v1/images", kind="reset_before")

    told = incidents(CREATE, lost=(lost,))

    assert told == [Incident("connection_reset_before", "create", 1, {"sent again": 1})]


def test_every_trouble_before_a_success_ends_with_it() -> None:
    """Two refusals in a row are two troubles, both waited out."""
    told = incidents(BUSY, replace(BUSY, at_ms=2_000), replace(CREATE, at_ms=3_000))

    assert told == [Incident("unavailable", "create", 2, {"waited, sent again": 2})]


def test_success_of_another_key_or_endpoint_ends_nothing() -> None:
    """Another account's create, and a read, say nothing of the one that met the trouble."""
    told = incidents(BUSY, replace(CREATE, key_sha256="other"), POLL)

    assert told == [Incident("unavailable", "create", 1, {NEVER: 1})]


def test_refusal_without_a_fault_is_an_incident_too() -> None:
    """A refusal by the service's own rules is listed with its code."""
    refused = replace(CREATE, status=429, code="rate_limited", generation_id=None)

    told = incidents(refused, replace(CREATE, at_ms=2_000))

    assert told == [Incident("refused: rate_limited", "create", 1, {"sent again": 1})]


def test_struck_generation_ends_as_its_item_did() -> None:
    """A failed generation whose item is done was tried again; one whose item failed is told by that."""
    first = replace(CREATE, faults=("fail_generation",))
    second = replace(first, generation_id="gen_2")
    incident_log = read_incidents([first, second], [])

    incident_log.add_generations({"gen_1": ItemState.DONE, "gen_2": ItemState.FAILED})

    assert incident_log.by_kind() == [
        Incident("fail_generation", "create", 2, {"refunded, tried again": 1, "item failed": 1})
    ]


def test_most_frequent_trouble_comes_first() -> None:
    """A reader sees first what happened most."""
    told = incidents(
        BUSY, POLL, replace(POLL, status=0, faults=("reset_before",)), replace(BUSY, at_ms=9), POLL, CREATE
    )

    assert [(incident.kind, incident.times) for incident in told] == [("unavailable", 2), ("reset_before", 1)]
