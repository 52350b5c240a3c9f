"""docs/service.md lists every rule of the service's document, and names tests for each that are there."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

from support.suite_source import find_tests

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "service.md").read_text("utf-8")
ROW: Final = re.compile(r"^\| (?P<rule>\d\.[^|]+) \| (?P<asks>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+(?:::\w+)?)`")
# fmt: off
RULES: Final = (
    "1.kinds", "1.asynchronous", "1.credits", "1.access", "1.servers-only", "1.unavailable", "1.models",
    "1.names", "1.unsupported", "1.catalog", "1.modes",
    "2.1.record", "2.1.id", "2.1.model", "2.1.status", "2.1.created_at", "2.1.credits", "2.1.outputs",
    "2.1.outputs.type", "2.1.outputs.url", "2.1.outputs.expires_at", "2.1.error", "2.1.usable",
    "2.1.fresh", "2.1.retention",
    "2.2.model", "2.2.mode", "2.2.prompt", "2.2.inputs", "2.2.resolution", "2.2.aspect_ratio",
    "2.2.duration_seconds", "2.2.generate_audio", "2.2.image_mode", "2.2.output_format",
    "2.2.google_search", "2.2.max_cost_credits", "2.2.1", "2.2.2", "2.2.3", "2.2.4", "2.2.5",
    "2.3.request", "2.3.response", "2.3.completion",
    "2.4.quote", "2.4.balance",
    "3.pending", "3.processing", "3.success", "3.failed", "3.canceled", "3.expired", "3.1", "3.2", "3.3",
    "4.authentication", "4.GET /models", "4.GET /credits/balance", "4.POST /quotes", "4.POST /videos",
    "4.POST /images", "4.GET /generations/{id}", "4.POST /uploads", "4.POST /uploads/complete",
    "4.GET /openapi.json", "4.content-type",
    "4.1", "4.2", "4.3", "4.4", "4.5", "4.6",
    "4.upload.1", "4.upload.2", "4.upload.3",
    "4.price.lite", "4.price.others", "4.price.free", "4.price.charge",
    "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7", "5.8", "5.9",
    "6.no-events", "6.no-cancellation", "6.polling",
    "7.legacy-key", "7.conflict", "7.limit", "7.unavailable", "7.edge", "7.json-403", "7.over-quote",
    "7.rejected", "7.origin", "7.no-budget",
    "8.account", "8.active", "8.creates", "8.reads", "8.credits", "8.uploads", "8.days", "8.replays",
    "8.failures", "8.polling", "8.lifetimes", "8.files", "8.idempotency-key", "8.keys", "8.ip",
    "8.catalog",
    "9.prefix", "9.openapi", "9.limitations",
)
# fmt: on


def test_every_rule_has_one_row() -> None:
    """The table has the rules of the document in its order, each once, and no others."""
    assert [row["rule"] for row in ROW.finditer(PAGE)] == list(RULES)


def test_every_rule_stands_in_its_section() -> None:
    """Below the heading of the section that its name begins with; all nine are there."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]

    strangers = [row["rule"] for section in sections for row in ROW.finditer(section) if row["rule"][0] != section[0]]

    assert [section[0] for section in sections if section[1] == "."] == list("123456789")
    assert strangers == []


def test_every_line_of_a_table_is_a_rule() -> None:
    """A line that looks like a row but cannot be read as one would escape the other tests."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    frames = ["| Rule | Requirement | Tests |", "|---|---|---|"]

    assert [line for line in lines if line not in frames and not ROW.fullmatch(line)] == []


def test_every_rule_names_its_tests() -> None:
    """One at least, each once, and nothing else stands in that cell."""
    cells = {row["rule"]: row["tests"].split("<br>") for row in ROW.finditer(PAGE)}

    assert [rule for rule, tests in cells.items() if not all(map(TEST.fullmatch, tests))] == []
    assert [rule for rule, tests in cells.items() if max(Counter(tests).values()) > 1] == []


def test_every_named_test_is_there() -> None:
    """A test that was renamed, moved or deleted proves nothing any more."""
    named = sorted({(path, name) for path, name in TEST.findall(PAGE)})

    assert [f"{path}::{name}" for path, name in named if name not in find_tests(ROOT / path)] == []


def test_every_rule_has_a_test_that_takes_no_turns() -> None:
    """A run of the whole suite would otherwise not notice on some days that a rule is broken."""
    cells = {row["rule"]: TEST.findall(row["tests"]) for row in ROW.finditer(PAGE)}
    tests = {rule: [find_tests(ROOT / path)[name] for path, name in named] for rule, named in cells.items()}

    assert [rule for rule, named in tests.items() if all(test.takes_turns for test in named)] == []


def test_every_open_point_leads_to_its_assumption() -> None:
    """A link to an entry of docs/assumptions.md has its number and its heading."""
    text = (ROOT / "docs" / "assumptions.md").read_text("utf-8")
    headings = re.findall(r"^### (\d+)\. (.+)$", text, re.MULTILINE)
    entries = {(number, f"{number}-{_anchor(heading)}") for number, heading in headings}

    links = re.findall(r"\[(\d+)\]\(assumptions\.md#([^)]+)\)", PAGE)

    assert links
    assert [link for link in links if link not in entries] == []


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
