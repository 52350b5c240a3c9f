"""What holds for all tests."""

import os

import pytest

# Commands are started by the hundred: a machine that keeps no bytecode would compile the whole program for each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin what takes long: at the end, one worker would be at it alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
