"""A TCP proxy of the tests' own, which can cut connections, refuse new ones, hold bytes back, or fall silent."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PIECE: Final = 64 * 1024
_RESET: Final = struct.pack("ii", 1, 0)  # a close then tells the other side at once, and throws away the rest
_SECONDS: Final = 10
_PORTS: Final = (20_000, 32_000)


class Gate:
    """Listens at `port` of 127.0.0.1, and carries connections to a port of 127.0.0.1 or to a Unix socket.

    `source` is the loopback address from which connections seem to come. With `delivers_requests`, bytes of clients are
    carried even while bytes are held back, so that the other side never gets a request late.
    """

    def __init__(self, target: int | Path, *, source: str | None = None, delivers_requests: bool = False) -> None:
        self.target = target
        self.port = 0
        self._source = source
        self._delivers_requests = delivers_requests
        self._connections: set[_Connection] = set()
        self._carriers = Carriers()
        self._is_refusing = False
        self._is_silent = False
        self._flows = asyncio.Event()
        self._loop = asyncio.new_event_loop()

    # --- what befalls the connections; callable from any thread ---

    def cut(self) -> None:
        """Reset all connections. New ones are accepted."""
        self._tell(self._cut)

    def refuse(self) -> None:
        """Reset all connections, and each new one, until `mend`."""
        self._is_refusing = True
        self._tell(self._cut)

    def hold(self) -> None:
        """Hold all bytes back until `mend`, which delivers them."""
        self._tell(self._flows.clear)

    def silence(self) -> None:
        """End the far half of all connections, and tell the clients nothing until `mend`, which resets them."""
        self._is_silent = True
        self._tell(self._silence)

    def mend(self) -> None:
        """Carry everything again."""
        was_silent, self._is_silent, self._is_refusing = self._is_silent, False, False
        if was_silent:
            self._tell(self._cut)
        self._tell(self._flows.set)

    def _tell(self, work: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(work)

    def _cut(self) -> None:
        for connection in list(self._connections):
            connection.cut()

    def _silence(self) -> None:
        for connection in self._connections:
            connection.silence()

    # --- the carrying ---

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._carriers.begin(self._carry(reader, writer), writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        self._connections.add(connection)
        try:
            if not self._is_refusing:
                await self._carry_on(connection)
        except (OSError, asyncio.CancelledError):
            connection.cut()
        finally:
            self._connections.discard(connection)
            if self._is_refusing:
                connection.cut()
            await closed(writer)

    async def _carry_on(self, connection: "_Connection") -> None:
        if self._is_silent:
            connection.silence()
        else:
            far_reader, connection.far = await self._connect()
            try:
                requests = self._pipe(connection, connection.reader, connection.far, is_free=self._delivers_requests)
                replies = self._pipe(connection, far_reader, connection.near, is_free=False)
                await asyncio.gather(requests, replies)
            finally:
                await closed(connection.far)
        if connection.is_silent:
            await connection.over.wait()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.target, Path):
            return await asyncio.open_unix_connection(self.target)
        source = (self._source, 0) if self._source else None
        return await asyncio.open_connection("127.0.0.1", self.target, local_addr=source)

    async def _pipe(
        self,
        connection: "_Connection",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_free: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE):
                if not is_free:
                    await self._flows.wait()
                if connection.is_silent:
                    return
                writer.write(piece)
                await writer.drain()
        if not connection.is_silent:
            with contextlib.suppress(OSError):
                writer.write_eof()

    def run(self, is_listening: threading.Event) -> None:
        """Carry connections, in this thread, until the loop is stopped."""
        self._flows.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        is_listening.set()
        with contextlib.closing(self._loop):
            self._loop.run_forever()
            self._loop.run_until_complete(self._carriers.end(server))

    def end(self) -> None:
        """Cut all connections, and take no more."""
        self._tell(self._cut)
        self._tell(self._loop.stop)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection once its bytes are sent, or at once when canceled: an ended loop would leave it open."""
    writer.close()
    try:
        await writer.wait_closed()
    except (OSError, asyncio.CancelledError):
        writer.transport.abort()


class Carriers:
    """The tasks that carry accepted connections. A task canceled before it begins would leave its connection open."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None], near: asyncio.StreamWriter) -> None:
        """Carry a connection; it is closed when the work is over, however that ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: near.transport.abort())

    async def end(self, server: asyncio.Server) -> None:
        """Cancel all of them, and close the server.

        Asyncio leaves a connection open that it has accepted and not yet handed over when its server is closed. So the
        server first accepts nothing more, and closes when all that it accepted was handed over.
        """
        for listener in server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        server.close()


class _Connection:
    """One connection of a client, and the far one that belongs to it."""

    def __init__(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.near = near
        self.far: asyncio.StreamWriter | None = None
        self.is_silent = False
        self.over = asyncio.Event()

    def cut(self) -> None:
        """Reset both halves."""
        self.over.set()
        with contextlib.suppress(OSError):
            self.near.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.near.transport.abort()
        if self.far is not None:
            self.far.transport.abort()

    def silence(self) -> None:
        """End the far half alone."""
        self.is_silent = True
        if self.far is not None:
            self.far.transport.abort()


@contextmanager
def gate(target: int | Path, *, source: str | None = None, delivers_requests: bool = False) -> Iterator[Gate]:
    """Run a gate in a thread of its own."""
    made, is_listening = Gate(target, source=source, delivers_requests=delivers_requests), threading.Event()
    thread = threading.Thread(target=made.run, args=(is_listening,), name="gate")
    thread.start()
    try:
        assert is_listening.wait(_SECONDS), "the gate does not listen"
        yield made
    finally:
        made.end()
        thread.join(_SECONDS)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, below those that the kernel gives to whoever asks for any.

    A service listens on it later, and again after a kill: until then no connection of another process may get it.
    """
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(*_PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
