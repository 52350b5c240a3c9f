"""Every law of the contract has a test that cites it."""

import re
from pathlib import Path

LAWS = range(1, 10)


def test_each_law_is_cited_by_a_test() -> None:
    """A law that no test names could be broken unnoticed."""
    cited = set()
    for path in Path(__file__).parents[1].rglob("test_*.py"):
        if path == Path(__file__):
            continue
        for docstring in re.findall(r'"""(.*?)"""', path.read_text("utf-8"), re.DOTALL):
            cited |= {int(number) for number in re.findall(r"\bLaws? (\d)\b", docstring)}

    assert cited >= set(LAWS)
