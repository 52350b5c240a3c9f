"""The proxies of the tests leave no connection open: its garbage would fail a later test of the same process."""

import gc
import socket
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import pytest

from crash.proxy import Proxy, proxying
from support.tcp_gate import Gate, gate

OPENED, ACCEPTED = 30, 20


@pytest.mark.parametrize("begin", [gate, lambda port: proxying(port, seed=1)], ids=["gate", "proxy"])
def test_proxy_that_ends_closes_all_connections(begin: Callable[[int], AbstractContextManager[Gate | Proxy]]) -> None:
    """Also those whose bytes nobody reads, and those that were accepted in the same moment."""
    with (
        warnings.catch_warnings(record=True) as left,
        socket.create_server(("127.0.0.1", 0)) as far,
        ExitStack() as own,
    ):
        warnings.simplefilter("always")
        with begin(far.getsockname()[1]) as proxy:
            for number in range(OPENED):
                client = own.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                if number < ACCEPTED:
                    _flood(own.enter_context(far.accept()[0]))

        gc.collect()

    assert [str(each.message) for each in left] == []


def _flood(connection: socket.socket) -> None:
    """Send until nothing more is taken."""
    connection.settimeout(0)
    try:
        while True:
            connection.send(bytes(1_000_000))
    except BlockingIOError:
        return
