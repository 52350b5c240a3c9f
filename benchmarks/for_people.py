"""What commands for people cost at size: `export`, `report`, `plan`, and what `retry` says before it does anything.

    python benchmarks/for_people.py [--items 1000000] [--pictures 10000] [--only items|pictures]

Each command is a process of its own; seconds are those on the wall and of the processor, MiB the peak of its memory.
Nine tenths of the items are done (of a second queue: failed); their files are a thousand small ones, which a thousand
links to their folder show under a million names. The pictures have a megapixel and much noise, half of them are JPEG.
The goals stand in docs/performance.md: memory that does not grow with the items, the price of a retry in 0.2 s.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from enqueue import applied_from_file, opened, write_source
from PIL import Image

from batchkiln.store.operations import preview_retry

FORMATS: Final = ("jsonl", "csv", "parquet", "imagefolder", "webdataset")
_FOLDERS: Final = 1000
_RUN: Final = """
import os, resource, sys
from pathlib import Path
from batchkiln.cli.main import run_program
try:
    status = run_program(sys.argv[1:])
finally:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    told = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    Path("measured").write_text(f"{cpu} {int(told['VmHWM'].split()[0]) / 1024}")
sys.exit(status)
"""

_SETTLED = {
    "done": (
        """INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint,
            body, checksum, quote_credits, cost_credits, day_start_at, sends, answers, generation_id,
            generation_status, generation_created_at, recorded_at, ended_at)
        SELECT id, job_id, 1, 1, 'succeeded', 0, 'bench-' || id, 'key', CAST(prompt AS BLOB), 0, 2, 2,
            (id / 1000) * 86400000, 1, 1, 'gen_' || id, 'success', 0, id * 86400, id * 86400 + 15000
        FROM item WHERE id <= :settled""",
        """INSERT INTO output (item_id, attempt_id, number, type, path, size_bytes, sha256, media_type, saved_at)
        SELECT item_id, id, 1, 'image', :folder || (item_id / 1000) || '/' || (item_id % 1000) || '.png', :size,
            :sha256, 'image/png', ended_at
        FROM attempt""",
        """UPDATE item SET state = 'done', attempt_id = (SELECT id FROM attempt WHERE item_id = item.id),
            version_id = (SELECT id FROM attempt WHERE item_id = item.id)
        WHERE id <= :settled""",
    ),
    "failed": (
        """INSERT INTO attempt (item_id, job_id, account_id, number, state, is_video, idempotency_key, key_fingerprint,
            body, checksum, quote_credits, cost_credits, is_refunded, day_start_at, sends, answers, generation_id,
            generation_status, generation_created_at, recorded_at, ended_at)
        SELECT id, job_id, 1, 1, 'failed', 0, 'bench-' || id, 'key', CAST(prompt AS BLOB), 0, 2, 2, 1,
            (id / 1000) * 86400000, 1, 1, 'gen_' || id, 'failed', 0, id * 86400, id * 86400 + 15000
        FROM item WHERE id <= :settled""",
        """UPDATE item SET state = 'failed', error_code = 'cause-' || (id % 20), error_message = 'It went wrong.',
            attempt_id = (SELECT id FROM attempt WHERE item_id = item.id) WHERE id <= :settled""",
    ),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What one command needed: seconds on the wall, seconds of the processor, and its peak of memory."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def command(folder: Path, *arguments: str) -> Measured:
    """Run `batchkiln` in a folder, in a process of its own."""
    began = time.perf_counter()
    line = [sys.executable, "-c", _RUN, *arguments]
    done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    assert done.returncode in {0, 3}, f"{arguments}: {done.returncode}: {done.stderr[-2000:]}"
    cpu_seconds, peak_mib = (folder / "measured").read_text().split()
    return Measured(seconds, float(cpu_seconds), float(peak_mib))


def fill(folder: Path, items: int) -> None:
    """Make two queues of a manifest's items, most of them done or failed."""
    write_source(folder, items)
    connection = opened(folder, "done")
    applied_from_file(connection, folder)
    connection.execute("INSERT INTO account (profile, name) VALUES ('local', 'main')")
    connection.execute("INSERT INTO quote SELECT 'local', price_key, 2, 0 FROM recipe")
    connection.close()
    shutil.copyfile(folder / "done.db", folder / "failed.db")
    media = _media(folder)
    for name, statements in _SETTLED.items():
        connection = opened(folder, name)
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement, {"settled": items * 9 // 10, **media})
        connection.execute("COMMIT")
        connection.close()


def _media(folder: Path) -> dict[str, object]:
    """Make a thousand files, and a thousand links to their folder."""
    content = b"\x89PNG\r\n\x1a\n" + bytes(200)
    real, shown = folder / "media", folder / "out"
    real.mkdir()
    shown.mkdir()
    for number in range(1000):
        (real / f"{number}.png").write_bytes(content)
    for number in range(_FOLDERS + 1):
        (shown / str(number)).symlink_to(real)
    return {"folder": f"{shown}/", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def fill_pictures(folder: Path, count: int) -> None:
    """Make a queue of items whose pictures have a megapixel, half of them JPEG; ten that were drawn serve for all."""
    fill(folder, count)
    shutil.rmtree(folder / "out")
    (folder / "out").mkdir()
    drawn = [_drawn(folder, number) for number in range(10)]
    connection = opened(folder, "done")
    connection.execute("BEGIN IMMEDIATE")
    for output_id, item_id in connection.execute("SELECT id, item_id FROM output").fetchall():
        source, facts = drawn[item_id % len(drawn)]
        path = folder / "out" / f"{item_id}{source.suffix}"
        os.link(source, path)
        place = {"id": output_id, "path": str(path), "type": f"image/{source.suffix[1:]}", **facts}
        connection.execute(
            "UPDATE output SET path = :path, size_bytes = :size, sha256 = :sha256, media_type = :type WHERE id = :id",
            place,
        )
    connection.execute("COMMIT")
    connection.close()


def _drawn(folder: Path, number: int) -> tuple[Path, dict[str, object]]:
    coarse = [Image.effect_noise((256, 256), 60).resize((1024, 1024)) for _ in range(3)]
    path = folder / f"drawn-{number}.{('png', 'jpeg')[number % 2]}"
    Image.merge("RGB", coarse).save(path)
    content = path.read_bytes()
    return path, {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def question(folder: Path) -> float:
    """Return the seconds that `retry` takes to price what failed, before it does anything."""
    connection = opened(folder, "failed")
    began = time.perf_counter()
    assert preview_retry(connection, "big", []).requeued, "nothing failed"
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def of_items(folder: Path, items: int) -> Iterator[tuple[str, Measured]]:
    """Measure what reads a whole job."""
    fill(folder, items)
    for wanted in FORMATS:
        export = ("export", "big", "--format", wanted, "--to", f"dataset-{wanted}", "--queue", "done.db", "-q")
        yield f"export --format {wanted}", command(folder, *export)
        if wanted == "jsonl":
            yield "  again, nothing new", command(folder, *export)
        shutil.rmtree(folder / f"dataset-{wanted}")
    yield "plan, nothing changed", command(folder, "plan", "big.yaml", "--queue", "done.db")
    yield "report without a picture", command(folder, "report", "big", "--queue", "failed.db", "-q")
    for page in folder.glob("big-report*.html"):
        page.unlink()
    seconds = question(folder)
    yield "the price of a retry", Measured(seconds, seconds, 0)


def of_pictures(folder: Path, count: int) -> Iterator[tuple[str, Measured]]:
    """Measure what looks at pictures."""
    fill_pictures(folder, count)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    yield "report", command(folder, "report", "big", "--queue", "done.db", "-q")
    yield "  again, with kept thumbnails", command(folder, "report", "big", "--queue", "done.db", "-q")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--pictures", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", choices=["items", "pictures"], default=["items", "pictures"])
    options = parser.parse_args()
    print(f"| {'command':40} | {'items':>9} | seconds | of the processor | MiB |\n|---|---|---|---|---|")
    for part, work, count in (("items", of_items, options.items), ("pictures", of_pictures, options.pictures)):
        if part in options.only:
            with tempfile.TemporaryDirectory(prefix="batchkiln-people-") as name:
                for label, one in work(Path(name), count):
                    figures = f"{one.seconds:.1f} | {one.cpu_seconds:.1f} | {one.peak_mib:.0f}"
                    print(f"| {label:40} | {count:>9,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
