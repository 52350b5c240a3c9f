"""Writes a report item by item: cards go to an unnamed temporary file, and the pages are assembled at the end.

The totals on the first page therefore match the cards, and memory holds only a few items.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from msgspec import Struct

from batchkiln.core.errors import InputError
from batchkiln.core.shown import Shown
from batchkiln.disk_sync import sync_file
from batchkiln.object_storage import held_file
from batchkiln.outputs.kept_thumbnails import KeptThumbnails
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail
from batchkiln.reports.contents import ReportFile, ReportItem, ReportJob
from batchkiln.reports.html_pages import (
    MARK,
    PageLink,
    Picture,
    Shape,
    page_mark,
    render_card,
    render_foot,
    render_head,
)
from batchkiln.reports.totals import ReportTotals

PAGE_SIZE: Final = 1000  # items; with pictures a file of about 20 MB, which mail and phones accept

_EDGES: Final = ((150, 640), (400, 480))  # items on a page at most, and the pixels of a thumbnail's longer side
_SMALLEST_EDGE: Final = 320
_MAX_RATIOS: Final = 1000
_CHUNK_BYTES: Final = 1024 * 1024
_MAX_THREADS: Final = 4
_SHEET: Final = '<div class="sheet">\n'
_END_OF_SHEET: Final = "</div>\n"


class WrittenPage(Struct, frozen=True):
    """One page on disk."""

    path: Path
    size_bytes: int


class WrittenReport(Shown, Struct, frozen=True):
    """The pages, starting with the first, and their totals."""

    files: tuple[WrittenPage, ...]
    totals: ReportTotals

    def _shown(self) -> Iterator[tuple[str, object]]:
        yield "files", [str(page.path) for page in self.files]
        yield "items", self.totals.items
        yield "images", self.totals.images
        yield "videos", self.totals.videos
        yield "missing files", self.totals.missing_count or None


class ReportWriter:
    """Takes a job's items in order, then writes the pages. As a context manager, it leaves no unfinished files."""

    def __init__(self, target: Path, *, job: str, items: int, page_size: int = PAGE_SIZE) -> None:
        """`target` is the first page's path. The thumbnails' size depends on the expected number of `items`."""
        self._target, self._job, self._page_size = target, job, page_size
        edges = (edge for most, edge in _EDGES if min(items, page_size) <= most)
        self._edge = next(edges, _SMALLEST_EDGE)
        self._kept = KeptThumbnails()
        self._totals = ReportTotals()
        self._ratios: Counter[float] = Counter()
        self._starts: list[int] = []  # of each page's cards in the spool
        self._taken = 0
        self._open = ExitStack()
        self._spool: BinaryIO

    def __enter__(self) -> Self:
        """Open the temporary file. Raise `InputError` if `target` is another file or cannot be written."""
        check_ours(self._target, MARK)
        with _translated_errors(self._target):
            self._spool = self._open.enter_context(tempfile.TemporaryFile(dir=self._target.parent))
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS), thread_name_prefix="thumbnails")
        self._open.callback(self._threads.shutdown, cancel_futures=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the temporary file and stop the threads."""
        self._open.close()

    def add(self, items: Sequence[ReportItem]) -> None:
        """Add the next items. Raise `InputError` if the disk cannot be written."""
        wanted = [file for item in items for file in item.files]
        pictures = self._threads.map(self._thumbnail, wanted)
        for item in items:
            self._add(item, [Picture(file, next(pictures)) for file in item.files])

    def _thumbnail(self, file: ReportFile) -> Thumbnail | NoThumbnail:
        try:
            with held_file(file.url or str(file.path), sha256=file.sha256, size_bytes=file.size_bytes) as path:
                return self._kept.of(
                    path,
                    media_type=file.media_type,
                    edge=self._edge,
                    size_bytes=file.size_bytes,
                    sha256=file.sha256,
                )
        except FileNotFoundError:
            return NoThumbnail.GONE
        except OSError:
            return NoThumbnail.UNREADABLE

    def _add(self, item: ReportItem, pictures: Sequence[Picture]) -> None:
        page, place = divmod(self._taken, self._page_size)
        if not place:
            self._starts.append(self._spool.tell())
        self._taken += 1
        self._totals.add(item, page=page)
        for picture in pictures:
            match picture.thumbnail:
                case NoThumbnail.GONE:
                    self._totals.add_missing(picture.file.name)
                case NoThumbnail.CHANGED:
                    self._totals.changed_count += 1
                case NoThumbnail.UNREADABLE:
                    self._totals.unreadable_count += 1
                case Thumbnail() as thumbnail:
                    ratio = round(thumbnail.original_width / thumbnail.original_height, 2)
                    if ratio in self._ratios or len(self._ratios) < _MAX_RATIOS:
                        self._ratios[ratio] += 1
        with _translated_errors(self._target):
            self._spool.write(_encoded(render_card(item, pictures)))

    def finish(self, job: ReportJob) -> WrittenReport:
        """Write all pages under temporary names, then rename them, the first page last. Raise `InputError`."""
        self._starts = self._starts or [0]
        links = [self._link(page) for page in range(len(self._starts))]
        paths = [self._target.with_name(link.name) for link in links]
        for page, path in enumerate(paths[1:], start=1):
            check_ours(path, page_mark(self._job, page).rstrip())
        shape = Shape.common(self._ratios)
        with ExitStack() as unfinished, _translated_errors(self._target):
            parts = []
            for page, path in enumerate(paths):
                part = path.with_name(f".{path.name}.{os.getpid()}.part")
                unfinished.callback(part.unlink, missing_ok=True)
                with part.open("wb") as file:
                    file.write(_encoded(render_head(job, self._totals, links, page=page, shape=shape) + _SHEET))
                    self._copy_cards(file, page)
                    file.write(_encoded(_END_OF_SHEET + render_foot(job, links, page=page)))
                    file.flush()
                    sync_file(file.fileno())
                parts.append((part, path))
            for part, path in reversed(parts):
                part.replace(path)
            self._remove_stale(len(paths))
            written = tuple(WrittenPage(path, path.stat().st_size) for path in paths)
        return WrittenReport(written, self._totals)

    def _link(self, page: int) -> PageLink:
        first = page * self._page_size
        return PageLink(_page_path(self._target, page).name, first, min(first + self._page_size, self._taken) - 1)

    def _copy_cards(self, file: BinaryIO, page: int) -> None:
        end = self._starts[page + 1] if page + 1 < len(self._starts) else self._spool.seek(0, os.SEEK_END)
        left = end - self._spool.seek(self._starts[page])
        while left > 0 and (chunk := self._spool.read(min(left, _CHUNK_BYTES))):
            file.write(chunk)
            left -= len(chunk)

    def _remove_stale(self, page: int) -> None:
        """Remove the pages of an earlier, longer report of the same job."""
        while _begins_with(path := _page_path(self._target, page), page_mark(self._job, page)):
            path.unlink(missing_ok=True)
            page += 1


def check_ours(path: Path, mark: str) -> None:
    """Raise `InputError` if the path is a folder, or a file that is not a report of this job."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file with --to. Nothing was written")
    if path.exists() and path.stat().st_size and not _begins_with(path, mark):
        raise InputError(f"{path} exists and is not a report of this job; name another file with --to, or move it away")


def _begins_with(path: Path, mark: str) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark.encode())) == mark.encode()
    except OSError:
        return False


def _page_path(target: Path, page: int) -> Path:
    return target if page == 0 else target.with_name(f"{target.stem}-{page + 1}{target.suffix}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # lone surrogates, from escapes in a JSON file, have no UTF-8


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise InputError(
            f"{path}: the report cannot be written: {reason}; fix that, or name another file with --to"
        ) from error
