"""A TCP relay that reaches the local service from another loopback address, as if from another machine."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PIECE = 64 * 1024


@contextmanager
def relay(target: int, source: str) -> Iterator[int]:
    """Carry connections to the port `target` of 127.0.0.1 from the address `source`; yield the port to connect to."""
    loop = asyncio.new_event_loop()
    carriers: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        carriers.add(task)
        task.add_done_callback(carriers.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target, local_addr=(source, 0))
            try:
                await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))
            finally:
                far_writer.close()
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(carry, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, name=f"relay-{source}")
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:

        async def end() -> None:
            server.close()
            for task in list(carriers):
                task.cancel()
            await asyncio.gather(*carriers, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
