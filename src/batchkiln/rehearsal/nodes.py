"""Nodes: the simulated processes, identified by a context variable that tasks and callbacks inherit."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Final

HARNESS: Final = "harness"
_NODE: ContextVar[str] = ContextVar("node", default=HARNESS)


def node_of(context: Context | None) -> str:
    """Return the node of a context; None is the current context."""
    return _NODE.get() if context is None else context.get(_NODE, HARNESS)


@contextmanager
def as_node(name: str) -> Iterator[None]:
    """Assign tasks and callbacks created in the block to a node."""
    token = _NODE.set(name)
    try:
        yield
    finally:
        _NODE.reset(token)
