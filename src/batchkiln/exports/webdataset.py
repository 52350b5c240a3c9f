"""WebDataset: numbered tar shards, in which a sample's files stand one after the other.

An item's shard depends on its index alone, so that an item which is done later changes one shard and no other. A shard
has samples of one extension: `train/png-000000.tar`. It begins with a comment that tells what is in it by hash; one
that would become the same again is left as it is, without reading an output.
"""

import hashlib
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Final

import orjson

from batchkiln.core.sample_names import DatasetRow, sample_key
from batchkiln.exports.columns_inference import Columns
from batchkiln.exports.destinations import Destination
from batchkiln.exports.media_files import Brought
from batchkiln.exports.result import Outcome
from batchkiln.exports.source_files import Sources
from batchkiln.outputs.file_formats import extension_of

_MARK: Final = "batchkiln shard "
_KEPT_WHOLE: Final = (
    "its shard is left as it was, since files that it may hold are gone from the outputs: bring those back, or export "
    "to another place"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """A row as it stands in a shard."""

    row: DatasetRow
    key: str
    extension: str
    record: bytes

    @property
    def mark(self) -> bytes:
        return b"\0".join([self.key.encode(), self.extension.encode(), self.row.sha256.encode(), self.record])


@dataclass(slots=True)
class _Shard:
    """The samples of one shard, in order."""

    number: int
    split: str
    samples: list[_Sample]


class Shards:
    """Takes rows in the order of their index, and writes a shard when its last row has come."""

    def __init__(
        self,
        place: Destination,
        sources: Sources,
        *,
        columns_of: Callable[[DatasetRow], Columns],
        items_per_shard: Callable[[str], int],
    ) -> None:
        """Take how many items of the job lie in one shard of a split."""
        self._place = place
        self._sources = sources
        self._columns_of = columns_of
        self._items_per_shard = items_per_shard
        self._open: dict[tuple[str, str], _Shard] = {}

    def add(self, row: DatasetRow, split: str, outcome: Outcome) -> None:
        """Take a row."""
        extension = extension_of(row.media_type)
        number = row.index // self._items_per_shard(split)
        shard = self._open.get((split, extension))
        if shard is not None and shard.number != number:
            self._write(shard, extension, outcome)
            shard = None
        if shard is None:
            shard = self._open[split, extension] = _Shard(number, split, [])
        shard.samples.append(self._sample(row, extension))

    def finish(self, outcome: Outcome) -> None:
        """Write the last shards."""
        for (_, extension), shard in self._open.items():
            self._write(shard, extension, outcome)
        self._open = {}
        self._place.settle()

    def _sample(self, row: DatasetRow, extension: str) -> _Sample:
        name = sample_key(row.item, row.output)
        record = self._columns_of(row).record(row, f"{name}.{extension}")
        return _Sample(row, name, extension, orjson.dumps(record))

    def _write(self, shard: _Shard, extension: str, outcome: Outcome) -> None:
        name = f"{shard.split}/{extension}-{shard.number:06d}.tar"
        held = _mark_in(self._place.head(name))
        samples, lost = shard.samples, dict[_Sample, str]()
        while held != _mark_of(samples):
            staged, damaged = self._try(samples)
            if staged is not None:
                if lost and held is not None:
                    staged.unlink()
                    _leave(shard.samples, lost, outcome)
                    return
                self._place.publish(staged, name)
                _count(samples, shard.split, Brought.NEW, lost, outcome)
                return
            lost |= damaged
            samples = [sample for sample in samples if sample not in damaged]
            if not samples:
                _leave(shard.samples, lost, outcome)
                return
        _count(samples, shard.split, Brought.THERE, lost, outcome)

    def _try(self, samples: Sequence[_Sample]) -> tuple[Path | None, dict[_Sample, str]]:
        """Make the shard, or tell which of its outputs cannot be in it."""
        problems = {sample: self._sources.problem(sample.row) for sample in samples}
        if damaged := {sample: problem for sample, problem in problems.items() if problem is not None}:
            return None, damaged
        self._place.staging.mkdir(parents=True, exist_ok=True)
        staged = self._place.staging / "shard"
        comment = {"comment": f"{_MARK}{_mark_of(samples)}"}
        with tarfile.open(staged, "w", format=tarfile.PAX_FORMAT, pax_headers=comment) as archive:
            for sample in samples:
                _add(archive, sample)
        return staged, {}


def _add(archive: tarfile.TarFile, sample: _Sample) -> None:
    """Add a sample's files, by extension: the picture or clip, the prompt, and all that a table would tell."""
    row = sample.row
    prompt = row.prompt.encode()
    small = [("json", sample.record), ("txt", prompt)]
    for extension, content in [entry for entry in small if entry[0] < sample.extension]:
        _add_file(archive, sample, extension, len(content), BytesIO(content))
    with Path(row.path).open("rb") as file:
        _add_file(archive, sample, sample.extension, row.size_bytes, file)
    for extension, content in [entry for entry in small if entry[0] > sample.extension]:
        _add_file(archive, sample, extension, len(content), BytesIO(content))


def _add_file(archive: tarfile.TarFile, sample: _Sample, extension: str, size_bytes: int, file: IO[bytes]) -> None:
    """Add a file with nothing of this machine in its header: no owner, and the instant at which it was saved."""
    entry = tarfile.TarInfo(f"{sample.key}.{extension}")
    entry.size = size_bytes
    entry.mtime = int(sample.row.saved_at.timestamp())
    archive.addfile(entry, file)


def _mark_of(samples: Sequence[_Sample]) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(hashlib.sha256(sample.mark).digest())
    return digest.hexdigest()


def _mark_in(head: bytes) -> str | None:
    """Read the comment of a shard that is there; None for no file, and for one of another program."""
    if not head:
        return None
    try:
        with tarfile.open(fileobj=BytesIO(head)) as archive:
            comment = archive.pax_headers.get("comment", "")
    except tarfile.TarError:
        return None
    return comment.removeprefix(_MARK) if comment.startswith(_MARK) else None


def _count(
    samples: Sequence[_Sample], split: str, brought: Brought, lost: dict[_Sample, str], outcome: Outcome
) -> None:
    for sample in samples:
        outcome.exported(sample.row, split, brought)
        outcome.shards[split, sample.extension] += 1
    for sample, problem in lost.items():
        outcome.left(sample.row, problem)


def _leave(samples: Sequence[_Sample], lost: dict[_Sample, str], outcome: Outcome) -> None:
    for sample in samples:
        outcome.left(sample.row, lost.get(sample, _KEPT_WHOLE))
