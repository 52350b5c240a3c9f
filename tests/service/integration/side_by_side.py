"""A real service and the plain model of its rules, side by side: asked the same, and compared."""

import asyncio
import io
import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import aiohttp
from PIL import Image

from batchkiln_service import ManualClock, ServiceConfig
from batchkiln_service.db.database import connect
from batchkiln_service.db.keys import digest_of, revoke_key
from batchkiln_service.db.setup import FILE_NAME, calendar_of
from batchkiln_service.errors import KeyRefusedError

from .plain_model import Asked, PlainAccount, PlainAsset, PlainGeneration, PlainKey, PlainLimits, PlainModel, Said
from .service_world import CLIP, IMAGE, START_MS, Reply, World

Result = TypeVar("Result")
Who = Literal["main", "second", "legacy", "poor", "member", "newest account", "newest key", "nobody"]
MAX_ACTIVE: Final = 10  # keys of an account


def picture(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.radial_gradient("L").resize((side, side)).save(buffer, "PNG")
    return buffer.getvalue()


SMALL, LARGE = picture(8), picture(32)
# So small that minutes, days and budgets are full within a few steps.
LIMITS: Final = PlainLimits(
    creates_per_minute=5,
    creates_per_day=14,
    reads_per_minute=6,
    reads_per_day=25,
    credits_per_day=27,
    upload_files_per_day=4,
    upload_bytes_per_day=2 * len(LARGE) + len(SMALL),
    requests_per_minute_per_ip=24,
    active_generations=1,
)
# A body, what it costs, how it is refused, and how many images it names, of those at hand.
BODIES: Final[tuple[tuple[dict[str, object], int, str | None, int], ...]] = (
    (IMAGE, 2, None, 0),
    (IMAGE, 2, None, 0),
    (CLIP, 20, None, 0),
    ({**IMAGE, "mode": "image-to-image"}, 2, None, 1),
    ({**CLIP, "mode": "image-to-video"}, 20, None, 1),
    ({**CLIP, "mode": "image-to-video"}, 27, None, 6),
    ({**CLIP, "parameters": {"resolution": "480p", "duration_seconds": 7}}, 0, "unsupported_option", 0),
    ({**IMAGE, "model": "epsilon-3"}, 0, "unsupported_option", 0),
    ({**IMAGE, "prompt": ""}, 0, "invalid_request", 0),
    ({**IMAGE, "seed": 1}, 0, "invalid_request", 0),
)
MARKS: Final = {"success": "", "failed": " [fail]", "canceled": " [cancel]"}
ELSEWHERE: Final = "https://example.invalid/owl.png"


class SideBySide:
    """Both, with the accounts that they begin with."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.model = PlainModel(LIMITS)
        self.sent: Counter[int] = Counter()
        self.model.accounts = [
            PlainAccount("main", 90, subscription=False),
            PlainAccount("poor", 2, subscription=False),
            PlainAccount("member", 0, subscription=True),
        ]
        main = self.model.accounts[0]
        for account in self.model.accounts:
            self.configure_key(account, f"key-of-{account.name}")
        self.second_key = self.configure_key(main, "second-key-of-main")
        self.legacy_key = self.configure_key(main, "legacy-key-of-main")
        self.world = self.run(self._begin())

    def end(self) -> None:
        """Stop the service and leave nothing behind."""
        self.run(self._end())
        self.loop.close()
        self.folder.cleanup()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)

    @property
    def now(self) -> int:
        return self.world.clock.now_ms()

    @property
    def keys(self) -> list[PlainKey]:
        return [key for account in self.model.accounts for key in account.keys]

    @property
    def generations(self) -> list[PlainGeneration]:
        """All of them, the newest last."""
        found = [generation for account in self.model.accounts for generation in account.generations]
        return sorted(found, key=lambda generation: generation.created_at)

    def secret(self, who: Who) -> str:
        """Return somebody's key; also one that is of no use."""
        accounts = self.model.accounts
        match who:
            case "second":
                return self.second_key.secret
            case "legacy":
                return self.legacy_key.secret
            case "newest account":
                return accounts[-1].keys[0].secret
            case "newest key":
                return max(self.keys, key=lambda key: key.made_at).secret
            case "nobody":
                return "a-key-that-nobody-has"
            case _:
                return next(account.keys[0].secret for account in accounts if account.name == who)

    def account_of(self, secret: str) -> PlainAccount:
        return next(key.account for key in self.keys if key.secret == secret)

    def take_second_key_out_or_put_it_back(self) -> None:
        """Only a key that nobody revoked by command works again, and only if the account may have another key."""
        key = self.second_key
        has_room = sum(other.is_active for other in key.account.keys) < MAX_ACTIVE
        key.is_taken_out = not key.is_taken_out or not (has_room or key.is_revoked)
        key.is_active = not key.is_taken_out and not key.is_revoked

    def asked(self, which: int, end: str, pick: int) -> Asked:
        """Make a body, with such images as there are."""
        template, cost, refusal, count = BODIES[which]
        body = {**template, "prompt": f"{template['prompt']}{MARKS[end]}" if template["prompt"] else ""}
        images: tuple[PlainAsset | None, ...] = ()
        if count:
            ready = [asset for account in self.model.accounts for asset in account.assets if asset.is_ready]
            chosen = ready[-1 - pick % len(ready)] if ready and pick != 0 else None
            images = (chosen,) * count
            body["inputs"] = [{"type": "image", "url": ELSEWHERE if chosen is None else chosen.url}] * count
        path = "/videos" if "video" in str(body["mode"]) else "/images"
        return Asked(json.dumps(body), path, cost, refusal, end, images=images)

    def ask(
        self,
        method: str,
        path: str,
        secret: str,
        said: Said,
        *,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send a request, and compare the reply with what the model has said to it."""
        reply = self.run(self.world.send(method, path, key=secret, body=body, headers=headers))
        self.compare(reply, said)
        return reply

    def create(self, secret: str, idempotency_key: str, asked: Asked, *, copies: int = 1) -> None:
        """Send a create, or several alike at once: in whatever order they are met, as many are answered alike."""
        said = [self.model.create(secret, idempotency_key, asked, self.now) for _ in range(copies)]
        replies = self.run(self._send_alike(secret, idempotency_key, asked, copies=copies))
        for reply, expected in zip(sorted(replies, key=_order), sorted(said, key=_order_said), strict=True):
            self.compare(reply, expected)
            if expected.generation is not None:
                self._learn(expected.generation, reply)
                self.compare_record(reply, expected.generation)

    def compare(self, reply: Reply, said: Said) -> None:
        self.sent[reply.status] += 1
        code = reply.code if "error" in reply.body and reply.status >= 400 else None
        assert (reply.status, code) == (said.status, said.code), reply.body
        if said.retry_after is None:
            assert "Retry-After" not in reply.headers
        elif said.retry_after:
            assert reply.retry_after == said.retry_after, reply.body
        else:
            assert reply.retry_after >= 1

    def compare_record(self, reply: Reply, generation: PlainGeneration) -> str | None:
        """Compare a record of Service section 2.1; return its link, if it has one."""
        status = generation.status(self.now)
        record = reply.body
        assert record["id"] == generation.id
        assert record["status"] == status
        assert record["credits"] == {"cost": generation.cost}
        assert record["created_at"] == _iso(generation.created_at)
        assert (record["error"] is None) == (status not in {"failed", "canceled"})
        if status != "success":
            assert record["outputs"] == []
            return None
        assert reply.output["expires_at"] == _iso(generation.link_dies_at(self.now))
        return reply.output["url"]

    def advance(self, seconds: float) -> None:
        """Let time pass, and the service tidy up as it does by itself."""
        if seconds > 0:
            self.world.clock.advance(seconds)
            self._tidy()

    def restart(self, down_seconds: float = 0) -> None:
        self.run(self.world.stop())
        self.world.clock.advance(down_seconds)
        self.world.config = self._config()
        self.run(self.world.start())
        self._tidy()

    def configure_key(self, account: PlainAccount, secret: str) -> PlainKey:
        key = PlainKey(secret, account, START_MS, is_configured=True)
        account.keys.append(key)
        return key

    def revoke(self, key: PlainKey) -> None:
        """Revoke a key as a person does."""

        def work(books: sqlite3.Connection) -> None:
            row = books.execute("SELECT id FROM api_keys WHERE key_sha256 = ?", (digest_of(key.secret),)).fetchone()
            revoke_key(books, row["id"], now_ms=self.now)

        self.by_command(work)
        key.is_active, key.is_revoked = False, True

    def by_command(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Work on the books from outside, as the command for keys does; None when the rules refuse it."""
        books = connect(Path(self.folder.name) / FILE_NAME, "")
        try:
            books.execute("BEGIN IMMEDIATE")
            result = work(books)
            books.execute("COMMIT")
        except KeyRefusedError:
            return None
        else:
            return result
        finally:
            books.close()

    def in_books(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return self.run(self.world.service._run(work))

    def query(self, sql: str) -> list[dict[str, Any]]:
        return self.run(self.world.service.query(sql))

    async def put(self, url: str, content: bytes, headers: dict[str, str]) -> int:
        async with self.world.session.put(url, data=content, headers=headers) as response:
            await response.read()
            return response.status

    @property
    def calendar(self) -> Any:  # noqa: ANN401  the service's own
        return calendar_of(self.world.config)

    def _tidy(self) -> None:
        self.model.tidy(self.now)
        self.run(self.world.service.retention_done())

    async def _begin(self) -> World:
        world = World(self._config(), ManualClock(START_MS), aiohttp.ClientSession())
        await world.start()
        return world

    async def _end(self) -> None:
        await self.world.stop()
        await self.world.session.close()

    def _config(self) -> ServiceConfig:
        limits = {name: value for name, value in asdict(LIMITS).items() if name not in {"minute", "poll_interval"}}
        accounts = [
            {
                "name": account.name,
                "credits": account.bought,
                "subscription": account.subscription,
                "keys": [
                    {"value": key.secret, "legacy": key.secret.startswith("legacy")}
                    for key in account.keys
                    if key.is_configured and not key.is_taken_out
                ],
            }
            for account in self.model.accounts
        ]
        return ServiceConfig.model_validate(
            {"state_dir": self.folder.name, "limits": limits, "accounts": accounts, "tiny_media": True}
        )

    async def _send_alike(self, secret: str, idempotency_key: str, asked: Asked, *, copies: int) -> list[Reply]:
        headers, body = {"Idempotency-Key": idempotency_key}, json.loads(asked.text)
        sending = (self.world.send("POST", asked.path, key=secret, body=body, headers=headers) for _ in range(copies))
        return await asyncio.gather(*sending)

    def _learn(self, generation: PlainGeneration, reply: Reply) -> None:
        """Take over what the service has drawn: how long the generation takes."""
        if not generation.id:
            generation.id = str(reply.body["id"])
            rows = self.query(f"SELECT processing_at_ms, finish_at_ms FROM generations WHERE id = '{generation.id}'")
            generation.processing_at, generation.finish_at = rows[0]["processing_at_ms"], rows[0]["finish_at_ms"]


def _order(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.code if reply.status >= 400 and "error" in reply.body else ""


def _order_said(said: Said) -> tuple[int, str]:
    return said.status, said.code or ""


def _iso(instant: int) -> str:
    moment = datetime.fromtimestamp(instant / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
