"""Each kind of event is told in a sentence."""

import json
import sqlite3
from pathlib import Path

import pytest

from batchkiln.core.outcomes import CREATES, DOWNLOADS
from batchkiln.core.states import Event
from batchkiln.presentation.history import SENTENCES, sentence_of

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize(
    ("kind", "detail", "told"),
    [
        (
            "accepted",
            {"generation_id": "gen_1", "cost_credits": 2, "is_replay": False},
            "Accepted by the service for 2 credits (gen_1)",
        ),
        ("file_saved", {"path": "/out/job-1/x.png", "size_bytes": 1843}, "Saved job-1/x.png, 1.8 KiB"),
        ("fetch_requested", {"files": 1}, "To be downloaded again: 1 file"),
        ("outcome_unknown", {"reason": "503"}, "Sent, without a definite reply: 503"),
        (
            "refused",
            {"code": "bad", "message": "too\nlong {x}"},
            "Refused by the service; nothing was created: too long {x} (bad)",
        ),
        ("dropped", {"by": "dashboard", "version": 1}, "Version 1 dropped by dashboard"),
        ("input_filled", {"place": 0}, "Input 1 is made"),
    ],
)
def test_an_event_is_a_sentence(kind: str, detail: dict[str, object], told: str) -> None:
    """With the details that matter, in the words of the other pages."""
    assert sentence_of(kind, detail) == told


def test_events_of_other_versions_are_told_too() -> None:
    """An unknown kind, and a known one that lacks a detail, are listed as they are."""
    assert sentence_of("moon_risen", {"cost_credits": 2}) == "Moon risen: cost credits 2"
    assert sentence_of("accepted", {}) == "Accepted"


def test_every_event_has_a_sentence() -> None:
    """Those that change a state, and those that only log a reply or a file."""
    logged = {outcome.log for outcome in (*CREATES.values(), *DOWNLOADS.values())} - {None}

    assert set(Event) | logged <= SENTENCES.keys()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("queue-*.sql")), ids=lambda path: path.stem)
def test_queues_of_every_version_are_told(path: Path) -> None:
    """Each event of an item that any version wrote has its sentence."""
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(path.read_text("utf-8"))
        events = connection.execute("SELECT kind, detail FROM event WHERE item_id IS NOT NULL").fetchall()
    connection.close()

    assert events
    for kind, detail in events:
        facts = json.loads(detail or "{}")
        assert sentence_of(kind, facts).startswith(SENTENCES[kind].partition("{")[0]), (kind, facts)
