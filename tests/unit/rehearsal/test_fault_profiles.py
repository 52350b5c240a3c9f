"""What goes wrong in a rehearsal is what the manual says, and comes from the seed."""

import re
from hashlib import sha256
from pathlib import Path

from batchkiln.rehearsal.fault_profiles import CUT_REQUESTS, RATES, ConnectionCuts, fault_rules

MANUAL = Path(__file__).parents[3] / "docs" / "commands.md"
KEY = "lk_canary-0123456789"
REQUEST = f"POST /api/v1/images?x=1 HTTP/1.1\r\nHost: service\r\nAuthorization: Bearer {KEY}\r\n\r\n{{}}".encode()


def test_manual_has_the_rates() -> None:
    """The table of docs/commands.md is the one that is used."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\d.]+) \| ([\d.]+) \|$", MANUAL.read_text("utf-8"), re.MULTILINE)
    cuts = re.search(
        r"^\| `connection_\*`.* \| any \| ([\d.]+) \| ([\d.]+) \|$", MANUAL.read_text("utf-8"), re.MULTILINE
    )

    told = [(kind, endpoint, float(mild), float(rough)) for kind, endpoint, mild, rough in rows]
    assert told == [(rate.kind, rate.endpoint, rate.mild, rate.rough) for rate in RATES]
    assert cuts is not None
    assert (float(cuts[1]), float(cuts[2])) == (CUT_REQUESTS["mild"], CUT_REQUESTS["rough"])


def test_no_faults_unless_asked_for() -> None:
    """The default level strikes nothing."""
    cuts = ConnectionCuts("none", 1, sender="program")
    cuts.inspect("program", REQUEST)

    assert fault_rules("none") == ()
    assert {cuts.next_fault("program", 0.0) for _ in range(1000)} == {"none"}


def test_cut_is_remembered_by_path_and_without_the_key() -> None:
    """Of the API key only its hash is kept, as in the service's log (Law 8)."""
    cuts = ConnectionCuts("rough", 1, sender="program")
    for _ in range(1000):
        cuts.inspect("program", REQUEST)
        cuts.next_fault("program", 3.0)

    assert 5 <= len(cuts.cuts) <= 50
    assert {cut.path for cut in cuts.cuts} == {"/api/v1/images"}
    assert {cut.key_sha256 for cut in cuts.cuts} == {sha256(KEY.encode()).hexdigest()}
    assert KEY not in repr(cuts.cuts)


def test_replies_are_left_to_the_service() -> None:
    """What the service writes is never cut here: its own faults spoil replies, and log that they did."""
    cuts = ConnectionCuts("rough", 1, sender="program")
    cuts.inspect("service", REQUEST)

    assert {cuts.next_fault("service", 0.0) for _ in range(1000)} == {"none"}
