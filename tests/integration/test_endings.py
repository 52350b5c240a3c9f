"""A run ends by itself: no interleaving of slot, preparation and downloads loses the last wake-up."""

import asyncio
from io import BytesIO
from pathlib import Path

import pytest

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests, scope_of
from batchkiln.api.engine import open_engine
from batchkiln.config import load_config
from batchkiln.store import Store
from batchkiln.store.apply import ApplyOptions
from batchkiln.worker.run_state import RunState
from batchkiln_service import Limits, LocalService, ServiceConfig

RUNS = 40

CONFIG = """
default_profile: fast
profiles:
  fast:
    base_url: {base_url}
    accounts: [{{name: main, keys: [{{file: service/key-main}}]}}]
    limits: {{creates_per_minute: 1000000, creates_per_day: 1000000, reads_per_minute: 1000000, reads_per_day: 1000000,
      credits_per_day: 1000000, requests_per_minute_per_ip: 1000000, poll_interval_seconds: 0}}
"""

MANIFEST = """
version: 1
job: fast
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
output: {filename: "{item}-RUN.{ext}"}
items: [A fox, An owl, A heron]
"""


async def drive(folder: Path, number: int) -> int:
    """Run one manifest on a queue of its own; return what is left."""
    manifest = folder / f"manifest-{number}.yaml"
    manifest.write_text(MANIFEST.replace("RUN", str(number)))
    app = AppContext(folder / f"queue-{number}.db", load_config(folder / "batchkiln.yaml", {}), working_dir=folder)
    store = await Store.open_for_writing(app.queue)
    try:
        control = RunState()
        async with open_engine(store, app, control, command="test") as driver:
            options = ApplyOptions()
            applied = await apply_manifests(store, app, [str(manifest)], options=options, stdin=BytesIO())
            control.scope = scope_of(applied)
            return (await driver.run()).total
    finally:
        await store.close()


@pytest.mark.long
async def test_every_run_ends(tmp_path: Path) -> None:
    """Real threads and a service that answers at once: each of many runs ends, with nothing left."""
    config = ServiceConfig(state_dir=tmp_path / "service", instant=True, limits=Limits.lifted())
    async with LocalService(config) as service:
        (tmp_path / "batchkiln.yaml").write_text(CONFIG.format(base_url=service.base_url))

        for number in range(RUNS):
            async with asyncio.timeout(20):
                left = await drive(tmp_path, number)

            assert left == 0, f"run {number}"
