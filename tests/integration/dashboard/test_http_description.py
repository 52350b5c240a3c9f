"""Schemathesis holds the running server against its OpenAPI description, with every check that it has."""

import asyncio
import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from batchkiln.dashboard.http_api.description import description
from batchkiln.dashboard.http_api.routes import operations
from integration.dashboard.interface import ALL, serving
from support.examples import examples
from support.queue_file import QueueFile

ITEMS: Final = ["picture", "clip", "failed", "held", "queued"]

# What fits the schema may still be no manifest, or cost more than was confirmed.
CONFIGURATION: Final = """
[[operations]]
include-name = "POST /api/v1/jobs"
checks.positive_data_acceptance.expected-statuses = ["2xx", "422"]

[checks]
positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "428"]
negative_data_rejection.expected-statuses = ["400", "404", "409", "413", "415", "422", "428"]
"""


def narrowed() -> dict[str, Any]:
    """Return the description with the names that exist; the stream is left out, because it does not end."""
    document = deepcopy(description(operations()))
    del document["paths"]["/api/v1/events/stream"]
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "item":
                    parameter["schema"] = {"type": "string", "enum": ITEMS}
                if parameter["name"] == "job" and parameter["in"] == "path":
                    parameter["schema"] = {"type": "string", "enum": ["birds"]}
    return document


async def run_schemathesis(folder: Path, base_url: str, *, max_examples: int) -> tuple[int, str]:
    (folder / "description.json").write_text(json.dumps(narrowed()))
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", "description.json", "--url", base_url),
        *("--header", f"Authorization:Bearer {ALL}", "--checks", "all", "--mode", "all"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(max_examples), "--seed", "1"),
        *("--generation-database", "none", "--no-color", "--continue-on-failure"),
        *("--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "30"),
        cwd=folder,
        env={**os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode(errors="replace")


@pytest.mark.long
async def test_description_is_true(queue: QueueFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits the description is answered as described, and what does not is refused with a problem."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    async with serving(queue.path) as client:
        status, printed = await run_schemathesis(work, client.served.url, max_examples=examples(3))

    assert status == 0, printed
    assert "No issues found" in printed
