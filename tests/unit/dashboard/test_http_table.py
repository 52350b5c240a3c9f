"""The manual's table of operations, and the description, are those of the program."""

import re
from pathlib import Path
from typing import Final

from batchkiln.dashboard.http_api.description import description
from batchkiln.dashboard.http_api.routes import operations

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs" / "http.md").read_text("utf-8")
_PATTERN: Final = re.compile(r":\[1-9\]\\d\{0,5\}")


def test_manual_lists_every_operation_with_its_scope() -> None:
    """No more and no less."""
    listed = re.findall(r"^\| `(GET|POST) (\S+)` \| `?(\w+)`? \|", PAGE, re.MULTILINE)

    served = [(each.method, _PATTERN.sub("", each.path), each.scope or "any") for each in operations()]

    assert sorted(listed) == sorted(served)


def test_every_operation_has_a_name_of_its_own() -> None:
    """Generated clients call their functions by it."""
    names = [each.name for each in operations()]

    assert len(set(names)) == len(names)


def test_every_problem_of_the_manual_is_described() -> None:
    """Each status of the page is one that an operation may answer with."""
    listed = {
        status
        for cell in re.findall(r"^\| ([\d, ]+) \| ", PAGE.partition("## Errors")[2], re.MULTILINE)
        for status in cell.split(", ")
    }
    described = {
        status
        for methods in description(operations())["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
    }

    assert listed == {status for status in described if status >= "400"}


def test_description_contains_no_empty_component() -> None:
    """Each document of a reply is described with its fields."""
    schemas = description(operations())["components"]["schemas"]

    assert [name for name, schema in schemas.items() if not schema.get("properties") and "enum" not in schema] == []
