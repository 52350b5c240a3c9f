"""What every page works with, in one place."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment

from batchkiln.config import Config
from batchkiln.dashboard.auth import Access
from batchkiln.dashboard.live_state import EngineProbe, LiveState
from batchkiln.dashboard.rendering import environment
from batchkiln.dashboard.snapshot import PageSnapshot, read_moment
from batchkiln.dashboard.thumbnail_cache import Thumbnails
from batchkiln.store import Store


@dataclass(slots=True)
class Context:
    """The queue, opened for reading; the templates; who may see them; and the driver, if it is in this process."""

    queue: Path
    config: Config
    store: Store
    access: Access
    machine_now: Callable[[], datetime]
    beside: EngineProbe | None = None
    templates: Environment = field(default_factory=environment)
    thumbnails: Thumbnails = field(default_factory=Thumbnails)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0

    async def moment(self, job: str | None = None) -> PageSnapshot:
        """Read the queue as it is now."""
        return await self.store.read(read_moment, self.config, self.machine_now(), self.facts(), job)

    def facts(self) -> LiveState:
        """Return what the driver in this process tells; nothing where it is in another."""
        return self.beside.facts() if self.beside is not None else LiveState()

    def render(self, template: str, **values: Any) -> str:  # noqa: ANN401  whatever the template shows
        """Fill a template."""
        return self.templates.get_template(template).render(mark=self.access.mark, queue=self.queue.name, **values)

    def page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:  # noqa: ANN401  as above
        """Answer with a page."""
        return web.Response(text=self.render(template, **values), status=status, content_type="text/html")


CONTEXT: Final = web.AppKey("context", Context)


def context_of(request: web.Request) -> Context:
    """Return the context of a request."""
    return request.app[CONTEXT]
