"""`batchkiln` for a shell's commands, which begins at once: the word starts a small client, and this process forks.

A shell can start only programs of its own. The client hands its standard streams, folder and environment over, and ends
with the command's exit status; when the client is killed, so is the command. A signal is not passed on, and the shell's
`$!` is the client's: who follows a page that sends signals wants real processes (`manual_commands.put_program`).
"""

import json
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .programs import start

_MAX_BYTES: Final = 200_000
_CLIENT: Final = """\
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(chr(0) + sys.argv[1])
request = {"arguments": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ)}
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
sys.exit(int(server.recv(32) or 1))
"""


@contextmanager
def relayed_program(tools: Path) -> Iterator[None]:
    """Put `batchkiln` into a folder of the path; within, its commands are forked from a process that has imported all.

    They find this process's home, since libraries read it when they are imported; their configuration is in the folder
    that the shell calls home.
    """
    name = f"batchkiln-relay-{secrets.token_hex(8)}"
    client = tools / "client.py"
    client.write_text(_CLIENT, "utf-8")
    program = tools / "batchkiln"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" {name} "$@"\n', "utf-8")
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        thread = threading.Thread(target=_accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket) -> None:
    with suppress(OSError):  # it was shut down
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client,), daemon=True).start()


def _serve(client: socket.socket) -> None:
    """Run one command for a client, and tell it the exit status."""
    with client:
        message, descriptors, _, _ = socket.recv_fds(client, _MAX_BYTES, 3)
        if not message:
            return
        request = json.loads(message)
        home = os.environ.get("HOME", "/")
        env = request["env"] | {"HOME": home, "XDG_CONFIG_HOME": request["env"].get("HOME", home)}
        stdin, stdout, stderr = descriptors
        try:
            process = start(
                request["arguments"], cwd=Path(request["cwd"]), env=env, stdin=stdin, stdout=stdout, stderr=stderr
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        ended = os.pidfd_open(process.pid)
        select.select([ended, client.fileno()], [], [])
        if not select.select([ended], [], [], 0)[0]:  # the client is gone
            process.kill()
        os.close(ended)
        status = process.wait()
        with suppress(OSError):
            client.send(str(status if status >= 0 else 128 - status).encode())
