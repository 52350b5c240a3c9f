"""A second provider's paths and words are changed in few places."""

import re
from pathlib import Path
from typing import Final

import pytest

from batchkiln.core import provider
from batchkiln.core.provider import NamedLimit

SOURCE: Final = Path(provider.__file__).parents[1]
NOT_THE_PROVIDERS: Final = ("service", "rehearsal", "dashboard")
"""The local service, the reader of its request log, and the HTTP interface, which has paths of its own."""


def test_paths_are_written_in_one_module() -> None:
    """No other module holds a path of the service, in a string of code."""
    paths = [value for name, value in vars(provider).items() if name.isupper() and str(value).startswith("/")]
    literal = re.compile("|".join(rf"[\"'](?:GET |POST )?{re.escape(path)}[\"'/{{ ]" for path in paths))

    found = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if file.relative_to(SOURCE).parts[0] not in NOT_THE_PROVIDERS and literal.search(file.read_text("utf-8"))
    ]

    assert len(paths) == 9
    assert found == ["core/provider.py"]


def test_clients_are_built_in_one_module() -> None:
    """`ServiceClient(` and its subclasses are called nowhere: `new_service_client` makes them all."""
    built = re.compile(r"\b(?:ServiceClient|ObservingClient)\((?!ServiceClient\))(?!{)")

    found = [str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if built.search(file.read_text("utf-8"))]

    assert found == []


@pytest.mark.parametrize(
    ("generation_id", "path"),
    [("gen_1", "/generations/gen_1"), ("a/b?c", "/generations/a%2Fb%3Fc"), ("..", "/generations/%2E%2E")],
)
def test_an_id_is_one_segment(generation_id: str, path: str) -> None:
    """No id leads to another address."""
    assert provider.generation_path(generation_id) == path


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("another generation is active", NamedLimit.ACTIVE_GENERATIONS),
        ("your credit budget is used up", NamedLimit.CREDITS_PER_DAY),
        ("the daily limit is reached", NamedLimit.REQUESTS_PER_DAY),
        ("too many requests", NamedLimit.REQUESTS_PER_MINUTE),
        ("slow down", None),
    ],
)
def test_named_limit_is_read_from_the_words(message: str, limit: NamedLimit | None) -> None:
    """The most specific limit wins."""
    assert provider.named_limit("limited", message) is limit
