"""The state that all pages of a dashboard share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment

from batchkiln.config import Config
from batchkiln.dashboard.auth import Access
from batchkiln.dashboard.live_state import EngineProbe, LiveState
from batchkiln.dashboard.rendering import environment
from batchkiln.dashboard.snapshot import PageSnapshot, read_snapshot
from batchkiln.dashboard.thumbnail_cache import Thumbnails
from batchkiln.store import QueueLocation, Store


@dataclass(slots=True)
class Context:
    """The queue, opened for reading; the templates; the access token; and the engine, if it is in this process."""

    queue: QueueLocation
    config: Config
    store: Store
    access: Access
    machine_now: Callable[[], datetime]
    engine: EngineProbe | None = None
    templates: Environment = field(default_factory=environment)
    thumbnails: Thumbnails = field(default_factory=Thumbnails)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0

    async def snapshot(self, job: str | None = None) -> PageSnapshot:
        """Read the current state of the queue, or of one job."""
        return await self.store.read(read_snapshot, self.config, self.machine_now(), self.live_state(), job)

    def live_state(self) -> LiveState:
        """Return the state of the engine in this process; it is empty if there is none."""
        return self.engine.live_state() if self.engine is not None else LiveState()

    def render(self, template: str, **values: Any) -> str:  # noqa: ANN401  the values of the template
        """Render a template."""
        return self.templates.get_template(template).render(
            csrf_token=self.access.csrf_token, queue=self.queue.name, **values
        )

    def page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:  # noqa: ANN401  as above
        """Return a response with a rendered template."""
        return web.Response(text=self.render(template, **values), status=status, content_type="text/html")


CONTEXT: Final = web.AppKey("context", Context)


def context_of(request: web.Request) -> Context:
    """Return the context of a request."""
    return request.app[CONTEXT]
