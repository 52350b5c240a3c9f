"""`docs/guides/`: every page can be followed as it stands, in an empty folder, and shows what it says.

The pages begin after what their README says of the time before the first. Of a page's blocks, those of `sh` and of
`python` are run in order by one process each, those after `<!-- file: NAME -->` are written to that file before the
next command, and each line after `<!-- shows -->` is part of what the commands before it showed. A block after
`<!-- fails: N -->` ends with that exit status; one after `<!-- elsewhere -->` is for another machine.
"""

import os
import re
import shutil
import signal
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

import pytest

from support.manual_commands import Block, blocks_of, follow, put_program
from support.program_relay import relayed_program
from support.programs import environment

ROOT: Final = Path(__file__).resolve().parents[2]
BEFORE: Final = ROOT / "docs" / "guides" / "README.md"
PAGES: Final = sorted(set((ROOT / "docs" / "guides").glob("*.md")) - {BEFORE})
_BACKGROUND: Final = re.compile(r"[^&]&$|^kill ", re.MULTILINE)
TIMEOUT_SECONDS: Final = 120  # only a page that hangs takes so long


class Reader:
    """Somebody who follows a page in a folder of their own."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder = folder
        self.shown = ""
        self._programs = {"sh": [str(shutil.which("bash")), "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self._environment = environment(PATH=path, HOME=str(folder), COLUMNS="120", HF_HUB_OFFLINE="1")

    def follow(self, block: Block) -> None:
        """Do what a block asks, and fail where it does not come out as the page says."""
        match block:
            case Block(mark="elsewhere"):
                return
            case Block(mark="file"):
                target = self.folder / block.value
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, "utf-8")
            case Block(mark="shows"):
                for line in block.text.splitlines():
                    assert line.strip() in self.shown, f"{line!r} was not shown:\n{self.shown}"
                self.shown = ""
            case Block(language="sh" | "python"):
                expected = int(block.value) if block.mark == "fails" else 0
                status = self._run(self._programs[block.language], block.text)
                assert status == expected, f"exit {status} instead of {expected} of\n{block.text}\n{self.shown}"
            case _:
                return

    def _run(self, program: list[str], text: str) -> int:
        status, shown = follow(
            [*program, text], cwd=self.folder, env=self._environment, timeout_seconds=TIMEOUT_SECONDS
        )
        self.shown += shown
        return status


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    folder, tools = tmp_path / "folder", tmp_path / "tools"
    tools.mkdir()
    folder.mkdir()
    reader = Reader(folder, tools)
    blocks = blocks_of(page)
    assert any(block.language == "sh" for block in blocks), "a page without commands is no guide"

    with program_for(blocks, tools):
        try:
            for block in [*blocks_of(BEFORE), *blocks]:
                reader.follow(block)
        finally:
            end_programs(folder)


def program_for(blocks: list[Block], tools: Path) -> AbstractContextManager[None]:
    """Put `batchkiln` into a folder; it starts real processes where a page has some in the background, or ends them."""
    if sys.platform == "linux" and not any(_BACKGROUND.search(block.text) for block in blocks):
        return relayed_program(tools)
    put_program(tools)
    return nullcontext()


def end_programs(folder: Path) -> None:
    """End what a page has started in the background, where following it failed before its last command."""
    for path in folder.glob("*.pid"):
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)
