"""A TCP proxy between batchkiln and the service that cuts connections, drops replies and delays bytes, by a seed.

It never delivers anything late behind the client's back: whoever is cut off has either not been heard at all, or the
service has begun to answer, and so has noted the request. Both sides then agree about when it was, and every limit in
the service's books can be checked to the millisecond.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Final

from support.tcp_gate import Carriers, closed

_PIECE: Final = 64 * 1024
_METHODS: Final = (b"GET ", b"POST ", b"PUT ")
_LONGEST_DELAY_SECONDS: Final = 0.03
_RESET_SHARE: Final = 0.5  # of the connections that are cut: the others end as if by the will of the other side
_RESET: Final = struct.pack("ii", 1, 0)  # what makes a close tell the other side at once, and throw away the rest
_HEAD_CUT_BYTES: Final = 100  # shorter than any request's head, which has an API key or a signature in it


class Fate(StrEnum):
    """What becomes of one request."""

    PASSED = auto()
    REFUSED = auto()  # cut off before a byte of it is delivered
    CUT = auto()  # the service gets a piece of its head, and then nothing more
    REPLY_DROPPED = auto()  # carried out, but nothing of the reply is delivered
    REPLY_CUT = auto()  # half of the reply's first piece is delivered
    SLOW = auto()  # whole, but each piece comes a little later, and its halves apart
    HELD = auto()  # carried out; the reply is dropped when `let_go` is called, or the client gives up


MISFORTUNES: Final = (Fate.REFUSED, Fate.CUT, Fate.REPLY_DROPPED, Fate.REPLY_CUT, Fate.SLOW)


@dataclass
class Proxy:
    """Listens at `port`, and carries what comes there to `target` and back. Its loop runs in a thread of its own."""

    target: int
    seed: int
    share: float  # of the requests, how many meet a misfortune
    port: int = 0
    met: Counter[Fate] = field(default_factory=Counter)
    hold_next: bytes | None = None  # how the request begins whose reply is to be held
    is_holding: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._carriers = Carriers()
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self.is_let_go = asyncio.Event()

    def run(self, listening: threading.Event) -> None:
        """Carry connections, in this thread, until `end` is called in another."""
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve(listening))

    def let_go(self) -> None:
        """Cut the connection that is held."""
        self._loop.call_soon_threadsafe(self.is_let_go.set)

    def end(self) -> None:
        """Cut all connections, and take no more."""
        self._loop.call_soon_threadsafe(self._is_over.set)

    async def _serve(self, listening: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await self._is_over.wait()
        await self._carriers.end(server)

    def fate_of(self, request: bytes) -> Fate:
        """Draw what becomes of a request that begins so."""
        if self.hold_next is not None and request.startswith(self.hold_next):
            self.hold_next = None
            return Fate.HELD
        return self._draw.choice(MISFORTUNES) if self._draw.random() < self.share else Fate.PASSED

    def delay_seconds(self) -> float:
        """Draw how long a piece is kept back."""
        return self._draw.uniform(0.0, _LONGEST_DELAY_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._carriers.begin(self._carry(reader, writer), writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        try:
            with contextlib.suppress(ConnectionError):
                await connection.carry(self.target)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            if connection.fate is not Fate.REPLY_CUT and self._draw.random() < _RESET_SHARE:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            await closed(writer)


class _Cut(ConnectionError):
    """This connection has met its end."""


class _Connection:
    """One connection of a client, and the one to the service that belongs to it."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self.fate = Fate.PASSED
        self._is_answered = True

    async def carry(self, target: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target)
        try:
            ways = [asyncio.create_task(self._requests(writer)), asyncio.create_task(self._replies(reader))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            writer.transport.abort()

    async def _requests(self, service: asyncio.StreamWriter) -> None:
        """Carry requests; the fate of each is drawn at its beginning."""
        while piece := await self._reader.read(_PIECE):
            if piece.startswith(_METHODS):
                self.fate, self._is_answered = self._proxy.fate_of(piece), False
                self._proxy.met[self.fate] += 1
                if self.fate is Fate.REFUSED:
                    raise _Cut
                if self.fate is Fate.CUT:
                    service.write(piece[:_HEAD_CUT_BYTES])
                    await service.drain()
                    raise _Cut
            await self._pass_on(piece, service)

    async def _replies(self, service: asyncio.StreamReader) -> None:
        while piece := await service.read(_PIECE):
            is_first, self._is_answered = not self._is_answered, True
            if self.fate is Fate.HELD:
                self._proxy.is_holding.set()
                await self._proxy.is_let_go.wait()
            if self.fate in {Fate.HELD, Fate.REPLY_DROPPED}:
                raise _Cut
            if self.fate is Fate.REPLY_CUT and is_first:
                self._writer.write(piece[: len(piece) // 2])
                await self._writer.drain()
                raise _Cut
            await self._pass_on(piece, self._writer)

    async def _pass_on(self, piece: bytes, receiver: asyncio.StreamWriter) -> None:
        middle = len(piece) // 2
        for half in (piece[:middle], piece[middle:]) if self.fate is Fate.SLOW else (piece,):
            if self.fate is Fate.SLOW:
                await asyncio.sleep(self._proxy.delay_seconds())
            receiver.write(half)
            await receiver.drain()


@contextlib.contextmanager
def proxying(target: int, *, seed: int, share: float = 0.0) -> Iterator[Proxy]:
    """Run a proxy to a port of this machine, in a thread; `share` of the requests meet a misfortune."""
    proxy, listening = Proxy(target, seed, share), threading.Event()
    thread = threading.Thread(target=proxy.run, args=(listening,), name="proxy")
    thread.start()
    try:
        assert listening.wait(timeout=60), "the proxy does not listen"
        yield proxy
    finally:
        proxy.end()
        thread.join()
