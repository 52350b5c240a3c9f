"""`batchkiln dashboard`, and the `--dashboard` option of `run`, `work` and `watch`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from batchkiln.cli.command import Common, Signals, command, run_async
from batchkiln.cli.output import is_terminal, print_json, print_status
from batchkiln.config import Config, HttpSettings, host_problem, network_of, public_url_problem
from batchkiln.core.errors import BatchkilnError, ExitStatus, InputError

if TYPE_CHECKING:
    from batchkiln.api import QueueLocation
    from batchkiln.api.engine import Engine
    from batchkiln.dashboard.server import ServedDashboard


@command("dashboard", example="batchkiln dashboard\nbatchkiln dashboard --port 8700 --no-open", logs=True)
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N", help="Default: 8642, or a free port if that is taken."
)
@click.option("--no-open", "no_browser", is_flag=True, help="Do not open a browser.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on; default 127.0.0.1. Others need a token.")
@click.option("--public-url", metavar="URL", help="The dashboard's URL as browsers see it, such as that of a proxy.")
@click.option(
    "--trusted-proxy",
    "proxies",
    metavar="NETWORK",
    multiple=True,
    help="A proxy whose X-Forwarded-Host and X-Forwarded-Proto count, as address or network; can be repeated.",
)
def dashboard(
    common: Common,
    *,
    port: int | None,
    no_browser: bool,
    host: str | None,
    public_url: str | None,
    proxies: tuple[str, ...],
) -> ExitStatus:
    """Serve the web dashboard of this queue until a signal, on this machine only unless --host is given.

    Works with or without a process that runs the queue. A person may review items there, and make the
    changes of `retry`, `redo`, `cancel`, `pause`, `unpause` and `resolve`; each states its possible cost first. With
    http.tokens in the configuration, other programs may use the queue over HTTP below /api/v1.
    """
    config = common.load_config()
    config.http = _with_options(config.http, host, public_url, proxies)
    return run_async(_dashboard(common, config, port, no_browser=no_browser))


def _with_options(http: HttpSettings, host: str | None, public_url: str | None, proxies: Sequence[str]) -> HttpSettings:
    """Return the settings with those of the command line. Raise `InputError` for an invalid one."""
    if host is not None and (problem := host_problem(host)):
        raise InputError(f"--host {host}: {problem}; nothing was served")
    if public_url is not None and (problem := public_url_problem(public_url)):
        raise InputError(f"--public-url: {problem}; nothing was served")
    try:
        networks = tuple(network_of(text) for text in proxies)
    except ValueError as error:
        raise InputError(f"--trusted-proxy: {error}; nothing was served") from None
    return replace(
        http,
        host=host or http.host,
        public_url=public_url.rstrip("/") if public_url is not None else http.public_url,
        trusted_proxies=networks or http.trusted_proxies,
    )


async def _dashboard(common: Common, config: Config, port: int | None, *, no_browser: bool) -> ExitStatus:
    from batchkiln.dashboard.server import serving_dashboard  # noqa: PLC0415  a server's libraries are slow to import

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    code = None
    if isinstance(common.queue, Path) and not common.queue.exists() and not common.is_json:
        port, code = await _wait_for_queue(common.queue, config.http, port, stop, no_browser=no_browser)
        if stop.is_set():
            return ExitStatus.OK
    async with serving_dashboard(common.queue, config, profile=common.profile, port=port, code=code) as served:
        if common.is_json:
            print_json({"url": served.url, "token_file": None if served.token_file is None else str(served.token_file)})
        else:
            _print_link(served, common.queue)
        _print_warning(served)
        if not no_browser and not common.is_json and code is None:
            await _open_browser(served.one_time_link())
        await stop.wait()
    return ExitStatus.OK


async def _wait_for_queue(
    queue: Path, http: HttpSettings, port: int | None, stop: asyncio.Event, *, no_browser: bool
) -> tuple[int, str]:
    """Serve a page that says how the queue is made, until it is there. Return the port and the code of that page."""
    from batchkiln.dashboard.waiting import serving_waiting_page, wait_for_queue  # noqa: PLC0415  as above

    async with serving_waiting_page(queue, http, port=port) as page:
        has_code = is_terminal(sys.stderr) and not http.is_beyond_loopback
        url = f"{page.url}/?once={page.code}" if has_code else page.url
        print_status(
            f"No queue yet: {queue.absolute()} does not exist. `batchkiln run` or `batchkiln enqueue` creates it, and "
            f"the dashboard at {url} then shows it."
        )
        if not no_browser:
            await _open_browser(f"{page.url}/?once={page.code}")
        await wait_for_queue(queue, stop)
        return page.port, page.code


class RunDashboard:
    """The dashboard of a run. It can outlive the engine that it shows: its pages read the queue themselves."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Serve nothing yet; `stack` closes what is served."""
        self._stack = stack
        self._served: ServedDashboard | None = None

    @asynccontextmanager
    async def showing(self, engine: "Engine", *, is_wanted: bool) -> AsyncIterator[None]:
        """Serve the dashboard, with the state of this engine while the block runs.

        If it cannot be served, print the reason; the run continues without it.
        """
        if not is_wanted:
            yield
            return
        from batchkiln.dashboard.live_state import EngineProbe  # noqa: PLC0415  as above
        from batchkiln.dashboard.server import serving_dashboard  # noqa: PLC0415  as above

        app, probe = engine.app, EngineProbe(engine)
        serving = serving_dashboard(app.queue, app.config, profile=app.profile, engine=probe)
        try:
            self._served = await self._stack.enter_async_context(serving)
        except (BatchkilnError, OSError) as error:
            print_status(f"The run continues without a dashboard of its own: {error}")
        else:
            _print_link(self._served, app.queue)
            if not is_terminal(sys.stderr):
                print_status("It ends with this process; `batchkiln dashboard` serves the queue without one.")
            _print_warning(self._served)
        try:
            yield
        finally:
            probe.release()

    async def stay_open(self, signals: Signals) -> None:
        """Serve on until a signal if the run ended by itself on a terminal.

        The queue is free for other processes meanwhile.
        """
        if self._served is None or signals.received is not None:
            return
        if not is_terminal(sys.stderr):
            print_status("The dashboard has ended with the run: `batchkiln dashboard` shows the queue again.")
            return
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        print_status(f"The run has ended. Its dashboard stays at {self._served.url} until Ctrl-C.")
        await stop.wait()


@asynccontextmanager
async def dashboard_of_run() -> AsyncIterator[RunDashboard]:
    """Yield what can serve the dashboard of a run, and stop it in the end."""
    async with AsyncExitStack() as stack:
        yield RunDashboard(stack)


def _print_link(served: "ServedDashboard", queue: "QueueLocation") -> None:
    """Print the link that signs in, or only the address where a log may keep the output, as that of a container."""
    if served.http.is_beyond_loopback:
        print_status(f"The dashboard is at {served.url} (sign in with a token of http.tokens)")
    elif is_terminal(sys.stderr):
        print_status(f"The dashboard is at {served.link} (anyone with this link has access)")
    elif served.token_file is not None:
        print_status(f"The dashboard is at {served.url} (sign in with the token in {served.token_file})")
    else:
        from batchkiln.dashboard.auth import token_file  # noqa: PLC0415  a server's libraries are slow to import

        print_status(
            f"The dashboard is at {served.url}, but its token cannot be stored in {token_file(queue).absolute()}: make "
            "that folder writable and start it again, or sign in with a token of http.tokens"
        )


def _print_warning(served: "ServedDashboard") -> None:
    """Say that other machines can reach the queue, and whether their tokens cross the network unencrypted."""
    if not served.http.is_beyond_loopback:
        return
    names = ", ".join(token.name for token in served.http.tokens)
    print_status(f"Warning: other machines can reach this queue at {served.listens_at}, with the tokens {names}.")
    if served.url.startswith("https://"):
        print_status(f"Let only the proxy of {served.url} reach that address: it is not encrypted.")
    else:
        print_status(
            "Tokens cross the network unencrypted. Put a proxy with TLS in front, and name it by --public-url."
        )


async def _open_browser(link: str) -> None:
    """Open a browser if there is a desktop; a text browser would take over the terminal."""
    has_desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_desktop and is_terminal(sys.stderr):
        import webbrowser  # noqa: PLC0415  only needed here

        await asyncio.to_thread(webbrowser.open, link)
