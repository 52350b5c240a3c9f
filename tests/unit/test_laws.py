"""Every law of the contract has a test that cites it."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CONTRACT: Final = (ROOT / "docs" / "reference" / "contract.md").read_text("utf-8")


def test_each_law_is_cited_by_a_test() -> None:
    """A law that no test names could be broken unnoticed."""
    laws = {int(number) for number in re.findall(r"^### Law (\d+)$", CONTRACT, re.MULTILINE)}

    cited = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path == Path(__file__):
            continue
        for docstring in re.findall(r'"""(.*?)"""', path.read_text("utf-8"), re.DOTALL):
            cited |= {int(number) for number in re.findall(r"\bLaws? (\d+)\b", docstring)}

    assert laws
    assert cited >= laws
