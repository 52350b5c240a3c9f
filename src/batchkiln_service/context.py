"""Shared objects of the service."""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web
from msgspec import Struct, field

from batchkiln_service.clock import RandomStream, ServiceClock
from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.admission import Admission
from batchkiln_service.db.assets import AssetLocks, AssetStore
from batchkiln_service.db.creates import CreateStore
from batchkiln_service.db.database import Database
from batchkiln_service.faults.registry import Faults
from batchkiln_service.media.renderer import Renderer
from batchkiln_service.media.worker_pool import WorkerPool
from batchkiln_service.rules.catalog import Model
from batchkiln_service.transport.firewall import Firewall
from batchkiln_service.transport.links import Links

PREFIX: Final = "/api/v1"


def new_id(prefix: str, token_bytes: Callable[[int], bytes]) -> str:
    """Return an identifier with `token_bytes` random bytes, such as `gen_0123...`."""
    return f"{prefix}_{token_bytes(12).hex()}"


class Context(Struct, frozen=True):
    """The objects that all routes use. `origin` returns the URL origin of the storage for a request's client.

    `operator_url` returns the address of the operator's port, or None without one.
    """

    config: ServiceConfig
    clock: ServiceClock
    catalog: Mapping[str, Model]
    database: Database
    admission: Admission
    creates: CreateStore
    assets: AssetStore
    renderer: Renderer
    examining: WorkerPool  # a separate pool, so that uploads do not wait for rendering
    faults: Faults
    random: RandomStream
    links: Links
    firewall: Firewall
    asset_dir: Path
    origin: Callable[[web.BaseRequest], str]
    operator_url: Callable[[], str | None]
    asset_locks: AssetLocks = field(default_factory=AssetLocks)
    form_id: Callable[[str, Callable[[int], bytes]], str] = field(default=new_id)

    def new_id(self, prefix: str, subject: str) -> str:
        """Return an unguessable identifier; with a configured seed, one that depends only on `subject`."""
        if self.config.seed is None:
            return self.form_id(prefix, secrets.token_bytes)
        return self.form_id(prefix, partial(self.random.token, f"{prefix}:{subject}"))

    @property
    def retention_ms(self) -> int:
        """The retention of media in milliseconds."""
        return round(self.config.media_retention_seconds * 1000)


CONTEXT = web.AppKey("context", Context)
