"""The fuzzed functions and their invariants, shared by the hypothesis tests and the atheris command."""

import gzip
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Final

from batchkiln.core import filenames
from batchkiln.core.errors import InputError
from batchkiln.core.job import ItemSpec, JobSpec
from batchkiln.manifest import LocatedItem, open_manifest
from batchkiln.manifest.images import Images
from batchkiln.manifest.sources import Rows, SourceUnreadable, source_for
from batchkiln.manifest.templates import TemplateFailed, compile_condition, compile_template
from batchkiln.outputs import FileSystem
from batchkiln.outputs.paths import place_inside
from batchkiln.store.apply import ApplyOptions, apply_manifest
from batchkiln.store.sqlite.file_session import prepare_for_writing
from batchkiln.yaml_reading.diagnostics import Diagnostics, InvalidValue, open_bytes

ITEMS_READ: Final = 2_000  # of one hostile manifest; what comes later is made by the same code
PATIENCE_SECONDS: Final = 20.0  # of the processor: an input that takes more counts as a hang, however busy the machine
_WAITING_FACTOR: Final = 30  # what waits, as for a pipe that nobody writes, takes no processor
PATH_SIZE_BYTES: Final = 4095
NAME_SIZE_BYTES: Final = 255
KNOWN_VARIABLES: Final = {"prompt": "p", "a": "x", "b": 7, "c": [1, "two", None], "d": {"k": "v"}, "e": 1.5, "n": None}

# The only reasons that no line of any file could stand for.
_WITHOUT_LINE: Final = ("cannot be read", "was changed while", "too large", "is empty", "not UTF-8")


class Stuck(BaseException):
    """An input took longer than anybody's patience."""


@contextmanager
def patience(seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Raise `Stuck` in the main thread after so much of the processor. One for a process: not to be nested."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Stuck

    alarms = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, seconds * _WAITING_FACTOR),
    )
    before = [signal.signal(number, ring) for number, _, _ in alarms]
    for _, timer, after in alarms:
        signal.setitimer(timer, after)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(alarms, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def furnish(folder: Path) -> None:
    """Lay out what hostile manifests name: rows of each kind, and what is no file at all."""
    rows = 'prompt,a,b\none,x/../y,1\n"t\nwo",..,2\nthree,CON,3\n'
    (folder / "r.csv").write_text(rows, encoding="utf-8")
    (folder / "r.tsv").write_text('prompt\ta\none\t"x\ty"\ntwo\t"say ""b"""\n', encoding="utf-8")
    (folder / "r.jsonl").write_text(
        '{"prompt": "p", "a": {"b": [1, null]}}\n{"prompt": "q", "a": 5}\n', encoding="utf-8"
    )
    (folder / "r.txt").write_bytes("\ufeffa\r\n\nb\u2028c\n".encode())
    (folder / "r.csv.gz").write_bytes(gzip.compress(rows.encode()))
    (folder / "cut.csv.gz").write_bytes(gzip.compress(rows.encode() * 50)[:-20])
    (folder / "bad.csv").write_bytes(b"prompt\n\xff\xfe\n")
    (folder / "empty.csv").touch()
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    (folder / "loop.csv").symlink_to("loop.csv")
    (folder / "device.csv").symlink_to("/dev/zero")
    (folder / "linked.csv").symlink_to("r.csv")


def read(folder: Path, manifest: bytes, name: str = "m.yaml") -> tuple[JobSpec, list[LocatedItem]] | InputError:
    """Read a manifest as the commands do; at most the first items of it."""
    (folder / name).write_bytes(manifest)
    try:
        opened = open_manifest(name, working_dir=folder)
        return opened.job, list(islice(opened.items(), ITEMS_READ))
    except InputError as error:
        return error


def applied(folder: Path, name: str, template: Path) -> tuple[list[tuple[str, int]], InputError | None]:
    """Apply a manifest to a queue of its own; give the names and indices that are then queued, and the error."""
    queue = folder / "queue.db"
    for leftover in folder.glob("queue.db*"):
        leftover.unlink()
    queue.write_bytes(template.read_bytes())
    connection = sqlite3.connect(queue, isolation_level=None)
    error: InputError | None = None
    try:
        prepare_for_writing(connection, queue)
        manifest = open_manifest(name, working_dir=folder)
        apply_manifest(
            connection,
            manifest.job,
            manifest.items(),
            profile="local",
            now=1_800_000_000_000,
            options=ApplyOptions(),
            diagnostic_at=manifest.diagnostic_at,
        )
    except InputError as caught:
        error = caught
    rows = connection.execute("SELECT name, position FROM item ORDER BY position").fetchall()
    jobs = connection.execute("SELECT count(*) FROM job").fetchone()[0]
    connection.close()
    assert error is None or (not rows and not jobs), "something was enqueued in spite of an error"
    return [(row[0], row[1]) for row in rows], error


def empty_queue(path: Path) -> Path:
    """Make the queue file that every example begins with."""
    connection = sqlite3.connect(path, isolation_level=None)
    prepare_for_writing(connection, path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


def check_told(error: InputError) -> None:
    """Each mistake names its file, line and column, and says something that a terminal can show."""
    assert error.mistakes
    for mistake in error.mistakes:
        text = str(mistake)
        assert mistake.reason.strip(), mistake
        assert not any(sign in text for sign in "\x00\x1b\x9b\u202e\r"), ascii(text)
        assert mistake.file is not None, mistake
        if any(reason in mistake.reason for reason in _WITHOUT_LINE):
            continue
        assert mistake.line is not None, mistake
        assert mistake.line >= 1, mistake
        assert mistake.column is not None, mistake
        assert mistake.column >= 1, mistake


def check_names(job: JobSpec, specs: list[ItemSpec], *, are_queued: bool) -> None:
    """Every name that the items' files would get stands inside the output folder, and can be made there.

    Those that went into the queue have first files that no two of them share.
    """
    root, files, seen = Path(job.output_dir), FileSystem(), dict[str, str]()
    real_root = files.real_path(root)
    for index, spec in enumerate(specs):
        names = [
            filenames.render(
                spec.file_name or job.filename,
                job=job.name,
                item=spec.name,
                index=index,
                output=output,
                model=spec.recipe.model,
                ext="webm",
            )
            for output in (1, 2, 10)
        ]
        for name in names:
            path = place_inside(files, root, name)
            assert path.resolve().is_relative_to(real_root), name
            _check_makeable(path, name)
        other = seen.setdefault(names[0], spec.name)
        assert other == spec.name or not are_queued, (names[0], spec.name, other)


def _check_makeable(path: Path, name: str) -> None:
    assert len(os.fsencode(path)) <= PATH_SIZE_BYTES, "a path longer than the system takes"
    for part in PurePosixPath(name).parts:
        assert part not in {"", ".", ".."}, ascii(name)
        assert len(part.encode()) <= NAME_SIZE_BYTES, ascii(name)
        assert not any(sign in part for sign in '\\:*?"<>|\x00'), ascii(name)
        stem = part.split(".")[0].strip(" ").lower()
        assert stem not in {"con", "prn", "aux", "nul", "com1", "lpt1"}, ascii(name)
        assert not part.endswith((" ", ".")), ascii(name)


def check_manifest(folder: Path, manifest: bytes) -> None:
    """The whole promise for the bytes of a manifest, but for the queue."""
    found = read(folder, manifest)
    if isinstance(found, InputError):
        check_told(found)
        return
    job, placed = found
    check_names(job, [one.spec for one in placed], are_queued=False)


def check_rows(folder: Path, content: bytes, kind: str) -> None:
    """A file of rows gives rows, findings or `SourceUnreadable`."""
    path = folder / f"fuzzed.{kind}"
    path.write_bytes(gzip.compress(content, 1) if kind.endswith(".gz") and content[:1] != b"!" else content)
    source = source_for(path.name, path, path.name)
    assert source is not None
    findings = Diagnostics(path.name, path)
    with open_bytes(source.path) as stream:
        try:
            for line, number, variables in Rows(source, stream, findings):
                assert line >= number >= 1
                assert all(isinstance(name, str) for name in variables)
        except SourceUnreadable as error:
            _check_said(error.reason)
    if findings:
        findings.error()


def check_template(text: str) -> None:
    """A template gives a text within bounds, or `TemplateFailed`."""
    try:
        template = compile_template(text)
        result = template.render(KNOWN_VARIABLES)
    except TemplateFailed as failed:
        _check_said(failed.reason)
        return
    assert isinstance(result, str)
    assert len(result) <= max(1 << 20, len(text))


def check_condition(text: str) -> None:
    """A `where` holds or not, or raises `TemplateFailed`."""
    try:
        assert compile_condition(text).holds(KNOWN_VARIABLES) in {True, False}
    except TemplateFailed as failed:
        _check_said(failed.reason)


def check_image(folder: Path, content: bytes) -> None:
    """A file given as an image is one, or is refused."""
    (folder / "fuzzed.img").write_bytes(content)
    try:
        assert Images(folder).get("fuzzed.img").media_type.startswith("image/")
    except InvalidValue as refused:
        _check_said(refused.reason)


def _check_said(reason: str) -> None:
    assert reason.strip(), "refused without a reason"
