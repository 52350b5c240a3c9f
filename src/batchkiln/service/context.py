"""What every route of the service works with, in one place."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from batchkiln.service.admission import Admission
from batchkiln.service.assets import AssetBooks
from batchkiln.service.catalog import Model
from batchkiln.service.clock import Dice, ServiceClock
from batchkiln.service.config import ServiceConfig
from batchkiln.service.database import Database
from batchkiln.service.edge import EdgeFirewall
from batchkiln.service.faults import Faults
from batchkiln.service.links import Links
from batchkiln.service.renderer import Renderer
from batchkiln.service.store import Store


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Whom an API key belongs to."""

    account: str
    key_sha256: str
    is_legacy: bool


def new_id(prefix: str) -> str:
    """Return an identifier that cannot be guessed, like gen_0123 and so on."""
    return f"{prefix}_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class Context:
    """The collaborators of the routes. `origin` is where the storage is reached from outside."""

    config: ServiceConfig
    clock: ServiceClock
    catalog: Mapping[str, Model]
    database: Database
    admission: Admission
    store: Store
    assets: AssetBooks
    renderer: Renderer
    faults: Faults
    dice: Dice
    links: Links
    edge: EdgeFirewall
    asset_dir: Path
    keys: Mapping[str, KeyHolder]
    origin: Callable[[], str]
    new_id: Callable[[str], str] = field(default=new_id)

    @property
    def retention_ms(self) -> int:
        """How long media are kept."""
        return round(self.config.media_retention_seconds * 1000)


CONTEXT = web.AppKey("context", Context)
