"""One account of the service under two names is refused before anything is sent."""

from pathlib import Path
from typing import Any, Final

import pytest

import batchkiln

SMALL: Final[batchkiln.Defaults] = {
    "model": "epsilon-2",
    "mode": "text-to-image",
    "parameters": {"resolution": "512x512"},
}
NOBODY: Final = "http://127.0.0.1:9/api/v1"
MAIN: Final = {"name": "main", "keys": [{"env": "STUDIO_KEY"}]}
OTHER: Final = {"name": "other", "keys": [{"file": "key"}]}


@pytest.mark.parametrize(
    "profiles",
    [
        {"studio": {"base_url": NOBODY, "accounts": [MAIN, OTHER]}},
        {"studio": {"base_url": NOBODY, "accounts": [MAIN]}, "twin": {"base_url": NOBODY, "accounts": [OTHER]}},
    ],
    ids=["two accounts", "two profiles"],
)
async def test_one_key_under_two_names_is_refused(
    profiles: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws 4 and 5: two generations would be active at once, and each limit used twice."""
    monkeypatch.setenv("STUDIO_KEY", "canary-key")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("canary-key\n")
    config = {"default_profile": "studio", "profiles": profiles}

    async with batchkiln.open_queue(tmp_path / "queue.db", config=config, working_dir=tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        with pytest.raises(batchkiln.InputError) as refused:
            await queue.run()
        spent = (await queue.status("foxes")).summary.credits.charged

    told = str(refused.value)
    assert "studio/main (the environment variable STUDIO_KEY)" in told
    assert "/other (the file key)" in told
    assert "Nothing was sent" in told
    assert "canary" not in told
    assert spent == 0


async def test_profiles_that_are_not_used_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only profiles with work are refused; `doctor` reports the others."""
    monkeypatch.setenv("STUDIO_KEY", "canary-key")
    twins = {name: {"base_url": NOBODY, "accounts": [MAIN]} for name in ("studio", "twin")}
    config = {"default_profile": "local", "profiles": twins | {"local": {"time_scale": 600}}}

    async with batchkiln.open_queue(tmp_path / "queue.db", config=config, working_dir=tmp_path) as queue:
        await queue.enqueue_items(["A fox"], job="foxes", defaults=SMALL)
        ending = await queue.run()

    assert ending.exit_status is batchkiln.ExitStatus.OK
