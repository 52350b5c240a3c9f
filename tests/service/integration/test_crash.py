"""The service killed in the middle of a generation."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

import batchkiln

from .service_world import IMAGE

KEY = "an-idempotency-key"
TIME_SCALE = 40


@contextmanager
def running(folder: Path, *, ends_by: signal.Signals) -> Iterator[tuple[str, dict[str, str]]]:
    """Run a service whose time is fast; gives its address and the headers of a create."""
    source = Path(batchkiln.__file__).parents[1]
    arguments = ["--state-dir", str(folder), "--time-scale", str(TIME_SCALE)]
    with subprocess.Popen(
        [sys.executable, "-m", "batchkiln", "serve", "-q", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(source), *sys.path])},
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[5]  # "The local service is at URL"
            key = (folder / "key-main").read_text().strip()
            yield address, {"Authorization": f"Bearer {key}", "Idempotency-Key": KEY}
        finally:
            process.send_signal(ends_by)


async def test_generation_continues_after_a_kill(tmp_path: Path) -> None:
    """An accepted generation survives SIGKILL, ends, and is charged once. Service rules 3.1 and 4.2."""
    with running(tmp_path, ends_by=signal.SIGKILL) as (address, headers):
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{address}/images", json=IMAGE) as response,
        ):
            accepted = await response.json()

    with running(tmp_path, ends_by=signal.SIGTERM) as (address, headers):
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(f"{address}/images", json=IMAGE) as response:
                replayed = await response.json()
            async with session.get(f"{address}/credits/balance") as response:
                balance = (await response.json())["balance"]
            polled = {"status": "pending"}
            while polled["status"] in {"pending", "processing"}:
                await asyncio.sleep(11 / TIME_SCALE)  # the interval that polling has to keep
                async with session.get(f"{address}/generations/{accepted['id']}") as response:
                    polled = await response.json()

    assert (accepted["status"], replayed["id"]) == ("pending", accepted["id"])
    assert (polled["status"], balance) == ("success", 1_000_000 - 2)
