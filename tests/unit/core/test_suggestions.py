"""What a wrong name probably means."""

import pytest

from batchkiln.core.suggestions import closest, did_you_mean

COMMANDS = ["run", "plan", "retry", "resolve", "report", "redo", "status", "unpause", "manifest", "doctor"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("statsu", ["status"]),
        ("retyr", ["retry"]),
        ("mannifest", ["manifest"]),
        ("docto", ["doctor"]),
        ("Plan", ["plan"]),
        ("rn", ["run"]),
        ("stat", ["status"]),
        ("manifest.yaml", ["manifest"]),
        ("xyzzy", []),
        ("ruin", ["run"]),
        ("rest", []),
        ("plane", ["plan"]),
        ("promt", []),
        ("launch", []),
        ("exit", []),
        ("", []),
    ],
)
def test_only_near_names_are_suggested(word: str, meant: list[str]) -> None:
    """One edit of a short word, two of a longer one, or the beginning of a name; a far name helps nobody."""
    assert closest(word, COMMANDS) == meant


def test_the_nearest_names_come_first() -> None:
    """A misspelling is nearer than a name that only begins alike."""
    assert closest("item", ["items-of-all", "itam", "items"], most=2) == ["itam", "items"]


def test_names_of_other_programs_lead_to_those_here() -> None:
    """Also misspelt; a name of this program comes first."""
    others = {"list": "status plan", "rum": "report", "start": "run"}

    assert closest("lsit", COMMANDS, others=others) == ["status", "plan"]
    assert closest("stat", COMMANDS, others=others) == ["status"]
    assert closest("ru", COMMANDS, others=others) == ["run"]
    assert did_you_mean(closest("list", COMMANDS, others=others)) == "did you mean `status` or `plan`?"
    assert not did_you_mean(closest("xyzzy", COMMANDS, others=others))
