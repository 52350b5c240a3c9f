"""Proof by kills: the local service under a load of creates, killed with SIGKILL again and again.

    python tests/crash/service_load.py --kills 20

Every create is sent under a key that is written down beforehand. After each kill the service is started again; in the
end every key is sent once more, and the books are read: whatever was accepted replays to its generation, whatever got
no reply was created once or is created now, each is paid for once, and all of them end. The seed is printed, and
repeats the moments.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from batchkiln_service import Limits
from batchkiln_service.db.credits import audit

PATIENCE_SECONDS = 120.0
CONNECTIONS = 16
CREDITS = 1_000_000
REPLAYED_SHARE = 0.2  # of the requests of a load: a key that was sent before
API_KEY = "key-of-the-load"
CONFIG = f"""
state_dir: service
time_scale: 20
tiny_media: true
accounts: [{{name: main, credits: {CREDITS}, keys: [{API_KEY}]}}]
limits: {Limits.lifted().model_dump_json()}
"""


@dataclass
class Proof:
    """A folder with a service, the keys that were sent to it, and the ids that came back."""

    folder: Path
    seed: int
    sent: list[str] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._origin = ""

    async def run(self, kills: int) -> None:
        """Load and kill so many times, then send every key again, let everything end, and read the books."""
        (self.folder / "service.yaml").write_text(CONFIG)
        for _ in range(kills):
            process = await self._start()
            loading = [asyncio.create_task(self._load()) for _ in range(CONNECTIONS)]
            await asyncio.sleep(self._draw.uniform(0.1, 1.0))
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await asyncio.gather(*loading)
        process = await self._start()
        try:
            await self._in_turns(self.sent, self._send_once_more)
            await self._all_ended()
            await self._in_turns(list(self.accepted.values()), self._read)
        finally:
            process.send_signal(signal.SIGTERM)
            code = await process.wait()
        if code != 0:
            self.violations.append(f"the last stop had exit code {code}")
        self._check_books()

    async def _start(self) -> asyncio.subprocess.Process:
        source = str(Path(__file__).parents[2] / "src")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "batchkiln", "serve", "-q", "--config", "service.yaml"),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([source, *sys.path])},
        )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            self._origin = (await process.stdout.readline()).decode().split()[5]  # "The local service is at URL"
        return process

    async def _load(self) -> None:
        """Send creates until the service is gone."""
        async with self._session() as session:
            while True:
                is_replay = self.sent and self._draw.random() < REPLAYED_SHARE
                key = self._draw.choice(self.sent) if is_replay else self._new_key()
                try:
                    await self._create(session, key)
                except (aiohttp.ClientError, ConnectionError):
                    return

    def _new_key(self) -> str:
        key = f"key-of-create-{len(self.sent):08d}"
        self.sent.append(key)
        return key

    async def _create(self, session: aiohttp.ClientSession, key: str) -> None:
        """Send a create; a key always has the same body."""
        body = {
            "model": "epsilon-2",
            "mode": "text-to-image",
            "prompt": f"A fox, {key}",
            "parameters": {"resolution": "512x512", "aspect_ratio": "1:1"},
        }
        async with session.post(f"{self._origin}/images", json=body, headers={"Idempotency-Key": key}) as response:
            status, reply = response.status, await response.json()
        if status != 202:
            self.violations.append(f"{key}: {status} {json.dumps(reply)}")
        elif self.accepted.setdefault(key, reply["id"]) != reply["id"]:
            self.violations.append(f"{key}: accepted as {self.accepted[key]}, replayed as {reply['id']}")

    async def _send_once_more(self, session: aiohttp.ClientSession, key: str) -> None:
        await self._create(session, key)

    async def _read(self, session: aiohttp.ClientSession, generation_id: str) -> None:
        async with session.get(f"{self._origin}/generations/{generation_id}") as response:
            status, reply = response.status, await response.json()
        if (status, reply.get("status")) != (200, "success"):
            self.violations.append(f"{generation_id}: {status} {json.dumps(reply)}")

    async def _all_ended(self) -> None:
        """Wait until no generation is in progress any more; reading the balance lets those that are due end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        async with self._session() as session:
            while self._count("SELECT count(*) FROM generations WHERE ended_at_ms IS NULL"):
                if time.monotonic() > deadline:
                    self.violations.append("generations in progress did not end")
                    return
                async with session.get(f"{self._origin}/credits/balance") as response:
                    await response.read()
                await asyncio.sleep(0.05)

    async def _in_turns(
        self, subjects: list[str], work: Callable[[aiohttp.ClientSession, str], Awaitable[None]]
    ) -> None:
        """Do something with each, as many at a time as there are connections."""
        waiting = iter(subjects)

        async def worker() -> None:
            async with self._session() as session:
                for subject in waiting:
                    await work(session, subject)

        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))

    def _check_books(self) -> None:
        """Read the file that the kills have left."""
        with closing(self._connected()) as connection:
            self.violations += audit(connection)
            self.violations += [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        cost = self._count("SELECT min(cost_credits) FROM generations")
        charged = self._count("SELECT sum(credits) FROM transfers WHERE kind = 'charge'")
        made = self._count("SELECT count(*) FROM generations")
        if made != len(self.sent) or len(set(self.accepted.values())) != len(self.sent):
            self.violations.append(f"{len(self.sent)} keys, {made} generations, {len(self.accepted)} accepted")
        if charged != len(self.sent) * cost:
            self.violations.append(f"{charged} credits charged for {len(self.sent)} generations of {cost}")

    def _count(self, sql: str) -> int:
        with closing(self._connected()) as connection:
            return int(connection.execute(sql).fetchone()[0] or 0)

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / "service" / "service.db", timeout=PATIENCE_SECONDS)
        connection.row_factory = sqlite3.Row
        return connection

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(headers={"Authorization": f"Bearer {API_KEY}"})


def main() -> int:
    """Run the proof and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        proof = Proof(Path(name), args.seed)
        began = time.monotonic()
        with suppress(KeyboardInterrupt):
            asyncio.run(proof.run(args.kills))
    print(f"seed {args.seed}: {args.kills} kills, {len(proof.sent)} creates in {time.monotonic() - began:.0f} s")
    print("\n".join(proof.violations[:50]) or "every key has one generation, paid for once; the books balance")
    return 1 if proof.violations else 0


if __name__ == "__main__":
    sys.exit(main())
