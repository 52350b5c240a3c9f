"""The state that all pages of a dashboard share, and the thumbnails that it keeps in memory up to a maximum size."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment

from batchkiln.api import QueueLocation
from batchkiln.api.app_context import AppContext
from batchkiln.api.changes import Changes, open_changes
from batchkiln.api.reading import QueueReader
from batchkiln.config import AccessScope, Config
from batchkiln.dashboard.auth import Access, Principal
from batchkiln.dashboard.live_state import EngineProbe, LiveState
from batchkiln.dashboard.rendering import environment, project_name, queue_path
from batchkiln.dashboard.server_names import Origins
from batchkiln.dashboard.snapshot import PageSnapshot, read_snapshot
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail, make_thumbnail

EDGE_PIXELS: Final = 400
KEPT_BYTES: Final = 24 * 1024 * 1024
AT_ONCE: Final = 2
"""The number of pictures decoded, and of objects read, at a time, so that a run in the same process is not delayed."""


class Thumbnails:
    """A cache of thumbnails by their contents. A failure is not cached, because a disk may be mounted later."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        """Start empty, with a maximum size of `kept_bytes`."""
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, Thumbnail] = OrderedDict()
        self._size = 0
        self._places = asyncio.Semaphore(AT_ONCE)

    @property
    def size_bytes(self) -> int:
        """The size of the cached thumbnails."""
        return self._size

    async def of(self, path: Path, content: str, media_type: str) -> Thumbnail | NoThumbnail:
        """Return the thumbnail of a file, or why there is none. `content` is a word that changes with its content."""
        if content not in self._kept:
            async with self._places:
                if content not in self._kept:  # another request may have drawn it while this one waited
                    made = await asyncio.to_thread(make_thumbnail, path, media_type=media_type, edge=EDGE_PIXELS)
                    if isinstance(made, NoThumbnail):
                        return made
                    self._keep(content, made)
        self._kept.move_to_end(content)
        return self._kept[content]

    def _keep(self, content: str, picture: Thumbnail) -> None:
        self._kept[content] = picture
        self._size += len(picture.content)
        while self._size > self._kept_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped.content)


@dataclass(slots=True)
class Intake:
    """The manifests that are being received over HTTP; `lock` is held by the one that is being applied."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    receiving: int = 0


@dataclass(slots=True)
class Context:
    """The queue, opened for reading; the templates; the access token; and the engine, if it is in this process.

    `app` is the context in which manifests that were sent over HTTP are applied.
    """

    app: AppContext
    reader: QueueReader
    access: Access
    origins: Origins
    machine_now: Callable[[], datetime]
    engine: EngineProbe | None = None
    templates: Environment = field(default_factory=environment)
    thumbnails: Thumbnails = field(default_factory=Thumbnails)
    kept: AsyncExitStack = field(default_factory=AsyncExitStack)
    _changes: Changes | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: Counter[str] = field(default_factory=Counter)
    intake: Intake = field(default_factory=Intake)
    started_at: datetime = field(init=False)
    object_reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def __post_init__(self) -> None:
        """Remember when the configuration was read: a profile that is added later is not known."""
        self.started_at = self.machine_now()

    @property
    def queue(self) -> QueueLocation:
        """The queue."""
        return self.app.queue

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.app.config

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[Changes]:
        """Yield the queue, opened for changes once and kept; afterwards, wake the process that runs it.

        Opening a file checks all of it while another connection is open, which takes longer the more items there are.
        """
        async with self._opening:
            if self._changes is None:
                self._changes = await self.kept.enter_async_context(open_changes(self.queue, self.machine_now))
        try:
            yield self._changes
        finally:
            self._changes.writer.notify()

    async def snapshot(self, job: str | None = None) -> PageSnapshot:
        """Read the current state of the queue, or of one job."""
        return await self.reader.read(read_snapshot, self.config, self.machine_now(), self.live_state(), job)

    def live_state(self) -> LiveState:
        """Return the state of the engine in this process; it is empty if there is none."""
        return self.engine.live_state() if self.engine is not None else LiveState()

    def render(self, template: str, **values: Any) -> str:  # noqa: ANN401  the values of the template
        """Render a template for the sender of the request: a token that may not decide sees no buttons for it."""
        sender = _SENDER.get()
        return self.templates.get_template(template).render(
            csrf_token="" if sender is None else sender.csrf_token,
            signed_in_as=None if sender is None else sender.name,
            may_decide=sender is not None and AccessScope.DECIDE in sender.scopes,
            queue="" if sender is None else queue_path(self.queue),
            project="" if sender is None else project_name(self.queue),
            **values,
        )

    def page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:  # noqa: ANN401  as above
        """Return a response with a rendered template."""
        return web.Response(text=self.render(template, **values), status=status, content_type="text/html")


CONTEXT: Final = web.AppKey("context", Context)
PRINCIPAL: Final = web.RequestKey("principal", Principal)

_SENDER: Final[ContextVar[Principal | None]] = ContextVar("sender", default=None)


def identify(request: web.Request, principal: Principal) -> None:
    """Record the sender of a request. The forms of its page get the sender's CSRF token."""
    request[PRINCIPAL] = principal
    _SENDER.set(principal)


def context_of(request: web.Request) -> Context:
    """Return the context of a request."""
    return request.app[CONTEXT]


def identify_nobody() -> None:
    """Forget the sender of the previous request, so that no page for an unknown sender contains their CSRF token."""
    _SENDER.set(None)
