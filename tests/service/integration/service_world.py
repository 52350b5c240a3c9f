"""The local service on loopback, driven by hand, and a client that keeps nothing to itself."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

from batchkiln_service import Limits, LocalService, ManualClock, ServiceConfig
from batchkiln_service.api.openapi import operations

START_MS = 1_790_000_000_000 - 1_790_000_000_000 % 86_400_000  # midnight of a service day
IMAGE: dict[str, object] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "prompt": "A red fox",
    "parameters": {"resolution": "512x512", "aspect_ratio": "1:1"},
}
CLIP: dict[str, object] = {
    "model": "alpha-2.5-lite",
    "mode": "text-to-video",
    "prompt": "The owl turns its head",
    "parameters": {"resolution": "480p", "duration_seconds": 2, "aspect_ratio": "16:9"},
}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    content: bytes
    body: dict[str, object]

    @property
    def code(self) -> str:
        error = self.body["error"]
        assert isinstance(error, dict)
        return str(error["code"])

    @property
    def output(self) -> dict[str, str]:
        outputs = self.body["outputs"]
        assert isinstance(outputs, list)
        return dict(outputs[0])

    @property
    def retry_after(self) -> int:
        return int(self.headers["Retry-After"])


def undescribed(method: str, path: str, reply: Reply) -> str | None:
    """Return what the interface description does not say of a refusal: every reply of every test is held against it."""
    error = reply.body.get("error")
    if not isinstance(error, dict):
        return None  # a success, or the firewall's page
    for operation in operations():
        route = re.escape(operation.path).replace(r"\{id\}", "[^/]+")
        is_this = operation.method.upper() == method and re.fullmatch(route, path.partition("?")[0])
        if is_this and "code" in error and reply.status != operation.success[0]:
            return None if reply.code in operation.errors.get(reply.status, ()) else f"{operation.id}: {reply.code}"
    return None


@dataclass(frozen=True, slots=True)
class Prepared:
    asset_id: str
    upload_url: str
    upload_headers: dict[str, str]


@dataclass
class World:
    """A service, its clock, and an HTTP session."""

    config: ServiceConfig
    clock: ManualClock
    session: aiohttp.ClientSession
    service: LocalService = field(init=False)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def start(self) -> None:
        self.service = await LocalService(self.config, self.clock).__aenter__()
        await self.service.retention_done()  # from here on, only what a test does makes anybody sleep

    async def stop(self) -> None:
        await self.service.__aexit__(None, None, None)

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        key: str | None = "key-one-of-main",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        sent = dict(headers or {})
        if key is not None:
            sent.setdefault("Authorization", f"Bearer {key}")
        url = path if path.startswith("http") else self.service.base_url + path
        async with self.session.request(method, url, json=body, headers=sent) as response:
            content = await response.read()
            is_json = response.content_type == "application/json"
            reply = Reply(response.status, dict(response.headers), content, await response.json() if is_json else {})
        if not path.startswith("http") and not self._may_misbehave(sent):
            assert undescribed(method, path, reply) is None
        return reply

    def _may_misbehave(self, headers: Mapping[str, str]) -> bool:
        return "X-Batchkiln-Fault" in headers or self.service.faults._next_number > 0

    async def create(self, body: object = None, *, idempotency_key: str = "", key: str = "key-one-of-main") -> Reply:
        """POST an image, or a video when the body asks for one; under a new idempotency key by default."""
        body = IMAGE if body is None else body
        assert isinstance(body, dict)
        path = "/videos" if "video" in str(body.get("mode")) else "/images"
        idempotency_key = idempotency_key or f"idempotency-key-{next(self._numbers):04d}"
        return await self.send("POST", path, body=body, key=key, headers={"Idempotency-Key": idempotency_key})

    async def poll(self, generation_id: object, *, key: str = "key-one-of-main") -> Reply:
        return await self.send("GET", f"/generations/{generation_id}", key=key)

    async def finish(self, created: Reply) -> Reply:
        """Let the time pass that the longest generation takes, and poll."""
        assert created.status == 202, created.body
        self.clock.advance(600)
        await self.service.idle()
        self.clock.advance(20)
        return await self.poll(created.body["id"])

    async def balance(self) -> object:
        return (await self.send("GET", "/credits/balance")).body["balance"]

    async def upload(self, picture: bytes, *, content_type: str = "image/png") -> str:
        """Walk the whole upload flow; return the asset's URL."""
        prepared = await self.prepare(len(picture), content_type=content_type)
        assert await self.put(prepared, picture) == 200
        completed = await self.send("POST", "/uploads/complete", body={"asset_ids": [prepared.asset_id]})
        assets = completed.body["assets"]
        assert isinstance(assets, list)
        return str(assets[0]["url"])

    async def put(self, prepared: "Prepared", content: bytes, *, headers: Mapping[str, str] | None = None) -> int:
        """PUT the bytes with the headers given out, or others; return the status."""
        sent = prepared.upload_headers if headers is None else headers
        async with self.session.put(prepared.upload_url, data=content, headers=sent) as response:
            await response.read()
            return response.status

    async def prepare(self, size: int, *, content_type: str = "image/png") -> "Prepared":
        reply = await self.send(
            "POST", "/uploads", body={"files": [{"name": "owl", "type": content_type, "size": size}]}
        )
        assert reply.status == 200, reply.body
        uploads = reply.body["uploads"]
        assert isinstance(uploads, list)
        upload = uploads[0]
        return Prepared(upload["asset_id"], upload["upload_url"], upload["upload_headers"])


class WorldMaker(Protocol):
    """Makes a started world; settings are those of `ServiceConfig`."""

    async def __call__(self, *, limits: Limits | None = None, **settings: object) -> World: ...


def image_with(**changes: object) -> Mapping[str, object]:
    """Return the body of a create with other fields."""
    return {**IMAGE, **changes}
