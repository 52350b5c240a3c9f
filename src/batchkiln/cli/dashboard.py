"""`batchkiln dashboard`, and the dashboard that `run` and `work` serve beside their work."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import click

from batchkiln.cli.command import command, run_async
from batchkiln.cli.options import Common
from batchkiln.cli.output import is_terminal, print_json, print_status
from batchkiln.core.errors import BatchkilnError, ExitStatus

if TYPE_CHECKING:
    from batchkiln.api.engine import Engine
    from batchkiln.dashboard.server import Served


@command("dashboard", example="batchkiln dashboard\nbatchkiln dashboard --port 8700 --no-open", logs=True)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Default: 8642, or any free one.")
@click.option("--no-open", "is_silent", is_flag=True, help="Do not open a browser.")
def dashboard(common: Common, *, port: int | None, is_silent: bool) -> ExitStatus:
    """Serve the web page of this queue until a signal, on this machine alone.

    Works while another process drives the queue, and without one. It only reads, unless you ask it for what
    `retry`, `cancel`, `pause`, `unpause` and `resolve` do; it says first what that may cost.
    """
    return run_async(_dashboard(common, port, is_silent=is_silent))


async def _dashboard(common: Common, port: int | None, *, is_silent: bool) -> ExitStatus:
    from batchkiln.dashboard.auth import token_file  # noqa: PLC0415  a server's libraries are slow to import
    from batchkiln.dashboard.server import serving  # noqa: PLC0415  likewise

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(common.queue, common.load_config(), port=port) as served:
        if common.is_json:
            print_json({"url": served.url, "token_file": str(token_file(common.queue))})
        else:
            _say_link(served)
        if not is_silent and not common.is_json:
            await _open(served)
        await stop.wait()
    return ExitStatus.OK


@asynccontextmanager
async def dashboard_beside(engine: "Engine", *, is_wanted: bool) -> AsyncIterator[None]:
    """Serve the dashboard of the queue that is being driven. A run goes on without it where it cannot be served."""
    async with AsyncExitStack() as stack:
        if is_wanted:
            from batchkiln.dashboard.live_state import EngineProbe  # noqa: PLC0415  as above
            from batchkiln.dashboard.server import serving  # noqa: PLC0415  as above

            try:
                served = await stack.enter_async_context(
                    serving(engine.store.path, engine.setting.config, beside=EngineProbe(engine))
                )
            except (BatchkilnError, OSError) as error:
                print_status(f"The run goes on without its dashboard: {error}")
            else:
                _say_link(served)
        yield


def _say_link(served: "Served") -> None:
    print_status(f"The dashboard is at {served.link} (the link lets in whoever has it).")


async def _open(served: "Served") -> None:
    """Open a browser where there is a desktop; in a terminal it would take the terminal."""
    has_desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_desktop and is_terminal(sys.stderr):
        import webbrowser  # noqa: PLC0415  nobody else needs it

        await asyncio.to_thread(webbrowser.open, served.link_for_once())
