"""The end of a connection, as a client sees it."""

import socket


def end_of(line: socket.socket) -> str:
    """Wait for the end of a connection; say how it came: "closed", "reset", or "data" that came before."""
    try:
        return "data" if line.recv(1) else "closed"
    except ConnectionError:
        return "reset"
