"""Which services go on while this machine is suspended."""

import asyncio
from pathlib import Path

import pytest

from batchkiln.api.app_context import AppContext, Environment
from batchkiln.api.engine import open_engine
from batchkiln.config import Account, Config, KeySource, Profile
from batchkiln.store import Store
from batchkiln.worker.run_state import RunState

HOURS = 9 * 3600.0
STUDIO = Profile("studio", "https://service.invalid/api/v1", (Account("main", (KeySource(env="STUDIO_KEY"),)),))


@pytest.mark.parametrize(("profile", "passed"), [(STUDIO, HOURS), (Profile("local", scale=1.0), 0.0)])
async def test_time_passes_for_a_service_elsewhere(
    profile: Profile, passed: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 5: windows of a service elsewhere move on, and those of the local one, which was suspended too, do not."""
    monkeypatch.setenv("STUDIO_KEY", "a-key")
    suspended = 0.0
    environment = Environment(suspended=lambda: suspended)
    app = AppContext(tmp_path / "queue.db", Config({profile.name: profile}, profile.name), environment=environment)
    store = await Store.open_for_writing(app.queue)
    try:
        async with open_engine(store, app, RunState(), command="test") as driver:
            clock = (await driver._service(profile.name)).clock
            before = clock.monotonic() - asyncio.get_running_loop().time()
            suspended = HOURS
            after = clock.monotonic() - asyncio.get_running_loop().time()
    finally:
        await store.close()

    assert after - before == pytest.approx(passed, abs=1.0)
