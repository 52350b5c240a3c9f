"""What every route of the service works with, in one place."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from batchkiln_service.books.admission import Admission
from batchkiln_service.books.asset_locks import AssetLocks
from batchkiln_service.books.assets import AssetBooks
from batchkiln_service.books.creating import CreateBooks
from batchkiln_service.books.database import Database
from batchkiln_service.clock import Dice, ServiceClock
from batchkiln_service.config import ServiceConfig
from batchkiln_service.faults import Faults
from batchkiln_service.media.renderer import Renderer
from batchkiln_service.media.workshop import Workshop
from batchkiln_service.rules.catalog import Model
from batchkiln_service.transport.edge import EdgeFirewall
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
    creates: CreateBooks
    assets: AssetBooks
    renderer: Renderer
    examining: Workshop  # of its own, so that no upload waits behind what is being drawn
    faults: Faults
    dice: Dice
    links: Links
    edge: EdgeFirewall
    asset_dir: Path
    origin: Callable[[web.BaseRequest], str]
    asset_locks: AssetLocks = field(default_factory=AssetLocks)
    new_id: Callable[[str], str] = field(default=new_id)

    @property
    def retention_ms(self) -> int:
        """How long media are kept."""
        return round(self.config.media_retention_seconds * 1000)


CONTEXT = web.AppKey("context", Context)
