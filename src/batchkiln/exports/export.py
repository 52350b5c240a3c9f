"""Exports a job's outputs as a dataset: adds rows, publishes tables or shards, and writes the card."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml
from msgspec import Struct, field

from batchkiln.core.errors import InputError
from batchkiln.core.sample_names import DatasetRow, Splits
from batchkiln.exports.card import JobFacts, card_text, first_card_text, front_matter, recorded_layout
from batchkiln.exports.dataset_columns import Columns, SchemaInference
from batchkiln.exports.destinations import CARD, Destination, Link, missing_extra, not_written
from batchkiln.exports.folder_destination import FolderDestination
from batchkiln.exports.media_files import MediaFiles, OutputChecker
from batchkiln.exports.result import ExportResult, LeftOut
from batchkiln.exports.tables import (
    CsvFile,
    JsonlFile,
    ParquetFile,
    TableFile,
    TableLocation,
    TableWriter,
    imagefolder_location,
    imagefolder_tables,
    media_folder,
)
from batchkiln.exports.url_destination import UrlDestination
from batchkiln.exports.webdataset import ShardWriter


class Format(StrEnum):
    """The format of a dataset."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"


_TABLE_FILES: Final[Mapping[Format, Callable[[Path, Columns], TableFile]]] = {
    Format.JSONL: JsonlFile,
    Format.CSV: CsvFile,
    Format.PARQUET: ParquetFile,
}


class ExportOptions(Struct, frozen=True):
    """The options of an export.

    `to` is a folder or a URL. `items_per_shard` counts the items of one split, on average. With `is_thorough`, files
    are compared by hash and not only by size.
    """

    format: Format
    to: str
    link: Link | None = None
    splits: Splits = field(default_factory=Splits)
    items_per_shard: int = 1000
    is_thorough: bool = True


class Export:
    """One export, into an empty destination or over an earlier export of the same job with the same layout.

    `check_interrupted` is called often; an exception that it raises ends the export.
    """

    def __init__(
        self,
        options: ExportOptions,
        job: JobFacts,
        inference: SchemaInference,
        *,
        check_interrupted: Callable[[], None],
        on_left_out: Callable[[LeftOut], None],
    ) -> None:
        """Open the destination and check it. `inference` must have observed all items of the job.

        Raise `InputError`, before anything is written, for a destination with other files or for packages that are not
        installed.
        """
        _check_installed(options.format)
        self._options = options
        self._job = job
        self._media_kinds = ["video" if is_video else "image" for is_video in sorted(inference.video_kinds)]
        is_dense = options.format in {Format.IMAGEFOLDER, Format.WEBDATASET}
        self._columns = inference.columns(inference.video_kinds, is_dense=is_dense)
        self._columns_by_kind = {
            is_video: inference.columns([is_video], is_dense=is_dense) for is_video in inference.video_kinds
        }
        self._destination = _open_destination(options.to, options.link)
        self._earlier_card = self._destination.card()
        self._check_destination()
        self._checker = OutputChecker(is_thorough=options.is_thorough, check_interrupted=check_interrupted)
        self._result = ExportResult(on_left_out)
        self._has_begun = False
        self._latest_index = -1
        self._writer = self._new_writer()

    @property
    def title(self) -> str:
        """The destination, without credentials."""
        return self._destination.title

    def add(self, row: DatasetRow) -> None:
        """Export a row. Rows come in the order of their index. Raise `OutputDirNotWritable`."""
        if row.index != self._latest_index:
            self._result.items += 1
            self._latest_index = row.index
        with self._translated_errors():
            if not self._has_begun:
                self._begin()
            self._writer.add(row, self._options.splits.split_of(row.item), self._result)

    def finish(self) -> ExportResult:
        """Publish tables or shards, then the card. Nothing is written for a job without outputs."""
        if self._has_begun:
            with self._translated_errors():
                match self._writer:
                    case TableWriter():
                        self._writer.finish(self._table_names())
                    case ShardWriter():
                        self._writer.finish(self._result)
                self._publish_card(
                    card_text(self._job, self._layout(), self._result, self._columns, earlier=self._earlier_card)
                )
        if self._columns.renamed:
            renamed = ", ".join(f"{key!r} is {name!r}" for key, name in self._columns.renamed.items())
            self._result.notes.append(f"some metadata keys are reserved, and their columns have other names: {renamed}")
        return self._result

    def close(self) -> None:
        """Remove unfinished files."""
        if isinstance(self._writer, TableWriter):
            self._writer.close()
        self._destination.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_written(self.title, error.strerror or error) from error

    def _begin(self) -> None:
        """Mark a new destination as this job's, so that an interrupted export can continue there."""
        self._has_begun = True
        if self._earlier_card is None:
            self._publish_card(first_card_text(self._job, self._layout()))

    def _publish_card(self, text: str) -> None:
        self._destination.staging.mkdir(parents=True, exist_ok=True)
        staged = self._destination.staging / CARD
        staged.write_text(text, "utf-8")
        self._destination.publish(staged, CARD)

    def _layout(self) -> dict[str, Any]:
        """Return the settings that all exports to this destination share. The card's front matter records them."""
        layout: dict[str, Any] = {
            "job": self._job.name,
            "format": self._options.format.value,
            "makes": self._media_kinds,
            "splits": dict(self._options.splits.shares),
        }
        if self._options.format is Format.WEBDATASET:
            layout["items_per_shard"] = self._options.items_per_shard
        return layout

    def _check_destination(self) -> None:
        if self._earlier_card is None:
            if not self._destination.is_empty():
                raise InputError(f"--to {self.title}: it contains other files; name a new folder or an earlier export")
            return
        try:
            recorded = recorded_layout(front_matter(self._earlier_card))
        except yaml.YAMLError as error:
            raise InputError(
                f"{self.title}/{CARD}: its front matter is not valid YAML; correct it, or export elsewhere"
            ) from error
        if recorded is None:
            raise InputError(f"--to {self.title}: its {CARD} is not from batchkiln; name another folder")
        for name, wanted in self._layout().items():
            if recorded.get(name) != wanted:
                raise InputError(
                    f"--to {self.title}: it was exported with {name} {_layout_value_text(recorded.get(name))}, not "
                    f"{_layout_value_text(wanted)}; export to another folder, or use the same options"
                )

    def _new_writer(self) -> TableWriter | ShardWriter:
        wanted = self._options.format
        if wanted is Format.WEBDATASET:
            shares = dict(self._options.splits.shares)
            return ShardWriter(
                self._destination,
                self._checker,
                columns_of=self._columns_of_kind,
                items_per_shard=lambda split: max(1, round(self._options.items_per_shard / shares[split])),
            )
        media = MediaFiles(self._destination, self._checker)
        if wanted is Format.IMAGEFOLDER:
            return TableWriter(
                self._destination,
                media,
                location_of=partial(imagefolder_location, is_mixed=len(self._media_kinds) > 1),
                columns_of=self._columns_of_kind,
                new_table=JsonlFile,
            )
        return TableWriter(
            self._destination,
            media,
            location_of=lambda row, split: TableLocation("", f"{split}.{wanted}", f"{media_folder(row)}/"),
            columns_of=lambda _: self._columns,
            new_table=_TABLE_FILES[wanted],
        )

    def _columns_of_kind(self, row: DatasetRow) -> Columns:
        return self._columns_by_kind[row.mode.makes_video]

    def _table_names(self) -> list[str]:
        splits = [name for name, _ in self._options.splits.shares]
        if self._options.format is Format.IMAGEFOLDER:
            return imagefolder_tables(splits, is_mixed=len(self._media_kinds) > 1)
        return [f"{split}.{self._options.format}" for split in splits]


def _open_destination(to: str, link: Link | None) -> Destination:
    if "://" not in to:
        return FolderDestination(Path(to), link)
    if to.startswith("file://"):
        return FolderDestination(Path(unquote(urlsplit(to).path)), link)
    if link not in {None, Link.COPY}:
        raise InputError(f"--link {link}: links can only be made in a folder; files are copied to a URL")
    return UrlDestination(to)


def _check_installed(wanted: Format) -> None:
    if wanted is Format.PARQUET:
        try:
            import pyarrow as pa  # noqa: F401, PLC0415  an extra, which only this format needs
        except ImportError as error:
            raise InputError(missing_extra("--format parquet")) from error


def _layout_value_text(value: object) -> str:
    match value:
        case dict():
            return ",".join(f"{key}={share:g}" for key, share in value.items())
        case list():
            return " and ".join(f"{kind}s" for kind in value)
        case _:
            return str(value)
