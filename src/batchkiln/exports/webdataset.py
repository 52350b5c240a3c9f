"""WebDataset: numbered tar shards, in which the files of one sample follow each other.

An item's shard depends on its index alone, so an item that is done later changes one shard. A shard has samples of one
extension, as in `train/png-000000.tar`. Its first header is a comment with the hash of its content: a shard that would
not change is left as it is, without reading an output.
"""

import hashlib
import tarfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from batchkiln.core.sample_names import DatasetRow, sample_key
from batchkiln.exports.dataset_columns import Columns
from batchkiln.exports.destinations import Destination
from batchkiln.exports.media_files import OutputChecker, OutputUnusable, local_output
from batchkiln.exports.result import ExportResult
from batchkiln.outputs.file_formats import extension_of

_COMMENT: Final = "batchkiln shard "
_SHARD_KEPT: Final = (
    "its shard was left unchanged, because outputs that may be in it are gone: restore them, or export to another place"
)


class _Sample(Struct, frozen=True, eq=False):
    """One row in a shard. `record` is its JSON."""

    row: DatasetRow
    key: str
    extension: str
    record: bytes

    def digest(self) -> bytes:
        parts = [self.key.encode(), self.extension.encode(), self.row.sha256.encode(), self.record]
        return hashlib.sha256(b"\0".join(parts)).digest()

    def add_to(self, archive: tarfile.TarFile) -> None:
        """Add the media, the prompt and the record, in the order of their extensions."""
        small = {"json": self.record, "txt": self.row.prompt.encode()}
        for extension in sorted([*small, self.extension]):
            # The header names no owner of this machine, and the time at which the output was saved.
            entry = tarfile.TarInfo(f"{self.key}.{extension}")
            entry.mtime = int(self.row.saved_at.timestamp())
            if extension in small:
                entry.size = len(small[extension])
                archive.addfile(entry, BytesIO(small[extension]))
            else:
                entry.size = self.row.size_bytes
                with Path(local_output(self.row)).open("rb") as file:
                    archive.addfile(entry, file)


class _Shard(Struct):
    """The samples of one shard, in order."""

    number: int
    split: str
    extension: str
    samples: list[_Sample]


class ShardWriter:
    """Collects rows in the order of their index, and writes a shard before the first row of the next one."""

    def __init__(
        self,
        destination: Destination,
        checker: OutputChecker,
        *,
        columns_of: Callable[[DatasetRow], Columns],
        items_per_shard: Callable[[str], int],
    ) -> None:
        """`items_per_shard` maps a split to the number of the job's items that one of its shards spans."""
        self._destination = destination
        self._checker = checker
        self._columns_of = columns_of
        self._items_per_shard = items_per_shard
        self._open: dict[tuple[str, str], _Shard] = {}

    def add(self, row: DatasetRow, split: str, result: ExportResult) -> None:
        """Add a row to its shard."""
        extension = extension_of(row.media_type)
        number = row.index // self._items_per_shard(split)
        shard = self._open.get((split, extension))
        if shard is None or shard.number != number:
            if shard is not None:
                self._write(shard, result)
            shard = self._open[split, extension] = _Shard(number, split, extension, [])
        key = sample_key(row.item, row.output)
        record = orjson.dumps(self._columns_of(row).record(row, f"{key}.{extension}"))
        shard.samples.append(_Sample(row, key, extension, record))

    def finish(self, result: ExportResult) -> None:
        """Write the last shards."""
        for shard in self._open.values():
            self._write(shard, result)
        self._open = {}
        self._destination.flush()

    def _write(self, shard: _Shard, result: ExportResult) -> None:
        """Write a shard without its unusable outputs, unless that would drop samples of an existing shard."""
        name = f"{shard.split}/{shard.extension}-{shard.number:06d}.tar"
        existing = _digest_in(self._destination.head(name))
        samples, unusable = shard.samples, dict[_Sample, str]()
        is_new = existing != _digest_of(samples)
        if is_new:
            unusable = self._unusable(samples)
            samples = [sample for sample in samples if sample not in unusable]
            is_new = existing != _digest_of(samples)
            if not samples or (unusable and existing is not None and is_new):
                for sample in shard.samples:
                    result.leave_out(sample.row, unusable.get(sample, _SHARD_KEPT))
                return
        if is_new:
            self._publish(samples, name)
        for sample in samples:
            result.add(sample.row, shard.split, is_new=is_new)
            result.shards[shard.split, sample.extension] += 1
        for sample, reason in unusable.items():
            result.leave_out(sample.row, reason)

    def _unusable(self, samples: Sequence[_Sample]) -> dict[_Sample, str]:
        found = dict[_Sample, str]()
        for sample in samples:
            try:
                self._checker.check(sample.row)
            except OutputUnusable as unusable:
                found[sample] = str(unusable)
        return found

    def _publish(self, samples: Sequence[_Sample], name: str) -> None:
        self._destination.staging.mkdir(parents=True, exist_ok=True)
        staged = self._destination.staging / "shard"
        comment = {"comment": f"{_COMMENT}{_digest_of(samples)}"}
        with tarfile.open(staged, "w", format=tarfile.PAX_FORMAT, pax_headers=comment) as archive:
            for sample in samples:
                sample.add_to(archive)
        self._destination.publish(staged, name)


def _digest_of(samples: Sequence[_Sample]) -> str:
    return hashlib.sha256(b"".join(sample.digest() for sample in samples)).hexdigest()


def _digest_in(head: bytes) -> str | None:
    """Return the digest in an existing shard's comment; None if the file is missing or not a shard of an export."""
    if not head:
        return None
    try:
        with tarfile.open(fileobj=BytesIO(head)) as archive:
            comment = archive.pax_headers.get("comment", "")
    except tarfile.TarError:
        return None
    return comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else None
