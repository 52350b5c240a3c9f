"""Writes a report as its items come: the cards go to a file without a name, the pages are put together at the end.

So the sums of the first page are those of the cards, and memory holds a handful of items however many there are.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from batchkiln.core.errors import InputError
from batchkiln.outputs.thumbnails import NoThumbnail, Thumbnail, make_thumbnail
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
from batchkiln.reports.totals import Sums

PAGE_SIZE: Final = 1000
"""Items on a page: with pictures a file of some 20 MB, which mail and telephones still take."""

_EDGES: Final = ((150, 640), (400, 480))
_SMALLEST_EDGE: Final = 320
_RATIOS_MAX: Final = 1000
_COPIED_BYTES: Final = 1024 * 1024
_THREADS_MAX: Final = 4
_SHEET: Final = '<div class="sheet">\n'
_SHEET_END: Final = "</div>\n"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One page that stands under its name."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """The pages, the first one first, and what they say."""

    files: tuple[WrittenFile, ...]
    sums: Sums


class ReportWriter:
    """Takes a job's items in order, then writes the pages. A context: whatever happens, nothing half-done stays."""

    def __init__(self, target: Path, *, job: str, items: int, page_size: int = PAGE_SIZE) -> None:
        """Take the first page's path and how many items to expect, on which the pictures' size depends.

        Raises `InputError` where something else than a report stands there, or nothing can be written.
        """
        self._target, self._job, self._page_size = target, job, page_size
        edges = (edge for most, edge in _EDGES if min(items, page_size) <= most)
        self._edge = next(edges, _SMALLEST_EDGE)
        self._sums = Sums()
        self._ratios: Counter[float] = Counter()
        self._starts: list[int] = []  # of each page's cards in the spool
        self._taken = 0
        self._open = ExitStack()
        self._spool: BinaryIO

    def __enter__(self) -> Self:
        """Open what is needed."""
        check_ours(self._target, MARK)
        with _told(self._target):
            self._spool = self._open.enter_context(tempfile.TemporaryFile(dir=self._target.parent))
        self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS_MAX), thread_name_prefix="thumbnails")
        self._open.callback(self._threads.shutdown, cancel_futures=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it again."""
        self._open.close()

    def add(self, items: Sequence[ReportItem]) -> None:
        """Take the next items. Raises `InputError` where the disk takes no more."""
        wanted = [file for item in items for file in item.files]
        pictures = self._threads.map(self._thumbnail, wanted)
        for item in items:
            self._add(item, [Picture(file, next(pictures)) for file in item.files])

    def _thumbnail(self, file: ReportFile) -> Thumbnail | NoThumbnail:
        return make_thumbnail(file.path, media_type=file.media_type, edge=self._edge)

    def _add(self, item: ReportItem, pictures: Sequence[Picture]) -> None:
        page, place = divmod(self._taken, self._page_size)
        if not place:
            self._starts.append(self._spool.tell())
        self._taken += 1
        self._sums.add(item, page=page)
        for picture in pictures:
            match picture.thumbnail:
                case NoThumbnail.GONE:
                    self._sums.add_gone(picture.file.name)
                case NoThumbnail.UNREADABLE:
                    self._sums.unreadable_count += 1
                case Thumbnail() as made:
                    ratio = round(made.original_width / made.original_height, 2)
                    if ratio in self._ratios or len(self._ratios) < _RATIOS_MAX:
                        self._ratios[ratio] += 1
        with _told(self._target):
            self._spool.write(_encoded(render_card(item, pictures)))

    def finish(self, job: ReportJob) -> Written:
        """Write all pages under temporary names, then give them theirs: the first one last."""
        self._starts = self._starts or [0]
        links = [self._link(page) for page in range(len(self._starts))]
        paths = [self._target.with_name(link.name) for link in links]
        for page, path in enumerate(paths[1:], start=1):
            check_ours(path, page_mark(self._job, page).rstrip())
        shape = Shape.common(self._ratios)
        with ExitStack() as undone, _told(self._target):
            parts = []
            for page, path in enumerate(paths):
                part = path.with_name(f".{path.name}.{os.getpid()}.part")
                undone.callback(part.unlink, missing_ok=True)
                with part.open("wb") as file:
                    file.write(_encoded(render_head(job, self._sums, links, page=page, shape=shape) + _SHEET))
                    self._copy_cards(file, page)
                    file.write(_encoded(_SHEET_END + render_foot(job, links, page=page)))
                    file.flush()
                    os.fsync(file.fileno())
                parts.append((part, path))
            for part, path in reversed(parts):
                part.replace(path)
            self._remove_stale(len(paths))
            written = tuple(WrittenFile(path, path.stat().st_size) for path in paths)
        return Written(written, self._sums)

    def _link(self, page: int) -> PageLink:
        first = page * self._page_size
        return PageLink(_page_path(self._target, page).name, first, min(first + self._page_size, self._taken) - 1)

    def _copy_cards(self, file: BinaryIO, page: int) -> None:
        end = self._starts[page + 1] if page + 1 < len(self._starts) else self._spool.seek(0, os.SEEK_END)
        left = end - self._spool.seek(self._starts[page])
        while left > 0 and (chunk := self._spool.read(min(left, _COPIED_BYTES))):
            file.write(chunk)
            left -= len(chunk)

    def _remove_stale(self, page: int) -> None:
        """Remove the pages of an earlier, longer report of the same job, which nothing links to any more."""
        while _begins_with(path := _page_path(self._target, page), page_mark(self._job, page)):
            path.unlink(missing_ok=True)
            page += 1


def check_ours(path: Path, mark: str) -> None:
    """Raise `InputError` where a file stands that does not begin like a report."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file with --to. Nothing was written")
    if path.exists() and path.stat().st_size and not _begins_with(path, mark):
        raise InputError(f"{path} exists and is no report of this job; name another file with --to, or move it away")


def _begins_with(path: Path, mark: str) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark.encode())) == mark.encode()
    except OSError:
        return False


def _page_path(target: Path, page: int) -> Path:
    return target if page == 0 else target.with_name(f"{target.stem}-{page + 1}{target.suffix}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # halves of characters, from a JSON file's escapes, cannot be written


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        reason = os.strerror(fault.errno) if fault.errno else type(fault).__name__
        raise InputError(
            f"{path}: the report cannot be written: {reason}; mend that, or name another file with --to"
        ) from fault
