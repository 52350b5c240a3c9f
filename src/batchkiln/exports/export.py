"""One export from its first row to its card: what is asked, whether the place may be written to, and the steps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml

from batchkiln.core.errors import InputError, OutputDirNotWritable
from batchkiln.core.sample_names import DatasetRow, Splits
from batchkiln.exports.card import Subject, card_text, first_card_text, front_matter, told_of
from batchkiln.exports.columns_inference import Columns, SchemaInference
from batchkiln.exports.csv_file import CsvFile
from batchkiln.exports.destinations import CARD, Destination, Link, needs_extra
from batchkiln.exports.folder_destination import FolderPlace
from batchkiln.exports.imagefolder import kind_of, metadata_names
from batchkiln.exports.imagefolder import spot_of as folder_spot_of
from batchkiln.exports.jsonl_file import JsonlFile
from batchkiln.exports.media_files import MediaFiles
from batchkiln.exports.parquet_file import ParquetFile
from batchkiln.exports.result import LeftOut, Outcome
from batchkiln.exports.source_files import Sources
from batchkiln.exports.tables import Spot, Tables
from batchkiln.exports.url_destination import UrlPlace
from batchkiln.exports.webdataset import Shards


class Format(StrEnum):
    """What a dataset is written as."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    IMAGEFOLDER = "imagefolder"
    WEBDATASET = "webdataset"


_TABLES: Final[Mapping[Format, Any]] = {Format.JSONL: JsonlFile, Format.CSV: CsvFile, Format.PARQUET: ParquetFile}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person asks for. `items_per_shard` counts those of one split, on average."""

    format: Format
    to: str
    link: Link | None = None
    splits: Splits = field(default_factory=Splits)
    items_per_shard: int = 1000
    is_thorough: bool = True


class Export:
    """One export. `subject` is what the card tells of the job; `pulse` is called often, and may raise to end it.

    The place has to be empty, or an earlier export of the same job with the same layout. Raises `InputError` for any
    other, and for a part that is not installed, before anything is written.
    """

    def __init__(
        self,
        wishes: Wishes,
        subject: Subject,
        shapes: SchemaInference,
        *,
        pulse: Callable[[], None],
        tell: Callable[[LeftOut], None],
    ) -> None:
        """Open the place, and see that it may be written to."""
        _check_installed(wishes.format)
        self._wishes = wishes
        self._subject = subject
        self._makes = ["video" if makes else "image" for makes in sorted(shapes.makes)]
        is_dense = wishes.format in {Format.IMAGEFOLDER, Format.WEBDATASET}
        self._columns = shapes.columns(shapes.makes, is_dense=is_dense)
        self._own_columns = {makes: shapes.columns([makes], is_dense=is_dense) for makes in shapes.makes}
        self._place = _open_place(wishes.to, wishes.link)
        self._earlier = self._place.card()
        self._check_place()
        self._sources = Sources(is_thorough=wishes.is_thorough, pulse=pulse)
        self._outcome = Outcome(tell)
        self._has_begun = False
        self._latest_index = -1
        self._writer = self._new_writer()

    @property
    def title(self) -> str:
        """Where the dataset is, in words that hold no secret."""
        return self._place.title

    def add(self, row: DatasetRow) -> None:
        """Take the next row; rows come by index."""
        if row.index != self._latest_index:
            self._outcome.items += 1
            self._latest_index = row.index
        with self._explained():
            if not self._has_begun:
                self._begin()
            self._writer.add(row, self._wishes.splits.split_of(row.item), self._outcome)

    def finish(self) -> Outcome:
        """Give everything its name, the card last; without a row nothing is written."""
        if self._has_begun:
            with self._explained():
                self._finish()
        if self._columns.renamed:
            told = ", ".join(f"{key!r} is {name!r}" for key, name in self._columns.renamed.items())
            self._outcome.notes.append(f"some metadata have columns of other names, since theirs are taken: {told}")
        return self._outcome

    def close(self) -> None:
        """Remove what was begun and did not come to its end."""
        if isinstance(self._writer, Tables):
            self._writer.close()
        self._place.close()

    def _finish(self) -> None:
        match self._writer:
            case Tables():
                self._writer.finish(self._table_names())
            case Shards():
                self._writer.finish(self._outcome)
        self._publish_card(
            card_text(self._subject, self._layout(), self._outcome, self._columns, earlier=self._earlier)
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Tell of a disk that refuses a table or a shard, as the places tell of media."""
        try:
            yield
        except OSError as error:
            raise OutputDirNotWritable(
                f"{self.title}: {error.strerror or error}. What was exported stays, nothing was charged; run the same "
                "command again once that is mended: it goes on from there"
            ) from error

    def _begin(self) -> None:
        """Say in a new place whose it is, so that an export that is interrupted can go on there."""
        self._has_begun = True
        if self._earlier is None:
            self._publish_card(first_card_text(self._subject, self._layout()))

    def _publish_card(self, text: str) -> None:
        self._place.staging.mkdir(parents=True, exist_ok=True)
        staged = self._place.staging / CARD
        staged.write_text(text, "utf-8")
        self._place.publish(staged, CARD)

    def _layout(self) -> dict[str, Any]:
        """Give what an earlier export must have in common with this one; the card's front matter records it."""
        layout: dict[str, Any] = {
            "job": self._subject.job,
            "format": self._wishes.format.value,
            "makes": self._makes,
            "splits": dict(self._wishes.splits.shares),
        }
        if self._wishes.format is Format.WEBDATASET:
            layout["items_per_shard"] = self._wishes.items_per_shard
        return layout

    def _check_place(self) -> None:
        title = self._place.title
        if self._earlier is None:
            if not self._place.is_empty():
                raise InputError(f"--to {title}: it holds other files; name a new folder, or one of an earlier export")
            return
        try:
            recorded = told_of(front_matter(self._earlier))
        except yaml.YAMLError as error:
            raise InputError(f"{title}/{CARD}: its front matter is no YAML; mend it, or export elsewhere") from error
        if recorded is None:
            raise InputError(f"--to {title}: its {CARD} is of no export of batchkiln; name another folder")
        for name, wanted in self._layout().items():
            if recorded.get(name) != wanted:
                raise InputError(
                    f"--to {title}: it was exported with {name} {_words(recorded.get(name))}, not {_words(wanted)}; "
                    "export to another folder, or ask for the same"
                )

    def _new_writer(self) -> Tables | Shards:
        if self._wishes.format is Format.WEBDATASET:
            shares = dict(self._wishes.splits.shares)
            return Shards(
                self._place,
                self._sources,
                columns_of=self._columns_of_kind,
                items_per_shard=lambda split: max(1, round(self._wishes.items_per_shard / shares[split])),
            )
        media = MediaFiles(self._place, self._sources)
        if self._wishes.format is Format.IMAGEFOLDER:
            spot_of = partial(folder_spot_of, is_mixed=len(self._makes) > 1)
            return Tables(self._place, media, spot_of=spot_of, columns_of=self._columns_of_kind, new_table=JsonlFile)
        table = _TABLES[self._wishes.format]
        return Tables(
            self._place,
            media,
            spot_of=lambda row, split: Spot("", f"{split}{table.suffix}", f"{kind_of(row)}/"),
            columns_of=lambda _: self._columns,
            new_table=table,
        )

    def _columns_of_kind(self, row: DatasetRow) -> Columns:
        return self._own_columns[row.mode.makes_video]

    def _table_names(self) -> list[str]:
        splits = tuple(name for name, _ in self._wishes.splits.shares)
        if self._wishes.format is Format.IMAGEFOLDER:
            return metadata_names(splits, is_mixed=len(self._makes) > 1)
        return [f"{split}{_TABLES[self._wishes.format].suffix}" for split in splits]


def _open_place(to: str, link: Link | None) -> Destination:
    """Open a folder, or a URL of fsspec, which `://` tells. Raises `InputError`."""
    if "://" not in to:
        return FolderPlace(Path(to), link)
    if to.startswith("file://"):
        return FolderPlace(Path(unquote(urlsplit(to).path)), link)
    if link not in {None, Link.COPY}:
        raise InputError(f"--link {link}: links can only be made in a folder; at a URL files are copied")
    return UrlPlace(to)


def _check_installed(wanted: Format) -> None:
    if wanted is Format.PARQUET:
        try:
            import pyarrow as pa  # noqa: F401, PLC0415  an extra, which only this format needs
        except ImportError as error:
            raise InputError(needs_extra("--format parquet")) from error


def _words(value: object) -> str:
    match value:
        case dict():
            return ",".join(f"{key}={share:g}" for key, share in value.items())
        case list():
            return " and ".join(f"{one}s" for one in value)
        case _:
            return str(value)
