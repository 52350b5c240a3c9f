"""The HTTP interface of a queue, as programs with tokens use it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from batchkiln.api import QueueLocation
from batchkiln.config import AccessScope, Config, HttpSettings, HttpToken, Profile, token_digest
from batchkiln.dashboard.server import ServedDashboard, serving_dashboard
from integration.dashboard.sample_queue import AT

ALL: Final = "bk_all-scopes-0123456789abcdef0123456789"
TOKENS: Final = {scope: f"bk_{scope}-only-0123456789abcdef0123456789" for scope in AccessScope}


def token(name: str, text: str, *scopes: AccessScope) -> HttpToken:
    return HttpToken(name, frozenset(scopes), token_digest(text))


def settings(**changes: Any) -> HttpSettings:  # noqa: ANN401  the fields of the settings
    tokens = [token("everything", ALL, *AccessScope), *(token(scope, TOKENS[scope], scope) for scope in AccessScope)]
    return HttpSettings(**{"tokens": tuple(tokens), **changes})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  any document
        return orjson.loads(self.body)

    @property
    def problem(self) -> Any:  # noqa: ANN401  a problem document
        assert self.headers["Content-Type"].startswith("application/problem+json"), self.body
        document = self.json
        assert document["status"] == self.status
        assert document["charged"].endswith(".")
        assert document["next"]
        return document


class Client:
    """Sends requests to the interface."""

    def __init__(self, served: ServedDashboard, session: aiohttp.ClientSession, bearer: str | None = ALL) -> None:
        self.served = served
        self.session = session
        self.bearer = bearer

    def with_token(self, bearer: str | None) -> "Client":
        return Client(self.served, self.session, bearer)

    async def send(self, method: str, path: str, **options: Any) -> Answer:  # noqa: ANN401  aiohttp's own
        headers = {**({"Authorization": f"Bearer {self.bearer}"} if self.bearer else {}), **options.pop("headers", {})}
        options = {"allow_redirects": False} | options
        url = f"{self.served.listens_at}/api/v1{path}"
        async with self.session.request(method, url, headers=headers, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Answer:  # noqa: ANN401  aiohttp's own
        return await self.send("GET", path, **options)

    async def post(self, path: str, body: object = None, **options: Any) -> Answer:  # noqa: ANN401  aiohttp's own
        if body is not None:
            options["json"] = body
        return await self.send("POST", path, **options)

    async def manifest(self, text: str, query: str = "", media_type: str = "application/yaml") -> Answer:
        return await self.send("POST", f"/jobs{query}", data=text.encode(), headers={"Content-Type": media_type})


@asynccontextmanager
async def serving(queue: QueueLocation, http: HttpSettings | None = None) -> AsyncIterator[Client]:
    """Serve a queue with tokens, and give a client that may do everything."""
    config = Config({"local": Profile("local")}, "local", http=settings() if http is None else http)
    async with serving_dashboard(queue, config, port=0, clock=lambda: AT) as served, aiohttp.ClientSession() as session:
        yield Client(served, session)
