"""`docs/glossary.md` defines each public term once: names of the package, states, events and commands."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

import batchkiln
from batchkiln.cli.main import SUMMARIES
from batchkiln.core.job import AttemptState
from batchkiln.core.states import Event, ItemState

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text("utf-8")
SECTIONS: Final = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
ROW: Final = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)


def defined(section: str) -> list[str]:
    """Return the terms that a list of the page defines, in its order."""
    return re.findall(r"^- \*\*(.+?)\*\*: [A-Z]", SECTIONS[section], re.MULTILINE)


def tabled(section: str) -> list[str]:
    """Return the names in the first column of a section's table."""
    return [name for cell in ROW.findall(SECTIONS[section]) for name in re.findall(r"`(.+?)`", cell)]


@pytest.mark.parametrize(
    ("section", "members"),
    [("Item states", ItemState), ("Attempt states", AttemptState), ("Item events", Event)],
)
def test_each_state_and_event_is_defined(section: str, members: Iterable[str]) -> None:
    """Every member has its definition, in the order of the code."""
    assert defined(section) == [str(member) for member in members]


def test_each_public_name_is_defined() -> None:
    """`import batchkiln` offers exactly the names that the page explains."""
    assert sorted(tabled("Python names")) == sorted(batchkiln.__all__)


def test_each_command_has_its_noun() -> None:
    """The page names each command once."""
    assert sorted(tabled("Commands")) == sorted(SUMMARIES)


def test_terms_are_in_order_and_defined_once() -> None:
    """A reader finds a term by the alphabet, and finds one meaning."""
    terms = defined("Terms")

    assert len(terms) == SECTIONS["Terms"].count("\n- ")
    assert [term for term, count in Counter(terms).items() if count > 1] == []
    assert terms == sorted(terms, key=str.lower)
