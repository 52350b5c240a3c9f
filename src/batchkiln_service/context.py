"""What every route of the service works with, in one place."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from batchkiln_service.clock import RandomStream, ServiceClock
from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.admission import Admission
from batchkiln_service.db.asset_locks import AssetLocks
from batchkiln_service.db.assets import AssetStore
from batchkiln_service.db.creates import CreateStore
from batchkiln_service.db.database import Database
from batchkiln_service.faults import Faults
from batchkiln_service.media.renderer import Renderer
from batchkiln_service.media.worker_pool import WorkerPool
from batchkiln_service.rules.catalog import Model
from batchkiln_service.transport.firewall import Firewall
from batchkiln_service.transport.links import Links

PREFIX: Final = "/api/v1"


def new_id(prefix: str) -> str:
    """Return an identifier that cannot be guessed, like gen_0123 and so on."""
    return f"{prefix}_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class Context:
    """The collaborators of the routes. `origin` is where the client of a request reaches the storage."""

    config: ServiceConfig
    clock: ServiceClock
    catalog: Mapping[str, Model]
    database: Database
    admission: Admission
    creates: CreateStore
    assets: AssetStore
    renderer: Renderer
    examining: WorkerPool  # of its own, so that no upload waits behind what is being drawn
    faults: Faults
    dice: RandomStream
    links: Links
    edge: Firewall
    asset_dir: Path
    origin: Callable[[web.BaseRequest], str]
    asset_locks: AssetLocks = field(default_factory=AssetLocks)
    new_id: Callable[[str], str] = field(default=new_id)

    @property
    def retention_ms(self) -> int:
        """How long media are kept."""
        return round(self.config.media_retention_seconds * 1000)


CONTEXT = web.AppKey("context", Context)
