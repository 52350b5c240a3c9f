"""The operator's port: bound to loopback, and the same again after a restart."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from aiohttp import web

HOST: Final = "127.0.0.1"  # regardless of `host`: every client of this port may do anything
STOP_SECONDS: Final = 2.0  # as for the API's own requests


async def listen_for_admin(stack: AsyncExitStack, app: web.Application, *, state_dir: Path, port: int) -> str:
    """Bind the port until the stack is closed, and return its URL. Port 0 is the port of the last run, or any free one.

    Raises OSError if the port is in use.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    path = state_dir / "operator-port"
    wanted = [port] if port else [*_remembered(path), 0]
    for number in wanted:
        try:
            await web.TCPSite(runner, HOST, number).start()
        except OSError:
            if number == wanted[-1]:
                raise
            continue
        break
    bound = int(runner.addresses[0][1])
    path.write_text(f"{bound}\n", encoding="ascii")
    return f"http://{HOST}:{bound}"


def _remembered(path: Path) -> list[int]:
    try:
        return [int(path.read_text(encoding="ascii"))]
    except (OSError, ValueError):
        return []
