"""`LocalService`: starts and stops the service in this process."""

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from aiohttp import web
from filelock import FileLock, Timeout

from batchkiln_service.admin_api import AdminContext, build_admin_app, is_loopback, listen_for_admin
from batchkiln_service.api.routes import build_app
from batchkiln_service.clock import ManualClock, RandomStream, RunningClock, ServiceClock
from batchkiln_service.config import LAST_INSTANT_MS, ServiceConfig
from batchkiln_service.context import PREFIX, Context, new_id
from batchkiln_service.db.admission import Admission
from batchkiln_service.db.assets import AssetStore, kept_assets
from batchkiln_service.db.client_report import read_report, write_report
from batchkiln_service.db.creates import CreateStore
from batchkiln_service.db.database import Database
from batchkiln_service.db.generations import end_pending, kept_files, settle_all
from batchkiln_service.db.report import Report
from batchkiln_service.db.request_log import find_tallies, recent_arrivals, replace_tallies, save_tallies
from batchkiln_service.db.reset import empty
from batchkiln_service.db.setup import (
    advance_clock,
    buy_first_credits,
    calendar_of,
    configure_accounts,
    database_of,
    make_folder,
    read_setting,
    resume_clock,
    save_rules,
    schema,
    setup_lock,
    warn_of_clock_jump,
    write_setting,
)
from batchkiln_service.dialects import Dialect
from batchkiln_service.errors import ApiError, StateFolderInUseError
from batchkiln_service.faults.registry import Faults
from batchkiln_service.media.renderer import Renderer
from batchkiln_service.media.worker_pool import MAX_EXAMINED_PIXELS, WorkerPool
from batchkiln_service.retention import Retention, RetentionSweeper, delete_finished, delete_strays, ended
from batchkiln_service.rules.catalog import load_catalog
from batchkiln_service.rules.lifecycle import Outcome
from batchkiln_service.rules.windows import Counting
from batchkiln_service.transport.firewall import Firewall
from batchkiln_service.transport.links import Links
from batchkiln_service.transport.listener import address_of, listen

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class LocalService:
    """The service in this process: `async with LocalService(config) as service`.

    Entering raises `StateFolderInUseError` if another process serves from the same folder, ValueError if a key's
    environment variable is not set, and OSError if the port is in use. `is_inline` runs without threads, for an event
    loop in virtual time, and without flushing the database to disk.
    """

    faults: Faults
    clock: ServiceClock
    base_url: str
    operator_url: str | None = None  # set when `operator_port` is

    def __init__(
        self,
        config: ServiceConfig,
        clock: ServiceClock | None = None,
        port_file: Path | None = None,
        *,
        report_file: Path | None = None,
        is_inline: bool = False,
    ) -> None:
        self._dialect = Dialect.of(config)
        self.config = config if self._dialect is None else self._dialect.in_configuration(config)
        self._is_inline = is_inline
        self._report_file = report_file
        self._reporting = asyncio.Lock()  # one report at a time, because each occupies a thread for seconds
        self._has_served = False
        self._given_clock = clock
        self._port_file = port_file
        self._keys_in_clear: dict[str, str] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._lock(stack)
            with setup_lock(self.config.state_dir):
                self._database = self._open_database(stack)
                await self._start_clock()
                await self._open_accounts()
            self._context = context = await self._build(stack)
            # Both are written after the last reply and before the database is closed.
            stack.push_async_callback(self._write_last_report)
            stack.push_async_callback(self._save_tallies)
            await self._listen(stack, context)
            await self._listen_to_operator(stack)
            self._stack = stack.pop_all()
            self._has_served = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def api_key(self, account: str = "main") -> str:
        """Return a working key of an account in plain text: the first configured one, or the one created for it."""
        return self._keys_in_clear[account]

    async def idle(self) -> None:
        """Wait until all pending outputs are rendered."""
        await self._renderer.idle()

    async def retention_done(self) -> None:
        """Wait until everything that has expired by now is deleted."""
        await self._retention.done()

    async def end_pending_generation(self, generation_id: str, outcome: Outcome = "success") -> bool:
        """End a generation that stays pending, as the service's support would.

        Return False for a success that is not rendered yet; the generation then ends once it is rendered. Raise
        `ApiError` if the generation does not exist or has ended.
        """
        now_ms = self.clock.now_ms()
        has_ended = await self._run(lambda connection: end_pending(connection, generation_id, outcome, now_ms))
        if not has_ended:
            await self._renderer.start_pending()  # a generation that was to fail has no rendering task yet
        return has_ended

    async def advance(self, seconds: float) -> None:
        """Draw the files of pending generations, then advance service time by this many seconds.

        A generation whose time has passed has therefore ended afterwards. Raise `ApiError` if the clock cannot be moved
        or would leave the range of instants.
        """
        if not isinstance(self.clock, RunningClock | ManualClock):
            raise ApiError(409, "clock_not_movable", "this service runs on a clock that cannot be advanced")
        if self.clock.now_ms() + seconds * 1000 > LAST_INSTANT_MS:
            raise ApiError(422, "invalid_request", "advance: the clock ends with the year 2999")
        await self.idle()
        await self._run(lambda connection: advance_clock(connection, seconds))
        self.clock.advance(seconds)

    async def reset(self) -> None:
        """Forget all generations, uploads, requests and purchases, as in a new state folder.

        API keys, the clock and the ports stay. Initial credits are bought again, and the configured faults are active
        from the start.
        """
        await self.idle()
        now_ms = self.clock.now_ms()

        def start_over(connection: sqlite3.Connection) -> None:
            empty(connection, schema())
            buy_first_credits(connection, self.config, now_ms=now_ms)
            self.faults.reset()
            replace_tallies(connection, self.faults.tallies())

        await self._run(start_over)
        self._context.firewall.reset()
        for folder in (self.config.state_dir / "media", self.config.state_dir / "assets"):
            await asyncio.to_thread(delete_finished, folder)

    async def report(self) -> Report:
        """Return the report on the clients' requests, from the whole log; takes seconds for a million requests."""
        async with self._reporting:
            now_ms = self.clock.now_ms()
            await self._run(lambda connection: settle_all(connection, now_ms))
            return await asyncio.to_thread(read_report, self.config, now_ms=now_ms)

    async def requests(self) -> list[dict[str, object]]:
        """Return the rows of the request log, oldest first."""
        return await self.query("SELECT * FROM requests ORDER BY id")

    async def query(self, sql: str) -> list[dict[str, object]]:
        """Run a query on the database, for tests. `schema.sql` defines the tables."""
        return await self._run(lambda connection: [dict(row) for row in connection.execute(sql)])

    async def _run(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._database.run(job)

    def _lock(self, stack: AsyncExitStack) -> None:
        folder = self.config.state_dir
        make_folder(folder)
        lock = FileLock(folder / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            remedy = "stop it, or choose another --state-dir; nothing was started"
            raise StateFolderInUseError(f"another process serves from {folder}; {remedy}") from error
        stack.callback(lock.release)

    def _open_database(self, stack: AsyncExitStack) -> Database:
        database = database_of(self.config.state_dir, is_inline=self._is_inline)
        stack.callback(database.close)
        database.open()
        return database

    async def _start_clock(self) -> None:
        """Continue service time from the last run, unless a clock was passed in."""
        if self._given_clock is not None:
            self.clock = self._given_clock
            return
        self.clock = RunningClock(await self._run(lambda connection: resume_clock(connection, self.config)))

    async def _open_accounts(self) -> None:
        """Create configured accounts and keys, and revoke keys that are no longer configured."""
        now_ms = self.clock.now_ms()

        def enter(connection: sqlite3.Connection) -> dict[str, str]:
            save_rules(connection, self.config)
            warn_of_clock_jump(connection, self.config, now_ms=now_ms)
            keys = configure_accounts(connection, self.config, now_ms=now_ms)
            buy_first_credits(connection, self.config, now_ms=now_ms)
            return keys

        self._keys_in_clear = await self._run(enter)

    async def _build(self, stack: AsyncExitStack) -> Context:
        config, folder = self.config, self.config.state_dir
        media_dir, asset_dir = folder / "media", folder / "assets"
        media_dir.mkdir(exist_ok=True)
        asset_dir.mkdir(exist_ok=True)
        await asyncio.to_thread(delete_strays, media_dir, await self._run(kept_files))
        await asyncio.to_thread(delete_strays, asset_dir, await self._run(kept_assets))
        calendar = calendar_of(config)
        self._renderer = Renderer(
            media_dir=media_dir,
            asset_dir=asset_dir,
            database=self._database,
            clock=self.clock,
            retention_ms=Retention.of(config).media_ms,
            is_inline=self._is_inline,
        )
        stack.callback(self._renderer.close)
        examining = WorkerPool(
            "service-examine", workers=1, max_thread_pixels=MAX_EXAMINED_PIXELS, is_inline=self._is_inline
        )
        stack.callback(examining.close)
        self.faults = Faults(config.faults, config.seed or 0, await self._run(find_tallies))
        await self._run(lambda connection: replace_tallies(connection, self.faults.tallies()))
        context = Context(
            config=config,
            clock=self.clock,
            catalog=load_catalog(),
            database=self._database,
            admission=Admission(
                config.limits,
                calendar,
                keeps_all=config.keep_requests,
                counting=Counting() if self._dialect is None else self._dialect.counting,
            ),
            creates=CreateStore(config.limits, calendar, time_scale=config.time_scale),
            assets=AssetStore(config.limits, calendar),
            renderer=self._renderer,
            examining=examining,
            faults=self.faults,
            random=RandomStream(config.seed or 0),
            links=Links(bytes.fromhex(await self._run(_secret))),
            firewall=await self._firewall(),
            asset_dir=asset_dir,
            origin=self._origin_for,
            operator_url=lambda: self.operator_url,
            form_id=new_id if self._dialect is None else self._dialect.new_id,
        )
        await self._renderer.start_pending()
        await self._start_retention(stack, context, media_dir)
        return context

    async def _start_retention(self, stack: AsyncExitStack, context: Context, media_dir: Path) -> None:
        self._retention = RetentionSweeper(
            database=self._database,
            clock=self.clock,
            retention=Retention.of(self.config),
            media_dir=media_dir,
            asset_dir=context.asset_dir,
            asset_locks=context.asset_locks,
        )
        task = asyncio.get_running_loop().create_task(self._retention.run(), name="service-retention")
        stack.push_async_callback(ended, task)

    def _origin_for(self, request: web.BaseRequest) -> str:
        return self._address.for_request(request)

    async def _firewall(self) -> Firewall:
        """Return the firewall, with the requests of the last minute before a restart counted."""
        minute_ms = round(self.config.limits.minute_seconds * 1000)
        since_ms = self.clock.now_ms() - minute_ms
        firewall = Firewall(self.config.limits.requests_per_minute_per_ip, minute_ms)
        rows = await self._run(lambda connection: recent_arrivals(connection, since_ms))
        firewall.restore(rows)
        return firewall

    async def _listen(self, stack: AsyncExitStack, context: Context) -> None:
        """Open the port; when the stack is closed, replies under way are completed."""
        app = build_app(context)
        if self._dialect is not None:
            from batchkiln_service.dialects.dialect_middleware import install_dialect  # noqa: PLC0415  only where there is a dialect

            install_dialect(app, context, self._dialect)
        port = await listen(stack, app, self.config, now_ms=self.clock.now_ms)
        self._address = address_of(self.config, port)
        self.base_url = self._address.origin + PREFIX
        if self._port_file is not None:
            self._port_file.write_text(f"{port}\n", encoding="ascii")

    async def _listen_to_operator(self, stack: AsyncExitStack) -> None:
        if self.config.operator_port is None:
            return
        admin = AdminContext(
            base_url=self.base_url,
            time_scale=self.config.time_scale,
            clock=self.clock,
            database=self._database,
            faults=self.faults,
            end=self.end_pending_generation,
            report=self.report,
            advance=self.advance,
            reset=self.reset,
            is_open=not is_loopback(self.config.operator_host),
        )
        self.operator_url = await listen_for_admin(
            stack,
            build_admin_app(admin),
            state_dir=self.config.state_dir,
            host=self.config.operator_host,
            port=self.config.operator_port,
        )

    async def _save_tallies(self) -> None:
        """Save the counts of the fault rules since their last application."""
        try:
            await self._run(lambda connection: save_tallies(connection, self.faults.tallies()))
        except sqlite3.Error:
            _log.exception("fault_tallies_not_saved")

    async def _write_last_report(self) -> None:
        if self._report_file is not None and self._has_served:
            await asyncio.to_thread(write_report, await self.report(), self._report_file)


def _secret(connection: sqlite3.Connection) -> str:
    """Return the key that signs links; it is created at the first start."""
    secret = read_setting(connection, "link_secret")
    if secret is None:
        secret = secrets.token_hex(32)
        write_setting(connection, "link_secret", secret)
    return secret
