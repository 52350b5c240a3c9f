"""The pytest fixture `batchkiln_service`. pytest finds it automatically; it costs a test nothing unless used."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchkiln_service.testing import RunningService

MARKER = "batchkiln_service"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker with the settings of a test's service."""
    config.addinivalue_line("markers", f"{MARKER}(**settings): the configuration of the fixture `{MARKER}`")


@pytest.fixture
def batchkiln_service(request: pytest.FixtureRequest) -> "Iterator[RunningService]":
    """Run a local service for this test: the Video and Image Generation Service API on a port of this machine.

    The marker of the same name has fields of its configuration, as in
    `@pytest.mark.batchkiln_service(no_limits=True, instant=True)`.
    """
    from batchkiln_service.testing import running_service  # noqa: PLC0415 - imported by tests that use it

    marker = request.node.get_closest_marker(MARKER)
    with ExitStack() as stack:
        try:
            service = stack.enter_context(running_service(**(marker.kwargs if marker is not None else {})))
        except ValueError as error:
            pytest.fail(f"@pytest.mark.{MARKER}: {error}", pytrace=False)
        yield service
