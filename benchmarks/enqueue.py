"""Enqueue many rows, against what sqlite3 needs to store them: seconds, ratios and peak memory in one table.

    python benchmarks/enqueue.py --rows 1000000

Each measurement is a process of its own, so that peaks do not mix. The plain one gives rows made in Python to
`executemany`, into one table with a unique index, 20,000 to a transaction, with the queue's settings of the file. It
has none of the queue's other indexes, checks and triggers.
"""

import argparse
import importlib
import importlib.util
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from figure import Figure, at_most, below

from batchkiln.core.catalog_checks import PlacedObjection
from batchkiln.core.errors import Diagnostic
from batchkiln.core.job import ItemSpec, JobSpec, Mode, Order, Recipe
from batchkiln.store.apply import ITEMS_AT_ONCE, ApplyOptions, apply_manifest
from batchkiln.store.sqlite.file_session import prepare_for_writing

RECIPE: Final = Recipe(
    "epsilon-2", Mode.TEXT_TO_IMAGE, (("aspect_ratio", "1:1"), ("resolution", "1024x1024")), 0, 20, 3
)
JOB: Final = JobSpec("big", "", None, (), Order.MANIFEST, None, None, "out", "{job}/{item}.{ext}", "big.yaml")
PLAIN_TABLE: Final = """CREATE TABLE plain (id INTEGER PRIMARY KEY, job_id, position, name, recipe_id, priority, prompt,
    inputs, metadata, file_name, UNIQUE (job_id, name))"""
RECIPE_ROW: Final = (
    "INSERT INTO recipe (recipe_key, price_key, model, mode, parameters, inputs_count, attempts)"
    " VALUES ('r', 'p', 'epsilon-2', 'text-to-image', '{}', 0, 3)"
)
JOB_ROW: Final = (
    "INSERT INTO job (name, description, profile, accounts, item_order, output_dir, filename, manifest_path,"
    " created_at) VALUES ('big', '', 'local', '[]', 'manifest', 'out', '{item}', 'big.yaml', 0)"
)
PROMPT: Final = "A harbour at dusk, seen from the water, with lanterns on the quay and gulls above the masts. " * 2
MANIFEST: Final = """version: 1
job: big
defaults: {model: epsilon-2, mode: text-to-image, parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}}
items:
  - from: rows.tsv
    prompt: "{{ Prompt }}"
    metadata: [Category, Challenge]
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """A row with its line, as a manifest gives it."""

    spec: ItemSpec
    file: str
    line: int
    objections: tuple[PlacedObjection, ...] = ()
    repetition: int = 0
    has_default_id: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """What one process needed."""

    seconds: float
    peak_mib: float


def metadata(number: int) -> str:
    """Give a row's metadata, as stored."""
    return f'{{"Category":"Harbours {number % 40}","Challenge":"Fine detail and {"light " * 12}"}}'


def made(rows: int) -> Iterator[Placed]:
    """Give rows of about 400 bytes."""
    for number in range(rows):
        spec = ItemSpec(f"rows-{number + 1}", RECIPE, f"{PROMPT}{number}", metadata=metadata(number))
        yield Placed(spec, "rows.tsv", number + 2)


def diagnostic_at(file: str, line: int, reason: str, remedy: str | None, column: int | None = None) -> Diagnostic:
    """Give a mistake without its source line."""
    return Diagnostic(reason, file=file, line=line, column=column, remedy=remedy)


def opened(folder: Path, name: str) -> sqlite3.Connection:
    """Open a queue as the program does."""
    path = folder / f"{name}.db"
    connection = sqlite3.connect(path, isolation_level=None)
    prepare_for_writing(connection, path)
    return connection


def plain(connection: sqlite3.Connection, rows: int) -> None:
    """Store the rows with nothing but sqlite3."""
    connection.execute(PLAIN_TABLE)
    insert = (
        "INSERT INTO plain (job_id, position, name, recipe_id, priority, prompt, inputs, metadata, file_name)"
        " VALUES (1, ?, ?, 1, ?, ?, NULL, ?, ?)"
    )
    for start in range(0, rows, ITEMS_AT_ONCE):
        chunk = (
            (number, f"rows-{number + 1}", 0, f"{PROMPT}{number}", metadata(number), None)
            for number in range(start, min(start + ITEMS_AT_ONCE, rows))
        )
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, chunk)
        connection.execute("COMMIT")


def applied(connection: sqlite3.Connection, rows: int) -> None:
    """Apply rows that are made on the way."""
    options = ApplyOptions()
    apply_manifest(connection, JOB, made(rows), profile="local", now=0, options=options, diagnostic_at=diagnostic_at)


def applied_from_file(connection: sqlite3.Connection, folder: Path) -> None:
    """Apply a manifest that names a TSV file: the whole path."""
    manifest: Any = importlib.import_module("batchkiln.manifest")
    opened_manifest = manifest.open_manifest(folder / "big.yaml", working_dir=folder)
    apply_manifest(
        connection,
        opened_manifest.job,
        opened_manifest.portions(),
        profile="local",
        now=0,
        options=ApplyOptions(),
        diagnostic_at=opened_manifest.diagnostic_at,
        contents=opened_manifest.contents(),
    )


def write_source(folder: Path, rows: int) -> None:
    """Write the TSV file and its manifest."""
    (folder / "big.yaml").write_text(MANIFEST, "utf-8")
    with (folder / "rows.tsv").open("w", encoding="utf-8") as file:
        file.write("Prompt\tCategory\tChallenge\n")
        for number in range(rows):
            file.write(f"{PROMPT}{number}\tHarbours {number % 40}\tFine detail and {'light ' * 12}\n")


def measure(step: str, folder: Path, rows: int) -> None:
    """Do one step in this process and print its seconds and peak memory."""
    connection = opened(folder, step.removesuffix("-again"))
    begun = time.perf_counter()
    match step.removesuffix("-again"):
        case "plain":
            plain(connection, rows)
        case "apply":
            applied(connection, rows)
        case "file":
            applied_from_file(connection, folder)
        case _:
            raise ValueError(step)
    seconds = time.perf_counter() - begun
    connection.close()
    sys.stdout.write(f"{seconds} {peak_mib()}")


def peak_mib() -> float:
    """Return this process's own peak; getrusage would tell that of the process that started it, where it is higher."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def measured(step: str, folder: Path, rows: int) -> Measured:
    """Do one step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--rows", str(rows)]
    seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return Measured(float(seconds), float(peak))


def report(rows: int, folder: Path, *, has_manifest: bool) -> None:
    """Print the table; the plain one is measured before and after, since machines drift."""
    steps = {"apply": "apply, new job", "apply-again": "apply again, unchanged"}
    if has_manifest:
        write_source(folder, rows)
        steps |= {"file": "TSV manifest, new job", "file-again": "TSV manifest again, unchanged"}
    before = measured("plain", folder, rows)
    found = {label: measured(step, folder, rows) for step, label in steps.items()}
    (folder / "plain.db").unlink()
    after = measured("plain", folder, rows)
    base = (before.seconds + after.seconds) / 2
    print(f"| {rows:,} rows of about 400 bytes | seconds | of plain | peak MiB |\n|---|---|---|---|")
    lines = {"plain sqlite3, before": before, **found, "plain sqlite3, after": after}
    for label, one in lines.items():
        print(f"| {label} | {one.seconds:.1f} | {one.seconds / base:.2f} | {one.peak_mib:.0f} |")


def figures(rows: int) -> Iterator[Figure]:
    """Give the lines of the table."""
    with tempfile.TemporaryDirectory(prefix="batchkiln-enqueue-") as name:
        folder = Path(name)
        write_source(folder, rows)
        before = measured("plain", folder, rows)
        ours = measured("file", folder, rows)
        again = measured("file-again", folder, rows)
        (folder / "plain.db").unlink()
        plain_seconds = (before.seconds + measured("plain", folder, rows).seconds) / 2
    beside = f"`executemany` into one table: {plain_seconds:.1f} s"
    yield at_most(f"enqueue {rows:,} from TSV", f"{ours.seconds:.1f} s", beside, ours.seconds / plain_seconds, 2)
    yield at_most("the same again, unchanged", f"{again.seconds:.1f} s", beside, again.seconds / plain_seconds, 1)
    yield below("the same, memory", max(ours.peak_mib, again.peak_mib), "MiB", "", 100)


def main() -> None:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        measure(options.step, options.folder, options.rows)
        return
    folder = Path(tempfile.mkdtemp(prefix="batchkiln-enqueue-"))
    try:
        report(options.rows, folder, has_manifest=importlib.util.find_spec("batchkiln.manifest") is not None)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
