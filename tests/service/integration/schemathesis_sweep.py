"""Schemathesis against a real service process, with every check it has: it proves the interface description.

As a command: `python tests/service/integration/schemathesis_sweep.py --examples 500 --seed 7`.

Before, an image is uploaded, and the description as schemathesis sees it is narrowed to what exists: that image. What
it means to be accepted also offers to pay enough. Positive data can then be accepted wherever its form alone decides.
"""

import argparse
import asyncio
import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from PIL import Image

SOURCE: Final = Path(__file__).resolve().parents[3] / "src"
sys.path.insert(0, str(SOURCE))  # as a command, this runs without pytest's path

from batchkiln_service import Limits  # noqa: E402 - after the path is set
from batchkiln_service.db.credits import audit  # noqa: E402 - after the path is set

KEY: Final = "key-of-the-sweep"
PHASES: Final = "examples,coverage,fuzzing,stateful"
HOOKS: Final = """
import schemathesis

HIGHEST_PRICE = 500


@schemathesis.hook
def before_call(context, case, kwargs):
    meta, body = case.meta, case.body
    if meta is None or not meta.generation.mode.is_positive or not isinstance(body, dict):
        return
    if isinstance(body.get("max_cost_credits"), int | float):
        body["max_cost_credits"] = max(body["max_cost_credits"], HIGHEST_PRICE)
"""
_MANY_CREDITS: Final = 10**12


@dataclass(frozen=True, slots=True)
class Sweep:
    """How it ended, what schemathesis printed, and what the service says of its books afterwards."""

    exit_status: int
    printed: str
    base_url: str
    service_errors: str
    audit: list[str]


async def sweep(folder: Path, *, examples: int, seed: int, phases: str = PHASES, models: Sequence[str] = ()) -> Sweep:
    """Start a service in `folder` and let schemathesis loose on it. `models`: only these are asked for, or all."""
    async with _service(folder) as (process, base_url):
        narrowed = folder / "narrowed.json"
        narrowed.write_text(json.dumps(await _narrowed(base_url, models)), encoding="utf-8")
        exit_status, printed = await _run_schemathesis(narrowed, base_url, examples=examples, seed=seed, phases=phases)
        process.terminate()
        _, errors = await process.communicate()
    connection = sqlite3.connect(folder / "service" / "service.db")
    connection.row_factory = sqlite3.Row
    with closing(connection):
        found = audit(connection)
    return Sweep(exit_status, printed, base_url, errors.decode(errors="replace"), found)


@asynccontextmanager
async def _service(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run a service of its own: limits lifted, generations ending at once."""
    config = {
        "state_dir": str(folder / "service"),
        "instant": True,
        "accounts": [{"name": "main", "credits": _MANY_CREDITS, "keys": [KEY]}],
        "limits": Limits.lifted().model_dump(),
    }
    path = folder / "service.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "batchkiln", "serve", "-q", "--config", str(path)),
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = (await process.stdout.readline()).decode()
        if not ready:
            _, errors = await process.communicate()
            raise RuntimeError(f"the service did not start: {errors.decode()}")
        yield process, ready.split()[5]  # "The local service is at URL"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _narrowed(base_url: str, models: Sequence[str]) -> dict[str, object]:
    """Return the service's description, narrowed to what exists and is to be asked for."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        asset_id, asset_url = await _upload(session, base_url)
        async with session.get(f"{base_url}/openapi.json") as response:
            text = await response.text()
    document = json.loads(text.replace("ast_1f2e3d4c5b6a79881f2e3d4c", asset_id))
    schemas = document["components"]["schemas"]
    url = schemas["ImageInput"]["properties"]["url"]
    schemas["ImageInput"]["properties"]["url"] = {"type": "string", "enum": [asset_url], **_kept(url)}
    ids = schemas["CompletionRequest"]["properties"]["asset_ids"]
    ids["items"] = {"type": "string", "enum": [asset_id], **_kept(ids["items"])}
    for name in ("VideoRequest", "ImageRequest"):
        shapes = schemas[name]["oneOf"]
        schemas[name]["oneOf"] = [
            shape for shape in shapes if not models or _model_of(schemas[shape["$ref"].rpartition("/")[2]]) in models
        ]
    for media in _request_media(document):
        media["examples"] = {
            name: example for name, example in media["examples"].items() if _is_asked_for(example["value"], models)
        }
    assert isinstance(document, dict)
    return document


def _request_media(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        for operation in path.values():
            yield from operation.get("requestBody", {"content": {}})["content"].values()


def _model_of(shape: dict[str, Any]) -> object:
    return shape["properties"]["model"]["const"]


def _is_asked_for(body: dict[str, Any], models: Sequence[str]) -> bool:
    return not models or body.get("model") in (None, *models)


def _kept(schema: dict[str, object]) -> dict[str, object]:
    return {name: schema[name] for name in ("description",) if name in schema}


async def _upload(session: aiohttp.ClientSession, base_url: str) -> tuple[str, str]:
    """Upload a picture; return its id and URL."""
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (20, 120, 20)).save(buffer, "PNG")
    files = [{"name": "green.png", "type": "image/png", "size": len(buffer.getvalue())}]
    async with session.post(f"{base_url}/uploads", json={"files": files}) as response:
        upload = (await response.json())["uploads"][0]
    async with aiohttp.ClientSession() as bare:
        put = bare.put(upload["upload_url"], data=buffer.getvalue(), headers=upload["upload_headers"])
        async with put as response:
            assert response.status == 200
    async with session.post(f"{base_url}/uploads/complete", json={"asset_ids": [upload["asset_id"]]}) as response:
        return upload["asset_id"], (await response.json())["assets"][0]["url"]


async def _run_schemathesis(document: Path, base_url: str, *, examples: int, seed: int, phases: str) -> tuple[int, str]:
    (document.parent / "hooks.py").write_text(HOOKS, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", base_url),
        *("--header", f"Authorization:Bearer {KEY}", "--checks", "all", "--mode", "all"),
        *("--phases", phases, "--max-examples", str(examples), "--seed", str(seed)),
        *("--generation-database", "none", "--no-color", "--continue-on-failure"),
        *("--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "30"),
        cwd=document.parent,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(document.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run schemathesis against the local service, with every check.")
    parser.add_argument("--examples", type=int, default=100, help="test cases for each operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default=PHASES)
    parser.add_argument("--models", nargs="*", default=(), help="only these; default: all")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(
            sweep(Path(folder), examples=args.examples, seed=args.seed, phases=args.phases, models=args.models)
        )
    print(done.printed)
    print(done.service_errors[-5000:], *done.audit, sep="\n", file=sys.stderr)
    return done.exit_status or len(done.audit)


if __name__ == "__main__":
    sys.exit(main())
