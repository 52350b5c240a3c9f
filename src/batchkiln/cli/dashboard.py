"""`batchkiln dashboard`, and the `--dashboard` option of `run`, `work` and `watch`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import click

from batchkiln.cli.command import Common, command, run_async
from batchkiln.cli.output import is_terminal, print_json, print_status
from batchkiln.core.errors import BatchkilnError, ExitStatus

if TYPE_CHECKING:
    from batchkiln.api.engine import Engine
    from batchkiln.dashboard.server import ServedDashboard


@command("dashboard", example="batchkiln dashboard\nbatchkiln dashboard --port 8700 --no-open", logs=True)
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N", help="Default: 8642, or a free port if that is taken."
)
@click.option("--no-open", "no_browser", is_flag=True, help="Do not open a browser.")
def dashboard(common: Common, *, port: int | None, no_browser: bool) -> ExitStatus:
    """Serve the web dashboard of this queue until a signal, on this machine only.

    Works with or without a process that runs the queue. The dashboard only reads the queue, except for the actions
    `retry`, `cancel`, `pause`, `unpause` and `resolve`. Each states its possible cost first.
    """
    return run_async(_dashboard(common, port, no_browser=no_browser))


async def _dashboard(common: Common, port: int | None, *, no_browser: bool) -> ExitStatus:
    from batchkiln.dashboard.auth import token_file  # noqa: PLC0415  a server's libraries are slow to import
    from batchkiln.dashboard.server import serving_dashboard  # noqa: PLC0415  as above

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving_dashboard(common.queue, common.load_config(), port=port) as served:
        if common.is_json:
            print_json({"url": served.url, "token_file": str(token_file(common.queue))})
        else:
            _print_link(served)
        if not no_browser and not common.is_json:
            await _open_browser(served)
        await stop.wait()
    return ExitStatus.OK


@asynccontextmanager
async def dashboard_during_run(engine: "Engine", *, is_wanted: bool) -> AsyncIterator[None]:
    """Serve the dashboard while the block runs. If that fails, print the reason; the run continues without it."""
    async with AsyncExitStack() as stack:
        if is_wanted:
            from batchkiln.dashboard.live_state import EngineProbe  # noqa: PLC0415  as above
            from batchkiln.dashboard.server import serving_dashboard  # noqa: PLC0415  as above

            try:
                served = await stack.enter_async_context(
                    serving_dashboard(engine.app.queue, engine.app.config, engine=EngineProbe(engine))
                )
            except (BatchkilnError, OSError) as error:
                print_status(f"The run continues without a dashboard: {error}")
            else:
                _print_link(served)
        yield


def _print_link(served: "ServedDashboard") -> None:
    print_status(f"The dashboard is at {served.link} (anyone with this link has access).")


async def _open_browser(served: "ServedDashboard") -> None:
    """Open a browser if there is a desktop; a text browser would take over the terminal."""
    has_desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_desktop and is_terminal(sys.stderr):
        import webbrowser  # noqa: PLC0415  only needed here

        await asyncio.to_thread(webbrowser.open, served.one_time_link())
