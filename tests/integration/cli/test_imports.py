"""What a command must not import: each of these takes longer than most commands."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.programs import environment

MANIFEST: Final = """\
version: 1
job: foxes
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 512x512}}
items: [{id: red, prompt: A fox}]
"""
NEVER: Final = (
    "aiohttp.web",
    "anyascii",
    "apprise",
    "prometheus_client",
    "pyarrow",
    "PIL",
    "standardwebhooks",
    "watchfiles",
)
ENQUEUEING: Final = (*NEVER, "aiohttp", "batchkiln.client", "batchkiln.worker", "batchkiln_service.server")
READING: Final = (
    *ENQUEUEING,
    "batchkiln_service",
    "jinja2",
    "pydantic",
    "structlog",
    "yaml",
    "batchkiln.manifest",
    "batchkiln.api.queue",
)
ONCE: Final = (
    *READING,
    "aiosqlite",
    "asyncio",
    "ssl",
    "batchkiln.store.leases",
    "batchkiln.store.planner_snapshot",
)
DRIVING: Final = (*NEVER, "batchkiln.dashboard", "batchkiln.notifications", "batchkiln.planning", "batchkiln_service")
PROGRAM: Final = """\
import sys
from batchkiln.cli.main import run_program

status = run_program(sys.argv[2:])
print("exit", status, *(name for name in sys.argv[1].split(",") if name in sys.modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a queue of one job."""
    folder = tmp_path_factory.mktemp("imports")
    (folder / "foxes.yaml").write_text(MANIFEST)
    assert imported(folder, ENQUEUEING, "enqueue", "foxes.yaml") == "exit 0"
    return folder


def imported(folder: Path, unwanted: tuple[str, ...], *arguments: str) -> str:
    """Run a command; return its exit status, and what of the unwanted it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(unwanted), *arguments],
        cwd=folder,
        env=environment(XDG_CONFIG_HOME=str(folder)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("status", "foxes"), ONCE),
        (("status", "--json"), (*ONCE, "rich")),
        (("items", "foxes", "--json"), (*READING, "rich")),
        (("show", "foxes", "red"), (*READING, "rich")),
        (("run", "--help"), DRIVING),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) else "",
)
def test_nothing_heavy_is_imported(arguments: tuple[str, ...], unwanted: tuple[str, ...], folder: Path) -> None:
    """A command that reads needs no client and no manifest; one that drives, no page and no server."""
    assert imported(folder, unwanted, *arguments) == "exit 0"


def test_the_guard_sees_what_is_imported(folder: Path) -> None:
    """`enqueue` does read YAML: the test above can fail."""
    assert imported(folder, ("yaml",), "enqueue", "foxes.yaml") == "exit 0 yaml"


def test_drawing_needs_nothing_of_the_server() -> None:
    """Each run on the embedded service starts the process that draws; the names of the package come when asked for."""
    program = (
        "import sys, batchkiln_service.media.__main__\n"
        "print(*(name for name in ('aiohttp', 'asyncio', 'pydantic', 'sqlite3', 'av') if name in sys.modules))\n"
        "import batchkiln_service as service\n"
        "print(*(name for name in (*service.__all__, 'unknown') if not hasattr(service, name)))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, check=True)

    assert done.stdout.split() == [b"av", b"unknown"]
