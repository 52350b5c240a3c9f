"""Those who stand around the ports answer to the same calls."""

import inspect

import pytest

from batchkiln.tracing import proxies
from batchkiln.worker import ports

PAIRS = [
    (proxies.HeardClock, ports.Clock),
    (proxies.HeardService, ports.Service),
    (proxies.HeardOutputs, ports.Outputs),
    (proxies.HeardQueue, ports.Queue),
]


@pytest.mark.parametrize(("heard", "port"), PAIRS, ids=lambda one: one.__name__)
def test_every_method_is_one_of_the_port(heard: type, port: type) -> None:
    """A port's method that gets another name or other arguments would not be heard any more, or fail a run."""
    methods = [name for name in vars(heard) if not name.startswith("_")]

    assert methods
    for name in methods:
        assert _arguments(getattr(heard, name)) == _arguments(getattr(port, name)), name


def _arguments(function: object) -> list[tuple[str, object, object]]:
    assert callable(function)
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
