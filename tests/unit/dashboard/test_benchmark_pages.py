"""The benchmark of the dashboard asks for pages that exist: a page that moved would end it in its middle."""

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from batchkiln.dashboard.server import application

if TYPE_CHECKING:
    from batchkiln.dashboard.context import Context

BENCHMARK: Final = Path(__file__).resolve().parents[3] / "benchmarks" / "pages.py"


def patterns() -> list[str]:
    """Return the paths that it measures, without running it."""
    for statement in ast.parse(BENCHMARK.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name("PAGES")], value=value):
                return [str(pattern) for pattern in ast.literal_eval(value)]
            case _:
                pass
    raise AssertionError("it has no PAGES")


@pytest.mark.parametrize("pattern", patterns())
async def test_each_measured_page_has_a_route(pattern: str) -> None:
    """Nothing is asked of the handler."""
    router = application(cast("Context", None)).router
    request = make_mocked_request("GET", pattern.format(middle=1, page=1))
    assert (await router.resolve(request)).http_exception is None
