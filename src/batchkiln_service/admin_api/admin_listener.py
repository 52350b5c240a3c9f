"""The operator's port: bound to this machine's loopback alone, and remembered."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from aiohttp import web

HOST: Final = "127.0.0.1"  # wherever the API is bound: who reaches this port may do anything
STOP_SECONDS: Final = 2.0  # as long as the API's own requests may take when the service is told to stop


async def listen_for_admin(stack: AsyncExitStack, app: web.Application, *, state_dir: Path, port: int) -> str:
    """Open the port until the stack is closed, 0 for that of the last run or any free one; return its URL.

    Raises OSError when the port is taken.
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
