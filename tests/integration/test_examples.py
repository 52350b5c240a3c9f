"""The manifests in `jobs/` are the first thing that people run: each works as it stands, by the program itself."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import av
import pytest
from PIL import Image

from support.programs import environment, start

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = sorted((ROOT / "jobs").glob("*.yaml"))
HURRIED: Final = "profiles:\n  local:\n    time_scale: 600\n"
TIMEOUT_SECONDS: Final = 120


@dataclass(frozen=True)
class Example:
    """A manifest that was run once in a folder of its own."""

    manifest: Path
    folder: Path
    first_run: subprocess.CompletedProcess[str]

    def items(self) -> list[dict[str, Any]]:
        printed = _batchkiln(self.folder, "items", self.manifest.stem, "--json").stdout
        return [json.loads(line) for line in printed.splitlines()]

    def files(self) -> Mapping[Path, int]:
        """Give the files there are, with the nanosecond in which each was written."""
        return {path: path.stat().st_mtime_ns for path in (self.folder / "out").rglob("*") if path.is_file()}


def _batchkiln(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with start(arguments, cwd=folder, env=environment(XDG_CONFIG_HOME=str(folder))) as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Example:
    manifest: Path = request.param
    folder = tmp_path_factory.mktemp(manifest.stem)
    (folder / "batchkiln.yaml").write_text(HURRIED, encoding="utf-8")
    return Example(manifest, folder, _batchkiln(folder, "run", str(manifest)))


def _look_at(path: Path) -> None:
    """Decode a picture, or a clip's first frame. Raises what the decoder raises."""
    if path.suffix in {".png", ".jpg"}:
        with Image.open(path) as image:
            image.load()
        return
    with av.open(str(path)) as clip:
        next(clip.decode(video=0))


def test_ends_well(example: Example) -> None:
    """Every item of the example is done, which exit status 0 says."""
    assert example.first_run.returncode == 0, example.first_run.stderr


def test_every_output_is_whole(example: Example) -> None:
    """Each item has its file, as long as recorded, and a decoder can read it."""
    items = example.items()

    outputs = [output for item in items for output in item["outputs"]]

    assert len(outputs) == len(items) > 0
    for output in outputs:
        path = example.folder / output["path"]
        assert path.stat().st_size == output["bytes"]
        _look_at(path)


def test_all_files_are_below_out(example: Example) -> None:
    """The folder that is ignored by git is the only one to which files are written, but for the queue."""
    beside = {path.name for path in example.folder.iterdir()}

    assert beside <= {"out", ".batchkiln", "batchkiln.yaml"}


def test_second_run_changes_nothing(example: Example) -> None:
    """Running a finished manifest again sends nothing and writes nothing."""
    items, files = example.items(), example.files()

    second_run = _batchkiln(example.folder, "run", str(example.manifest))

    assert second_run.returncode == 0, second_run.stderr
    assert example.items() == items
    assert example.files() == files
