"""`docs/configuration.md`: each key of the configuration with its type and default, as the models have them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchkiln.config import config_schema

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text("utf-8")
SCHEMA: Final[dict[str, Any]] = config_schema()
WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}
PLACES: Final = frozenset({"KeySource"})


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield section, key, type and default of each row of the page."""
    for section in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        for key, kind, default in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*)\|", section, re.MULTILINE):
            yield ("" if title == "Top level" else title), key, kind.strip(), default.strip().strip("`")


def target(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def fields(schema: dict[str, Any], section: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the same of each property of the schema, and of those below."""
    for key, found in schema["properties"].items():
        forms = [form for form in found.get("anyOf", [found]) if form.get("type") != "null"]
        below = f"{section}.{key}".removeprefix(".")
        yield section, key, kind_of(forms), default_of(schema, key, found)
        for form in forms:
            if "KeySource" in str(form.get("$ref")):
                continue
            inner = target(form)
            if "properties" in inner:
                yield from fields(inner, below)
            named = [inner.get("additionalProperties"), *inner.get("patternProperties", {}).values()]
            for each in (one for one in named if isinstance(one, dict) and "$ref" in one):
                yield from fields(target(each), f"{below}.NAME")
            items = inner.get("items", {})
            if "$ref" in items and "properties" in target(items) and "KeySource" not in items["$ref"]:
                yield from fields(target(items), below)


def kind_of(forms: list[dict[str, Any]]) -> str:
    if len(forms) > 1 and "pattern" in forms[0]:
        return "bytes"
    words = [
        "place"
        if "KeySource" in str(form.get("$ref"))
        else "word"
        if "enum" in target(form)
        else "time"
        if form.get("format") == "date-time"
        else WORDS[target(form)["type"]]
        for form in forms
    ]
    return " or ".join(words)


def default_of(schema: dict[str, Any], key: str, found: dict[str, Any]) -> str:
    if key in schema.get("required", []):
        return "required"
    default = found.get("default", {} if found.get("type") == "object" else None)
    is_section = "$ref" in found
    if default is None or is_section:
        return ""
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return default if isinstance(default, str) else json.dumps(default)


def test_the_page_has_each_key_with_its_type_and_default() -> None:
    """No key of the configuration is missing, and none is made up."""
    assert sorted(rows()) == sorted(fields(SCHEMA, ""))
