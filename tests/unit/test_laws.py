"""Every law of the contract has a test that cites it, and that takes no turns."""

import re
from pathlib import Path
from typing import Final

from support.suite_source import find_tests

ROOT: Final = Path(__file__).resolve().parents[2]
CONTRACT: Final = (ROOT / "docs" / "reference" / "contract.md").read_text("utf-8")


def test_each_law_is_cited_by_a_test() -> None:
    """A law that no test names could be broken unnoticed, also by a run of the whole suite."""
    laws = {int(number) for number in re.findall(r"^### Law (\d+)$", CONTRACT, re.MULTILINE)}

    cited = {
        int(number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in find_tests(path).values()
        if path != Path(__file__) and not test.takes_turns
        for number in re.findall(r"\bLaws? (\d+)\b", test.docstring)
    }

    assert laws
    assert cited >= laws
