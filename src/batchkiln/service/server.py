"""The service as others use it: `LocalService`, and `serve` for a process of its own."""

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import orjson
from aiohttp import web
from filelock import FileLock, Timeout

from batchkiln.service.api.app import build_app
from batchkiln.service.api.context import PREFIX, Context
from batchkiln.service.api.edge import EdgeFirewall
from batchkiln.service.books.admission import Admission
from batchkiln.service.books.assets import AssetBooks
from batchkiln.service.books.creating import CreateBooks
from batchkiln.service.books.credits import open_account
from batchkiln.service.books.database import Database
from batchkiln.service.books.generations import find_unrendered, mark_helped
from batchkiln.service.books.keys import KeyHolder, digest_of, enter_configured
from batchkiln.service.clock import Anchor, Dice, RunningClock, ServiceClock, resume
from batchkiln.service.config import AccountConfig, ServiceConfig
from batchkiln.service.errors import StateFolderInUseError
from batchkiln.service.faults import Faults
from batchkiln.service.media.renderer import Renderer
from batchkiln.service.rules.catalog import load_catalog
from batchkiln.service.rules.lifecycle import Outcome
from batchkiln.service.rules.windows import Calendar
from batchkiln.service.storage.links import Links

Result = TypeVar("Result")
STOP_SECONDS = 2.0  # how long a request under way may take when the service is told to stop


class LocalService:
    """The service in this process: `async with LocalService(config) as service`.

    Raises `StateFolderInUseError` on entering when another process serves from the same folder,
    ValueError when a key's environment variable is not set, OSError when the port is taken.
    """

    faults: Faults
    clock: ServiceClock
    base_url: str

    def __init__(self, config: ServiceConfig, clock: ServiceClock | None = None, port_file: Path | None = None) -> None:
        self.config = config
        self._given_clock = clock
        self._port_file = port_file
        self._keys_in_clear: dict[str, str] = {}
        self._origin = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._lock(stack)
            self._database = self._open_database(stack)
            await self._start_clock()
            await self._open_accounts()
            context = await self._build(stack)
            await self._listen(stack, context)
            self._stack = stack.pop_all()
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

    async def help_pending(self, generation_id: str, outcome: Outcome = "success") -> None:
        """End a generation that stays pending, as the service's support would."""
        now_ms = self.clock.now_ms()
        await self._run(lambda connection: mark_helped(connection, generation_id, outcome, now_ms))

    async def requests(self) -> list[dict[str, object]]:
        """Return the request log, oldest first: what proves that no client overstepped a limit."""
        return await self.query("SELECT * FROM requests ORDER BY id")

    async def query(self, sql: str) -> list[dict[str, object]]:
        """Read the books; for tests. The tables are those of `schema.sql`."""
        return await self._run(lambda connection: [dict(row) for row in connection.execute(sql)])

    async def _run(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        return await asyncio.wrap_future(self._database.submit(job))

    def _lock(self, stack: AsyncExitStack) -> None:
        folder = self.config.state_dir
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise StateFolderInUseError(f"another process serves from {folder}") from error
        stack.callback(lock.release)

    def _open_database(self, stack: AsyncExitStack) -> Database:
        schema = resources.files("batchkiln.service.books").joinpath("schema.sql").read_text(encoding="utf-8")
        database = Database(self.config.state_dir / "service.db", schema)
        stack.callback(database.close)
        database.open()
        return database

    async def _start_clock(self) -> None:
        """Take up service time where the last run left it."""
        stored = await self._run(lambda connection: _read_setting(connection, "anchor"))
        last_seen_ms = await self._run(_last_seen_ms)
        start_at = self.config.start_at
        anchor = resume(
            Anchor(**orjson.loads(stored)) if stored else None,
            time_scale=self.config.time_scale,
            start_at_ms=None if start_at is None else round(start_at.timestamp() * 1000),
            last_seen_ms=last_seen_ms,
        )
        if self._given_clock is not None:
            self.clock = self._given_clock
            return
        await self._run(lambda connection: _write_setting(connection, "anchor", orjson.dumps(anchor).decode()))
        self.clock = RunningClock(anchor)

    async def _open_accounts(self) -> None:
        """Enter the accounts and keys of the configuration; a key that has left it is revoked."""
        holders: list[KeyHolder] = []
        now_ms = self.clock.now_ms()
        for account in self.config.accounts:
            for key, is_legacy in _keys_of(account, self.config.state_dir):
                holders.append(KeyHolder(account.name, digest_of(key), is_legacy))
                self._keys_in_clear.setdefault(account.name, key)

        def enter(connection: sqlite3.Connection) -> None:
            for account in self.config.accounts:
                open_account(
                    connection,
                    account.name,
                    credits_bought=account.credits,
                    subscription=account.subscription,
                    now_ms=now_ms,
                )
            enter_configured(connection, holders, now_ms=now_ms)

        await self._run(enter)

    async def _build(self, stack: AsyncExitStack) -> Context:
        config, folder = self.config, self.config.state_dir
        media_dir, asset_dir = folder / "media", folder / "assets"
        media_dir.mkdir(exist_ok=True)
        asset_dir.mkdir(exist_ok=True)
        calendar = Calendar(
            day_start_ms=round(config.day_start.timestamp() * 1000), day_ms=round(config.day_seconds * 1000)
        )
        self._renderer = Renderer(media_dir=media_dir, asset_dir=asset_dir, database=self._database, clock=self.clock)
        stack.callback(self._renderer.close)
        self.faults = Faults(config.faults, Dice(config.seed))
        context = Context(
            config=config,
            clock=self.clock,
            catalog=load_catalog(),
            database=self._database,
            admission=Admission(config.limits, calendar, keeps_all=config.keep_requests),
            creates=CreateBooks(config.limits, calendar),
            assets=AssetBooks(config.limits, calendar),
            renderer=self._renderer,
            faults=self.faults,
            dice=Dice(config.seed),
            links=Links(bytes.fromhex(await self._run(_secret))),
            edge=await self._edge(),
            asset_dir=asset_dir,
            origin=lambda: self._origin,
        )
        for generation_id, drawing in await self._run(find_unrendered):
            self._renderer.start(generation_id, drawing)
        return context

    async def _edge(self) -> EdgeFirewall:
        """Make the firewall, with what it had counted in the minute before a restart."""
        minute_ms = round(self.config.limits.minute_seconds * 1000)
        since_ms = self.clock.now_ms() - minute_ms
        edge = EdgeFirewall(self.config.limits.requests_per_minute_per_ip, minute_ms)
        rows = await self._run(
            lambda connection: connection.execute(
                "SELECT ip, arrived_at_ms FROM requests WHERE arrived_at_ms > ? AND code IS NOT 'edge_blocked'"
                " ORDER BY arrived_at_ms",
                (since_ms,),
            ).fetchall()
        )
        edge.restore((row["ip"], row["arrived_at_ms"]) for row in rows)
        return edge

    async def _listen(self, stack: AsyncExitStack, context: Context) -> None:
        """Bind, at the port of the last run where that is free and none was asked for."""
        runner = web.AppRunner(build_app(context), access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        port = await self._bind(runner)
        host = self.config.host
        self._origin = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.base_url = self._origin + PREFIX
        (self.config.state_dir / "port").write_text(f"{port}\n", encoding="ascii")
        if self._port_file is not None:
            self._port_file.write_text(f"{port}\n", encoding="ascii")

    async def _bind(self, runner: web.AppRunner) -> int:
        remembered = _remembered_port(self.config.state_dir)
        wanted = [self.config.port] if self.config.port else [*remembered, 0]
        for port in wanted:
            site = web.TCPSite(runner, self.config.host, port)
            try:
                await site.start()
            except OSError:
                if port == wanted[-1]:
                    raise
                continue
            break
        return int(runner.addresses[0][1])


async def serve(config: ServiceConfig, *, ready: Callable[[LocalService], None], stop: asyncio.Event) -> None:
    """Serve until `stop` is set; `ready` is called once the service can be reached."""
    async with LocalService(config) as service:
        ready(service)
        await stop.wait()


def _keys_of(account: AccountConfig, folder: Path) -> list[tuple[str, bool]]:
    """Return an account's keys in clear, and whether each is a legacy key; make one where none is given."""
    if account.keys:
        return [(key.reveal(), key.legacy) for key in account.key_configs]
    path = folder / f"key-{account.name}"
    if not path.exists():
        temporary = path.with_name(f"{path.name}.part")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"lk_{secrets.token_urlsafe(32)}\n")
        temporary.replace(path)
    return [(path.read_text(encoding="ascii").strip(), False)]


def _remembered_port(folder: Path) -> list[int]:
    try:
        return [int((folder / "port").read_text(encoding="ascii"))]
    except (OSError, ValueError):
        return []


def _read_setting(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return row["value"] if row else None


def _write_setting(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))


def _secret(connection: sqlite3.Connection) -> str:
    """Return the key that links are signed with, made at the first start."""
    secret = _read_setting(connection, "link_secret")
    if secret is None:
        secret = secrets.token_hex(32)
        _write_setting(connection, "link_secret", secret)
    return secret


def _last_seen_ms(connection: sqlite3.Connection) -> int:
    """Return the latest instant on record; service time does not go back behind it."""
    row = connection.execute("SELECT max(arrived_at_ms) AS last FROM requests").fetchone()
    return row["last"] or 0
