"""`docs/datasets.md`: its commands and programs, run as they stand, one after the other."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.program_relay import relayed_program
from support.programs import environment

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "datasets.md").read_text("utf-8")
BLOCKS: Final = re.findall(r"^```(bash|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TIMEOUT_SECONDS: Final = 120  # only a page that hangs takes so long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Follow the page once, with a hurried local service and without the network."""
    made, tools = tmp_path_factory.mktemp("page"), tmp_path_factory.mktemp("tools")
    (made / "batchkiln.yaml").write_text("profiles:\n  local:\n    time_scale: 600\n", "utf-8")
    surroundings = environment(PATH=f"{tools}:{os.environ['PATH']}", HOME=str(made), HF_HUB_OFFLINE="1")
    commands = {"bash": [str(shutil.which("bash")), "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    with relayed_program(tools):
        for language, text in BLOCKS:
            result = subprocess.run(
                [*commands[language], text],
                cwd=made,
                env=surroundings,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"
    return made


def test_the_page_has_commands_for_all_formats() -> None:
    """Each format but the default is shown by a command that was run."""
    told = "".join(text for language, text in BLOCKS if language == "bash")

    assert {wanted for wanted in ("csv", "parquet", "imagefolder", "webdataset") if f"--format {wanted}" in told} == {
        "csv",
        "parquet",
        "imagefolder",
        "webdataset",
    }


@pytest.mark.long
def test_the_folders_are_as_the_page_draws_them(folder: Path) -> None:
    """The tree of the image folder, the tables, and the shards."""
    exported = folder / "exports" / "first-job"

    assert {path.name for path in (exported / "imagefolder").iterdir()} == {"README.md", "train"}
    assert {path.name for path in (exported / "imagefolder/train").iterdir()} == {"metadata.jsonl", "images"}
    assert (exported / "parquet/train.parquet").is_file()
    assert [path.name for path in sorted((folder / "shards/train").iterdir())] == ["png-000000.tar"]
    assert all(path.stat().st_nlink == 1 for path in (folder / "for-upload").rglob("*.png"))
