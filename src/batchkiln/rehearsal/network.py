"""A network in memory: byte streams between nodes, with a delay and, if asked, misfortune for each write.

aiohttp's own server and client speak over it unchanged, by way of the loop's connections to Unix sockets.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from batchkiln.rehearsal.nodes import node_of

Misfortune = Literal[
    "none",
    "lost",  # the bytes vanish, and the connection stays open
    "reset_before",  # both ends are reset, and the bytes never arrive
    "reset_after",  # the bytes arrive, then both ends are reset
    "cut",  # half of the bytes arrive, then both ends are reset
    "slow",  # the bytes arrive much later
]
SLOW_SECONDS: Final = 45.0
PORT: Final = 80
_PEER: Final = ("127.0.0.1", 1)
_Factory = Callable[[], asyncio.BaseProtocol]


class NetworkConditions(Protocol):
    """What happens to bytes on their way; drawn from a seed."""

    def delay_seconds(self) -> float:
        """Return how long the next bytes are on their way."""
        ...

    def misfortune(self, sender: str, now: float) -> Misfortune:
        """Return what befalls the next write of a node; `now` is the loop's time."""
        ...


class ReliableNetwork:
    """A millisecond each way, and nothing goes wrong."""

    def delay_seconds(self) -> float:
        """Return a millisecond."""
        return 0.001

    def misfortune(self, sender: str, now: float) -> Misfortune:
        """Let nothing happen."""
        del sender, now
        return "none"


@dataclass(frozen=True)
class _Listener:
    factory: _Factory
    context: Context


class MemoryNetwork:
    """All names that are listened at, and all connections between nodes."""

    def __init__(self, weather: NetworkConditions | None = None) -> None:
        self.weather: NetworkConditions = weather or ReliableNetwork()
        self.on_write: Callable[[str], None] = lambda _: None  # told before and after each write of a node
        self.on_bytes: list[Callable[[str, bytes], None]] = []  # told what a node is about to write
        self.on_misfortune: Callable[[str, Misfortune], None] = lambda _, __: None  # told whose bytes it befell
        self.acts = 0  # connections made and closed, and writes
        self.late: list[float] = []  # when bytes arrived much later than their sender could know
        self._listeners: dict[str, _Listener] = {}
        self._ends: list[End] = []

    def listen(self, name: str, factory: _Factory) -> "MemoryServer":
        """Accept connections at a name, on behalf of the node that calls."""
        self._listeners[name] = _Listener(factory, copy_context())
        return MemoryServer(self, name)

    def stop_listening(self, name: str) -> None:
        """Refuse connections from now on; those that stand, stay."""
        self._listeners.pop(name, None)

    async def connect(self, name: str, factory: _Factory) -> "tuple[End, asyncio.BaseProtocol]":
        """Connect the node that calls. Raises ConnectionRefusedError where nobody listens."""
        await asyncio.sleep(self.weather.delay_seconds())  # noqa: TID251  the loop's own, virtual time
        listener = self._listeners.get(name)
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens at {name}")
        near_protocol = factory()
        far_protocol = listener.context.copy().run(listener.factory)
        self.acts += 1
        near, far = End(self, near_protocol, copy_context()), End(self, far_protocol, listener.context.copy())
        near.peer, far.peer = far, near
        self._ends = [end for end in self._ends if not end.is_over] + [near, far]
        near_protocol.connection_made(near)
        far.context.run(far_protocol.connection_made, far)
        return near, near_protocol

    def cut_off(self, node: str) -> None:
        """End all that a dead node had: its names, and its connections, which their other ends see reset."""
        self._listeners = {
            name: listener for name, listener in self._listeners.items() if node_of(listener.context) != node
        }
        for end in self._ends:
            if end.node == node:
                end.vanish()
        self._ends = [end for end in self._ends if end.node != node]


class MemoryServer:
    """What `create_server` returns, as far as anybody uses it: it is its own only socket."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def start_serving(self) -> None:
        """Return at once: it serves since it was made."""

    def close(self) -> None:
        """Listen no more."""
        self._network.stop_listening(self._name)

    async def wait_closed(self) -> None:
        """Return at once."""

    @property
    def sockets(self) -> "tuple[MemoryServer, ...]":
        """The one that stands for all."""
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        """Return the name that is listened at, and a port."""
        return self._name, PORT


class End(asyncio.Transport):
    """One end of a connection, which belongs to one node."""

    peer: "End"

    def __init__(self, network: MemoryNetwork, protocol: asyncio.BaseProtocol, context: Context) -> None:
        super().__init__({"peername": _PEER, "sockname": _PEER})
        self._network = network
        self._protocol = protocol
        self._last_at = 0.0
        self._is_closing = False
        self.context = context
        self.node = node_of(context)
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes on their way, or let something befall them."""
        if self._is_closing or not data:
            return
        content = bytes(data)
        self._network.on_write("before send")
        self._network.acts += 1
        for listener in self._network.on_bytes:
            listener(self.node, content)
        self._write(content)
        self._network.on_write("after send")

    def _write(self, content: bytes) -> None:
        befalls = self._network.weather.misfortune(self.node, asyncio.get_running_loop().time())
        if befalls != "none":
            self._network.on_misfortune(self.node, befalls)
        match befalls:
            case "none":
                self._send(content)
            case "lost":
                pass
            case "reset_before":
                self._at_arrival(self._reset)
            case "reset_after":
                self._send(content)
                self._at_arrival(self._reset)
            case "cut":
                self._send(content[: len(content) // 2])
                self._at_arrival(self._reset)
            case "slow":
                self._last_at = asyncio.get_running_loop().time() + SLOW_SECONDS
                self._send(content)
                self._network.late.append(self._last_at)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send pieces as one."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close in order: what was written arrives, then the end of it."""
        self._close(None)

    def abort(self) -> None:
        """Close at once, with a reset that the other end sees."""
        self._close(ConnectionResetError("reset by peer"))

    def is_closing(self) -> bool:
        """Say whether the end of it has begun."""
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return whom the bytes are given to."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the bytes to somebody else from now on."""
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        """Return how much waits to be sent."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here, and so nothing is bounded."""

    def can_write_eof(self) -> bool:
        """Say that a connection ends both ways at once."""
        return False

    def is_reading(self) -> bool:
        """Say whether what arrives is delivered."""
        return not self._is_closing

    def pause_reading(self) -> None:
        """Nothing waits in a socket: what has arrived is delivered."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""

    def vanish(self) -> None:
        """Be gone with the node: its protocol hears nothing, its peer sees a reset."""
        self._is_closing = self.is_over = True
        self.peer.hear_of_end(ConnectionResetError("reset by peer"))

    def _send(self, content: bytes) -> None:
        self._at_arrival(self.peer.deliver, content)

    def _at_arrival(self, call: Callable[..., None], *args: object) -> None:
        """Call at the other end when what is on its way has arrived; bytes never overtake each other."""
        loop = asyncio.get_running_loop()
        self._last_at = max(self._last_at, loop.time() + self._network.weather.delay_seconds())
        loop.call_at(self._last_at, call, *args, context=self.peer.context)

    def deliver(self, content: bytes) -> None:
        """Give what has arrived to the protocol."""
        if not self._is_closing and isinstance(self._protocol, asyncio.Protocol):
            self._protocol.data_received(content)

    def _close(self, peer_sees: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._network.acts += 1
        asyncio.get_running_loop().call_soon(self._lose, None, context=self.context)
        self._at_arrival(self.peer.hear_of_end, peer_sees)

    def hear_of_end(self, error: Exception | None) -> None:
        """Learn that the other end has closed, or that the connection was reset."""
        if self._is_closing:
            return
        self._is_closing = True
        asyncio.get_running_loop().call_soon(self._lose, error, context=self.context)

    def _reset(self) -> None:
        for end in (self, self.peer):
            end.hear_of_end(ConnectionResetError("connection reset"))

    def _lose(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        if error is None and isinstance(self._protocol, asyncio.Protocol):
            self._protocol.eof_received()
        self._protocol.connection_lost(error)
