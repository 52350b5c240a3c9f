"""A service whose replies a test makes up, and a command context whose profile it is."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final

from batchkiln.api.app_context import AppContext
from batchkiln.config import Account, Config, KeySource, Profile
from batchkiln.core.rate_limits import Limits, ServiceDay
from batchkiln.core.response_rules import ReplyRules
from batchkiln.doctor.check_results import CheckResult
from batchkiln.doctor.runner import probe
from batchkiln.doctor.samples import tiny_image
from batchkiln.doctor.trial import PaymentConsent
from integration.client.scripted_server import Received, ScriptedServer

KEY: Final = "sk-a-key-that-nobody-may-see"
URL: Final = "an-upload-url-that-nobody-may-see"
Reply = tuple[int, object] | Callable[[Received], tuple[int, object]]


@dataclass
class Stranger:
    """Answers each call as `replies` says, by method and path; anything else is a 404. `origin` is its address."""

    folder: Path
    origin: str
    replies: dict[str, Reply]
    server: ScriptedServer = field(default_factory=ScriptedServer)

    @property
    def asked(self) -> list[str]:
        """What was asked, in order: `POST /quotes`."""
        return [_call(request).replace("/api/v1", "") for request in self.server.requests]

    def app(self, *, rules: ReplyRules | None = None, limits: Limits | None = None) -> AppContext:
        (self.folder / "key").write_text(KEY, "utf-8")
        profile = Profile(
            "studio",
            base_url=f"{self.origin}/api/v1",
            accounts=(Account("main", (KeySource(file="key"),)),),
            limits=limits or Limits(poll_interval_seconds=0.01),
            day=begun_day(),
            folder=self.folder,
            replies=rules or ReplyRules(),
        )
        queue = self.folder / ".batchkiln" / "queue.db"
        return AppContext(queue=queue, config=Config({"studio": profile}, "studio"), working_dir=self.folder)

    async def probed(
        self,
        *,
        rules: ReplyRules | None = None,
        limits: Limits | None = None,
        consent: PaymentConsent | None = None,
    ) -> dict[str, CheckResult]:
        """Probe it; the findings by their check, of several the last."""
        findings = probe(self.app(rules=rules, limits=limits), consent=consent)
        return {finding.check: finding async for finding in findings}

    async def script(self, request: Received, writer: asyncio.StreamWriter) -> None:
        found = self.replies.get(_call(request).replace("/api/v1", ""), (404, {"error": {"code": "not_found"}}))
        status, body = found(request) if callable(found) else found
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "image/png" if isinstance(body, bytes) else "application/json"
        headers = [f"Content-Type: {kind}", f"Content-Length: {len(content)}", f"Date: {formatdate(usegmt=True)}"]
        writer.write("\r\n".join([f"HTTP/1.1 {status} Status", *headers, "", ""]).encode() + content)


def begun_day() -> ServiceDay:
    """Return a service day that began an hour ago, so that no test meets its end."""
    return ServiceDay(start=datetime.now(UTC) - timedelta(hours=1))


def _call(request: Received) -> str:
    method, path, _ = request.line.split()
    return f"{method} {path}"


def plain_replies(origin: str) -> dict[str, Reply]:
    """Give replies in names of this service's own that are all understood."""
    return {
        "GET /openapi.json": (200, {"openapi": "3.1.0", "info": {"title": "Stranger", "version": "7"}, "paths": {}}),
        "GET /models": (200, {"data": [{"id": "epsilon-2", "modes": ["text-to-image", "image-to-image"]}]}),
        "GET /credits/balance": (200, {"data": {"remaining_credits": 900}}),
        "POST /quotes": (200, {"data": {"cost_credits": 12}}),
        "POST /uploads": (
            200,
            {
                "files": [
                    {"asset": "ast_774190", "upload_url": f"{origin}/put/{URL}", "upload_headers": {"X-Token": "t"}}
                ]
            },
        ),
        f"PUT /put/{URL}": (200, {}),
        "POST /uploads/complete": (200, {"assets": {"ast_774190": {"url": "https://cdn.invalid/ast_774190"}}}),
    }


@dataclass
class Generations:
    """Creates and reads of a stranger: each create under a new key, or each at all, is another generation."""

    origin: str
    cost: int = 12
    forgets_keys: bool = False
    made: list[str] = field(default_factory=list)

    def replies(self) -> dict[str, Reply]:
        found: dict[str, Reply] = {"POST /images": self._create, "GET /file": (200, tiny_image())}
        return found | {f"GET /generations/gen_{number}": (200, self._record(number)) for number in range(3)}

    def _create(self, request: Received) -> tuple[int, object]:
        key = str(request.header("Idempotency-Key"))
        if self.forgets_keys or key not in self.made:
            self.made.append(key)
        return 202, self._record(len(self.made) - 1) | {"status": "pending", "outputs": []}

    def _record(self, number: int) -> dict[str, Any]:
        return {
            "id": f"gen_{number}",
            "model": "epsilon-2",
            "status": "success",
            "credits": {"cost": self.cost},
            "outputs": [{"type": "picture", "url": f"{self.origin}/file", "keep_until": "2030-01-01T00:00:00Z"}],
            "error": None,
        }


@asynccontextmanager
async def stranger(folder: Path, **changed: Reply) -> AsyncIterator[Stranger]:
    """Serve a stranger in this process; `changed` are replies by their calls."""
    scripted = ScriptedServer()
    server = await asyncio.start_server(scripted.handle, "127.0.0.1", 0)
    origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    one = Stranger(folder, origin, plain_replies(origin) | changed, scripted)
    scripted.script = one.script
    try:
        yield one
    finally:
        server.close()


def agreeing(*, agrees: bool = True) -> tuple[PaymentConsent, list[str]]:
    """Make a person who answers every question so, and what they were asked."""
    asked: list[str] = []

    async def answer(question: str) -> bool:
        asked.append(question)
        return agrees

    return PaymentConsent(answer, lambda _: None), asked
