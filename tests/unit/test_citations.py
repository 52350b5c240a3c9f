"""Each rule that the source cites is in the documentation: laws and sections of the contract, rules of the service."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from batchkiln.config import config_schema
from batchkiln.dashboard.http_api.description import description
from batchkiln.dashboard.http_api.routes import operations
from batchkiln.manifest import json_schema
from batchkiln_service.config import ServiceConfig

ROOT: Final = Path(__file__).resolve().parents[2]
CONTRACT: Final = (ROOT / "docs" / "reference" / "contract.md").read_text("utf-8")
SERVICE: Final = (ROOT / "docs" / "service.md").read_text("utf-8")
TEXTS: Final = {".py", ".sql", ".html", ".js", ".toml"}
NUMBERS: Final = r"(\d+(?:\.\d+)*(?:(?:, | and )\d+(?:\.\d+)*)*)"
LAWS: Final = set(re.findall(r"^### Law (\d+)$", CONTRACT, re.MULTILINE))
SECTIONS: Final = set(re.findall(r"^## (\d+)\. ", CONTRACT, re.MULTILINE))
SERVICE_SECTIONS: Final = set(re.findall(r"^##+ (\d(?:\.\d)?)[. ]", SERVICE, re.MULTILINE))
SERVICE_RULES: Final = set(re.findall(r"^\| (\d(?:\.\d+)+) \|", SERVICE, re.MULTILINE))
CITATIONS: Final = {
    rf"\bLaws? {NUMBERS}": LAWS,
    rf"\b[Cc]ontract, (?:section )?{NUMBERS}": SECTIONS,
    rf"\bService sections? {NUMBERS}": SERVICE_SECTIONS,
    rf"\bService rules? {NUMBERS}": SERVICE_RULES,
}


def test_contract_has_ten_laws_and_ten_sections() -> None:
    """The numbers are without a gap, so that a citation stays valid when text is added."""
    expected = {str(number) for number in range(1, 11)}

    assert expected == LAWS
    assert expected == SECTIONS


def test_each_citation_resolves() -> None:
    """A law, section or rule that the source names has a heading or a row of its own."""
    found = list(citations())

    assert len(found) > 200
    assert [f"{path}: {text}" for path, text, number, known in found if number not in known] == []


def test_texts_for_people_cite_nothing() -> None:
    """They say the rule in words; its number is in docstrings and comments."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, text in texts(ast.parse(path.read_text("utf-8")))
        if any(re.search(pattern, text) for pattern in CITATIONS)
    ]

    assert found == []


@pytest.mark.parametrize(
    "read",
    [
        json_schema,
        config_schema,
        ServiceConfig.model_json_schema,
        lambda: description(operations()),
        (ROOT / "src" / "batchkiln_service" / "openapi.json").read_text,
    ],
    ids=["manifest", "configuration", "configuration of serve", "HTTP interface", "API of the service"],
)
def test_descriptions_for_programs_cite_nothing(read: Callable[[], object]) -> None:
    """An editor and a page of an API show them to people; many of them are docstrings."""
    assert [match[0] for pattern in CITATIONS for match in re.finditer(pattern, str(read()))] == []


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text in the code with its line, without docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def citations() -> Iterator[tuple[str, str, str, set[str]]]:
    """Yield each citation below `src`: the file, the text, one number of it, and the numbers that exist."""
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in TEXTS:
            continue
        text = re.sub(r"\s+(?:#|--)?\s*", " ", path.read_text("utf-8"))
        for pattern, known in CITATIONS.items():
            for match in re.finditer(pattern, text):
                for number in re.split(", | and ", match[1]):
                    yield str(path.relative_to(ROOT)), match[0], number, known
