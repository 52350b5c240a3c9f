"""A network in memory: byte streams between nodes, with a delay and optional faults for each write.

aiohttp's server and client use it unchanged, through the event loop's connections to Unix sockets.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Final, Literal, Protocol

from msgspec import Struct

from batchkiln.rehearsal.nodes import node_of

NetworkFault = Literal[
    "none",
    "lost",  # the bytes are lost, and the connection stays open
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
    """Delays and faults of a network, drawn from a seed."""

    def delay_seconds(self) -> float:
        """Return how many seconds the next bytes travel."""
        ...

    def next_fault(self, sender: str, now: float) -> NetworkFault:
        """Return the fault of a node's next write; `now` is the loop's time."""
        ...


class ReliableNetwork:
    """A network without faults and with a delay of one millisecond."""

    def delay_seconds(self) -> float:
        """Return one millisecond."""
        return 0.001

    def next_fault(self, sender: str, now: float) -> NetworkFault:
        """Return "none"."""
        del sender, now
        return "none"


class _Listener(Struct, frozen=True):
    factory: _Factory
    context: Context


class MemoryNetwork:
    """All listening names, and all connections between nodes."""

    def __init__(self, conditions: NetworkConditions | None = None) -> None:
        self.conditions: NetworkConditions = conditions or ReliableNetwork()
        self.on_write: Callable[[str], None] = lambda _: None  # called before and after each write of a node
        self.on_bytes: list[Callable[[str, bytes], None]] = []  # called with the bytes that a node is about to write
        # called with the node whose write had a fault
        self.on_misfortune: Callable[[str, NetworkFault], None] = lambda _, __: None
        self.acts = 0  # connections opened and closed, and writes
        self.address_of: Callable[[str], str] = lambda _: _PEER[0]  # of a node, as its peers see it
        self.late: list[float] = []  # when bytes arrived much later than their sender could know
        self._listeners: dict[str, _Listener] = {}
        self._ends: list[End] = []

    def listen(self, name: str, factory: _Factory) -> "MemoryServer":
        """Accept connections at a name for the current node."""
        self._listeners[name] = _Listener(factory, copy_context())
        return MemoryServer(self, name)

    def stop_listening(self, name: str) -> None:
        """Refuse new connections; existing ones remain."""
        self._listeners.pop(name, None)

    async def connect(self, name: str, factory: _Factory) -> "tuple[End, asyncio.BaseProtocol]":
        """Connect the current node. Raise ConnectionRefusedError if the name is not listening."""
        await asyncio.sleep(self.conditions.delay_seconds())  # noqa: TID251  the loop's own, virtual time
        listener = self._listeners.get(name)
        if listener is None:
            raise ConnectionRefusedError(f"{name} is not listening")
        near_protocol = factory()
        far_protocol = listener.context.copy().run(listener.factory)
        self.acts += 1
        near = End(self, near_protocol, copy_context(), peer=node_of(listener.context))
        far = End(self, far_protocol, listener.context.copy(), peer=near.node)
        near.peer, far.peer = far, near
        self._ends = [end for end in self._ends if not end.is_over] + [near, far]
        near_protocol.connection_made(near)
        far.context.run(far_protocol.connection_made, far)
        return near, near_protocol

    def cut_off(self, node: str) -> None:
        """Remove a dead node's names and connections; the other ends see a reset."""
        self._listeners = {
            name: listener for name, listener in self._listeners.items() if node_of(listener.context) != node
        }
        for end in self._ends:
            if end.node == node:
                end.drop()
        self._ends = [end for end in self._ends if end.node != node]


class MemoryServer:
    """The server that `create_server` returns; it is also its own only socket."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def start_serving(self) -> None:
        """Return at once; the server has been serving since its creation."""

    def close(self) -> None:
        """Stop listening."""
        self._network.stop_listening(self._name)

    async def wait_closed(self) -> None:
        """Return at once."""

    @property
    def sockets(self) -> "tuple[MemoryServer, ...]":
        """The single socket, which is the server itself."""
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        """Return the listening name, and a port."""
        return self._name, PORT


class End(asyncio.Transport):
    """One end of a connection; it belongs to one node."""

    peer: "End"

    def __init__(self, network: MemoryNetwork, protocol: asyncio.BaseProtocol, context: Context, *, peer: str) -> None:
        super().__init__({"peername": (network.address_of(peer), _PEER[1]), "sockname": _PEER})
        self._network = network
        self._protocol = protocol
        self._last_at = 0.0
        self._is_closing = False
        self.context = context
        self.node = node_of(context)
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, unless a fault affects them."""
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
        fault = self._network.conditions.next_fault(self.node, asyncio.get_running_loop().time())
        if fault != "none":
            self._network.on_misfortune(self.node, fault)
        match fault:
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
        """Send several pieces as one."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close the connection after the written bytes have arrived."""
        self._close(None)

    def abort(self) -> None:
        """Close the connection at once with a reset."""
        self._close(ConnectionResetError("reset by peer"))

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that receives the bytes."""
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no write buffer."""

    def can_write_eof(self) -> bool:
        """Return False: a connection always closes in both directions."""
        return False

    def is_reading(self) -> bool:
        """Return whether arriving bytes are delivered."""
        return not self._is_closing

    def pause_reading(self) -> None:
        """Do nothing: bytes that have arrived are always delivered."""

    def resume_reading(self) -> None:
        """Do nothing, as in `pause_reading`."""

    def drop(self) -> None:
        """Drop the connection because its node died: the protocol gets no more calls, and the peer sees a reset."""
        self._is_closing = self.is_over = True
        self.peer.on_peer_closed(ConnectionResetError("reset by peer"))

    def _send(self, content: bytes) -> None:
        self._at_arrival(self.peer.deliver, content)

    def _at_arrival(self, call: Callable[..., None], *args: object) -> None:
        """Call a function at the other end after earlier bytes have arrived; bytes keep their order."""
        loop = asyncio.get_running_loop()
        self._last_at = max(self._last_at, loop.time() + self._network.conditions.delay_seconds())
        loop.call_at(self._last_at, call, *args, context=self.peer.context)

    def deliver(self, content: bytes) -> None:
        """Pass bytes that have arrived to the protocol."""
        if not self._is_closing and isinstance(self._protocol, asyncio.Protocol):
            self._protocol.data_received(content)

    def _close(self, peer_sees: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._network.acts += 1
        asyncio.get_running_loop().call_soon(self._end_protocol, None, context=self.context)
        self._at_arrival(self.peer.on_peer_closed, peer_sees)

    def on_peer_closed(self, error: Exception | None) -> None:
        """Close this end, because the other end closed or the connection was reset."""
        if self._is_closing:
            return
        self._is_closing = True
        asyncio.get_running_loop().call_soon(self._end_protocol, error, context=self.context)

    def _reset(self) -> None:
        for end in (self, self.peer):
            end.on_peer_closed(ConnectionResetError("connection reset"))

    def _end_protocol(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        if error is None and isinstance(self._protocol, asyncio.Protocol):
            self._protocol.eof_received()
        self._protocol.connection_lost(error)
