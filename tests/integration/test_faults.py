"""The whole program against the real local service that misbehaves: whatever comes, the service's ledger is clean."""

from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from batchkiln.api.app_context import AppContext
from batchkiln.api.apply_manifests import apply_manifests, scope_of
from batchkiln.api.engine import open_engine
from batchkiln.config import load_config
from batchkiln.core.queue_types import Outstanding
from batchkiln.store import Store
from batchkiln.store.apply import ApplyOptions
from batchkiln.worker.run_state import RunState
from batchkiln_service import AccountConfig, LocalService, ServiceConfig
from batchkiln_service.faults.fault_rules import FaultRule
from crash.service_books import Books

SCALE = 300.0  # an upload link lives for a second of real time, enough for a machine that is busy
PROMPTS = [f"A heron over marsh number {number}" for number in range(10)]
CLIPS = [f"The heron of photograph {number} takes off" for number in range(2)]

CONFIG = """
default_profile: rough
profiles:
  rough:
    base_url: {base_url}
    accounts: [{{name: main, keys: [{{file: service/key-main}}]}}]
    time_scale: {scale}
"""

ROUGH = (
    FaultRule(kind="reply_lost", endpoint="create", times=None, probability=0.2),
    FaultRule(kind="cut_body", endpoint="create", times=None, probability=0.1),
    FaultRule(kind="reset_before", endpoint="create", times=None, probability=0.1),
    FaultRule(kind="unavailable", endpoint="create", times=None, probability=0.1),
    FaultRule(kind="html", endpoint="create", times=None, probability=0.1),
    FaultRule(kind="throttle", endpoint="create", times=2, seconds=30),
    FaultRule(kind="reply_lost", endpoint="quote", times=1),
    FaultRule(kind="unavailable", endpoint="upload", times=1, seconds=5),
    FaultRule(kind="reply_lost", endpoint="complete", times=1),
    FaultRule(kind="reset_before", endpoint="put", times=1),
    FaultRule(kind="unavailable", endpoint="poll", times=None, probability=0.1),
    FaultRule(kind="reply_lost", endpoint="poll", times=None, probability=0.1),
    FaultRule(kind="cut_body", endpoint="poll", times=None, probability=0.1),
    FaultRule(kind="edge_block", endpoint="poll", times=1, after=3),
    FaultRule(kind="cut_body", endpoint="download", times=None, probability=0.3),
    FaultRule(kind="reset_before", endpoint="download", times=None, probability=0.2),
    FaultRule(kind="link_dies_early", endpoint="any", times=3),
)


def manifest() -> str:
    """Give images from prompts and clips from images."""
    images = "\n".join(f'  - "{prompt}"' for prompt in PROMPTS)
    clips = "\n".join(
        f"""  - id: clip-{number}
    prompt: {prompt}
    model: alpha-2.5-lite
    mode: image-to-video
    inputs: [{number}.png]
    parameters: {{resolution: 480p, duration_seconds: 5, aspect_ratio: "16:9"}}"""
        for number, prompt in enumerate(CLIPS)
    )
    head = (
        "version: 1\njob: rough\ndefaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}"
    )
    return f"{head}\nitems:\n{images}\n{clips}\n"


async def drive(folder: Path) -> Outstanding:
    """Do what `batchkiln run` does, without its screen."""
    app = AppContext(folder / "queue.db", load_config(folder / "batchkiln.yaml", {}), working_dir=folder)
    store = await Store.open_for_writing(app.queue)
    try:
        control = RunState()
        async with open_engine(store, app, control, command="test") as driver:
            path = str(folder / "manifest.yaml")
            applied = await apply_manifests(store, app, [path], options=ApplyOptions(), stdin=BytesIO())
            control.scope = scope_of(applied)
            return await driver.run()
    finally:
        await store.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_rough_service_is_survived_and_each_prompt_charged_once(tmp_path: Path, seed: int) -> None:
    """Laws 2, 3, 4, 5 and 7 against lost and cut replies, 503, 429, edge 403, dead links and broken downloads."""
    for number in range(len(CLIPS)):
        Image.new("RGB", (640, 360), (40 * number, 90, 160)).save(tmp_path / f"{number}.png")
    (tmp_path / "manifest.yaml").write_text(manifest())
    config = ServiceConfig(
        state_dir=tmp_path / "service",
        time_scale=SCALE,
        seed=seed,
        faults=ROUGH,
        accounts=(AccountConfig(name="main"),),
    )

    async with LocalService(config) as service:
        (tmp_path / "batchkiln.yaml").write_text(CONFIG.format(base_url=service.base_url, scale=SCALE))
        left = await drive(tmp_path)

    assert left.total == 0
    books = Books.read(tmp_path / "service")
    told_to_wait = [row["fault"] for row in books.requests if row["status"] in {403, 429}]
    assert None not in told_to_wait, "a limit was really overstepped"
    violations = [one for one in books.violations([*PROMPTS, *CLIPS]) if "refused with" not in one]
    assert violations == []
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == len(PROMPTS) + len(CLIPS)
