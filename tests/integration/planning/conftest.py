"""A real local service in this process, and a folder with a queue beside it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from batchkiln.api.app_context import AppContext
from batchkiln.config import Account, Config, KeySource, Profile
from batchkiln.core.rate_limits import Limits
from batchkiln.store.sqlite.file_database import SqliteDatabase
from batchkiln_service import AccountConfig, KeyConfig, Limits as ServiceLimits, LocalService, ServiceConfig

from .scripted_service import begun_day

KEY = "lk_a-key-that-nobody-may-see"
OLD_KEY = "lk_an-old-key-that-nobody-may-see"
MANIFEST = """\
version: 1
job: foxes
defaults:
  model: epsilon-2
  mode: text-to-image
  parameters: {resolution: 512x512, aspect_ratio: "1:1"}
output: {dir: out}
"""


@dataclass
class Ground:
    """The folder, the service, and the setting of a command that talks to it."""

    folder: Path
    service: LocalService
    app: AppContext

    @property
    def queue(self) -> Path:
        assert isinstance(self.app.queue, Path)
        return self.app.queue

    def with_profile(self, **changes: Any) -> AppContext:  # noqa: ANN401  any field of the dataclass
        profile = replace(self.app.config.profile("studio"), **changes)
        return replace(self.app, config=Config({"studio": profile}, "studio"))

    def manifest(self, items: str, *, more: str = "", name: str = "foxes.yaml") -> str:
        """Write a manifest with these items, given as YAML, and return its path."""
        lines = "".join(f"  {line}\n" for line in items.splitlines())
        path = self.folder / name
        path.write_text(f"{MANIFEST}{more}\nitems:\n{lines}", "utf-8")
        return str(path)

    async def reader(self) -> SqliteDatabase:
        return await SqliteDatabase.open_for_reading(self.queue)

    async def sent(self) -> list[str]:
        """Return the paths that the service was asked, in order, but for its public description."""
        return [str(request["path"]).removeprefix("/api/v1") for request in await self.answered()]

    async def answered(self) -> list[dict[str, object]]:
        return [request for request in await self.service.requests() if "openapi" not in str(request["path"])]


GroundMaker = Callable[..., Awaitable[Ground]]


@pytest.fixture
async def make_ground(tmp_path: Path) -> AsyncIterator[GroundMaker]:
    """Make a ground: fields of the profile, and settings of the service."""
    async with AsyncExitStack() as stack:

        async def make(*, limits: Limits | None = None, time_scale: float = 1.0, **settings: Any) -> Ground:  # noqa: ANN401
            used = limits or Limits()
            account = AccountConfig(name="main", credits=10_000, keys=(KEY, KeyConfig(value=OLD_KEY, legacy=True)))
            service_limits = ServiceLimits(reads_per_minute=used.reads_per_minute, minute_seconds=used.minute_seconds)
            config = ServiceConfig.model_validate(
                {
                    "state_dir": tmp_path / "service",
                    "accounts": (account,),
                    "limits": service_limits,
                    "time_scale": time_scale,
                }
                | settings
            )
            service = await stack.enter_async_context(LocalService(config))
            (tmp_path / "key").write_text(KEY, "utf-8")
            profile = Profile(
                "studio",
                base_url=service.base_url,
                accounts=(Account("main", (KeySource(file="key"),)),),
                limits=used,
                scale=time_scale,
                day=begun_day(),
                folder=tmp_path,
            )
            app = AppContext(
                queue=tmp_path / ".batchkiln" / "queue.db",
                config=Config({"studio": profile}, "studio"),
                working_dir=tmp_path,
            )
            return Ground(tmp_path, service, app)

        yield make
