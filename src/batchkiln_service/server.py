"""The service as others use it: `LocalService`."""

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

from batchkiln_service.admin_api.admin_listener import listen_for_admin
from batchkiln_service.admin_api.app import AdminContext, build_admin_app
from batchkiln_service.admin_api.report_files import read_report, write_report
from batchkiln_service.api.routes import build_app
from batchkiln_service.clock import RandomStream, RunningClock, ServiceClock
from batchkiln_service.config import ServiceConfig
from batchkiln_service.context import PREFIX, Context, new_id
from batchkiln_service.db.admission import Admission
from batchkiln_service.db.assets import AssetStore, kept_assets
from batchkiln_service.db.creates import CreateStore
from batchkiln_service.db.database import Database
from batchkiln_service.db.fault_counts import find_tallies, replace_tallies, save_tallies
from batchkiln_service.db.generations import kept_files
from batchkiln_service.db.report import Report
from batchkiln_service.db.request_log import recent_arrivals
from batchkiln_service.db.setup import (
    buy_first_credits,
    calendar_of,
    configure_accounts,
    database_of,
    make_folder,
    opening,
    read_setting,
    resume_clock,
    save_rules,
    warn_of_clock_jump,
    write_setting,
)
from batchkiln_service.db.support import end_pending, settle_all
from batchkiln_service.dialects import Dialect
from batchkiln_service.errors import StateFolderInUseError
from batchkiln_service.faults import Faults
from batchkiln_service.media.renderer import Renderer
from batchkiln_service.media.worker_pool import MAX_EXAMINED_PIXELS, WorkerPool
from batchkiln_service.retention import Retention, RetentionSweeper, delete_strays, ended
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

    Raises `StateFolderInUseError` on entering when another process serves from the same folder,
    ValueError when a key's environment variable is not set, OSError when the port is taken.
    `is_inline`: without threads, for an event loop in virtual time, and without the disk's promise to keep the books.
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
        self._reporting = asyncio.Lock()  # one report at a time: each takes a thread for seconds
        self._has_served = False
        self._given_clock = clock
        self._port_file = port_file
        self._keys_in_clear: dict[str, str] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._lock(stack)
            with opening(self.config.state_dir):
                self._database = self._open_database(stack)
                await self._start_clock()
                await self._open_accounts()
            context = await self._build(stack)
            # Both are written when nobody is answered any more, and before the books are closed.
            stack.push_async_callback(self._write_last_report)
            stack.push_async_callback(self._save_tallies)
            await self._listen(stack, context)
            await self._listen_to_operator(stack)
            self._stack = stack.pop_all()
            self._has_served = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def api_key(self, account: str = "main") -> str:
        """Return a key of an account in clear: its first configured one, or the one made for it."""
        return self._keys_in_clear[account]

    async def idle(self) -> None:
        """Wait until every output that is owed has been drawn."""
        await self._renderer.idle()

    async def retention_done(self) -> None:
        """Wait until everything is deleted whose retention is over by now."""
        await self._housekeeping.done()

    async def help_pending(self, generation_id: str, outcome: Outcome = "success") -> bool:
        """End a generation that stays pending, as the service's support would; false while it has yet to be drawn.

        Raises `ApiError` when there is no such generation, or when it has ended.
        """
        now_ms = self.clock.now_ms()
        has_ended = await self._run(lambda connection: end_pending(connection, generation_id, outcome, now_ms))
        if not has_ended:
            await self._renderer.start_owed()  # nobody has begun to draw what was to fail
        return has_ended

    async def report(self) -> Report:
        """Report what clients did, as far as the request log goes back; takes seconds for a million requests."""
        async with self._reporting:
            now_ms = self.clock.now_ms()
            await self._run(lambda connection: settle_all(connection, now_ms))
            return await asyncio.to_thread(read_report, self.config, now_ms=now_ms)

    async def requests(self) -> list[dict[str, object]]:
        """Return the request log, oldest first: what proves that no client overstepped a limit."""
        return await self.query("SELECT * FROM requests ORDER BY id")

    async def query(self, sql: str) -> list[dict[str, object]]:
        """Read the books; for tests. The tables are those of `schema.sql`."""
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
            raise StateFolderInUseError(f"another process serves from {folder}") from error
        stack.callback(lock.release)

    def _open_database(self, stack: AsyncExitStack) -> Database:
        database = database_of(self.config.state_dir, is_inline=self._is_inline)
        stack.callback(database.close)
        database.open()
        return database

    async def _start_clock(self) -> None:
        """Take up service time where the last run left it, unless a clock was given."""
        if self._given_clock is not None:
            self.clock = self._given_clock
            return
        self.clock = RunningClock(await self._run(lambda connection: resume_clock(connection, self.config)))

    async def _open_accounts(self) -> None:
        """Enter the accounts and keys of the configuration; a key that has left it is revoked."""
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
        self.faults = Faults(config.faults, config.seed, await self._run(find_tallies))
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
            creates=CreateStore(config.limits, calendar),
            assets=AssetStore(config.limits, calendar),
            renderer=self._renderer,
            examining=examining,
            faults=self.faults,
            dice=RandomStream(config.seed),
            links=Links(bytes.fromhex(await self._run(_secret))),
            edge=await self._edge(),
            asset_dir=asset_dir,
            origin=self._origin_for,
            new_id=new_id if self._dialect is None else self._dialect.new_id,
        )
        await self._renderer.start_owed()
        await self._keep_house(stack, context, media_dir)
        return context

    async def _keep_house(self, stack: AsyncExitStack, context: Context, media_dir: Path) -> None:
        self._housekeeping = RetentionSweeper(
            database=self._database,
            clock=self.clock,
            retention=Retention.of(self.config),
            media_dir=media_dir,
            asset_dir=context.asset_dir,
            asset_locks=context.asset_locks,
        )
        task = asyncio.get_running_loop().create_task(self._housekeeping.run(), name="service-housekeeping")
        stack.push_async_callback(ended, task)

    def _origin_for(self, request: web.BaseRequest) -> str:
        return self._address.for_request(request)

    async def _edge(self) -> Firewall:
        """Make the firewall, with what it had counted in the minute before a restart."""
        minute_ms = round(self.config.limits.minute_seconds * 1000)
        since_ms = self.clock.now_ms() - minute_ms
        edge = Firewall(self.config.limits.requests_per_minute_per_ip, minute_ms)
        rows = await self._run(lambda connection: recent_arrivals(connection, since_ms))
        edge.restore(rows)
        return edge

    async def _listen(self, stack: AsyncExitStack, context: Context) -> None:
        """Open the port; when the stack is closed, who is being answered still gets the answer."""
        app = build_app(context)
        if self._dialect is not None:
            from batchkiln_service.dialects.dialect_middleware import dress  # noqa: PLC0415  only where there is a dialect

            dress(app, context, self._dialect)
        port = await listen(stack, app, self.config, now_ms=self.clock.now_ms)
        self._address = address_of(self.config, port)
        self.base_url = self._address.origin + PREFIX
        if self._port_file is not None:
            self._port_file.write_text(f"{port}\n", encoding="ascii")

    async def _listen_to_operator(self, stack: AsyncExitStack) -> None:
        if self.config.operator_port is None:
            return
        operated = AdminContext(
            base_url=self.base_url,
            time_scale=self.config.time_scale,
            clock=self.clock,
            database=self._database,
            faults=self.faults,
            end=self.help_pending,
            report=self.report,
        )
        self.operator_url = await listen_for_admin(
            stack, build_admin_app(operated), state_dir=self.config.state_dir, port=self.config.operator_port
        )

    async def _save_tallies(self) -> None:
        """Remember what the rules have met since they struck last."""
        try:
            await self._run(lambda connection: save_tallies(connection, self.faults.tallies()))
        except sqlite3.Error:
            _log.exception("fault_tallies_not_saved")

    async def _write_last_report(self) -> None:
        if self._report_file is not None and self._has_served:
            await asyncio.to_thread(write_report, await self.report(), self._report_file)


def _secret(connection: sqlite3.Connection) -> str:
    """Return the key that links are signed with, made at the first start."""
    secret = read_setting(connection, "link_secret")
    if secret is None:
        secret = secrets.token_hex(32)
        write_setting(connection, "link_secret", secret)
    return secret
