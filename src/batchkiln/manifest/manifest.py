"""Reads a manifest in two passes: the header first, then the stream of items."""

import os
import re
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NoReturn
from urllib.parse import unquote

import yaml
from msgspec import Struct

from batchkiln.core import filenames
from batchkiln.core.catalog_checks import Catalogue
from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.job import JobSpec, Order, Sidecar
from batchkiln.core.located_items import LocatedItem, SimilarItems
from batchkiln.core.suggestions import closest, did_you_mean
from batchkiln.core.unread_items import ItemsInvalid, UnreadItems
from batchkiln.core.urls import folder_url_problem, is_url, scheme_of
from batchkiln.manifest.content_hashes import ReadSources, are_as_before, key_of
from batchkiln.manifest.file_access import FileAccess
from batchkiln.manifest.images import Images
from batchkiln.manifest.inline_items import ManifestContext, inline_items
from batchkiln.manifest.remote_sources import RemoteSources
from batchkiln.manifest.row_items import row_items
from batchkiln.manifest.schema import Header, Settings
from batchkiln.manifest.settings import SettingsReader
from batchkiln.manifest.sources import source_for
from batchkiln.manifest.validation import check, check_names, valid_part
from batchkiln.yaml_reading.diagnostics import Diagnostics, InvalidValue, Mark, Unreadable, read_lines
from batchkiln.yaml_reading.program_places import IN_PROGRAM, ProgramPlaces
from batchkiln.yaml_reading.yaml_errors import encoding_error, may_have_root_keys_after, report_syntax
from batchkiln.yaml_reading.yaml_parser import ScalarEvent
from batchkiln.yaml_reading.yaml_tree import EntryTooLarge, MapNode, Node, TreeReader, plain_value

MAX_SIZE_BYTES: Final = 2 << 30
STDIN_NAME: Final = "<stdin>"
NO_NAME: Final = "."
"""The name of a job whose manifest gives no valid one. No job of a queue has it."""

DEFAULT_DIR: Final = "out"
DEFAULT_FILENAME: Final = "{job}/{item}.{ext}"
MAX_FOLDERS: Final = 16
MAX_PATH_SIZE_BYTES: Final = 4000  # the limit of Linux, less room for the `~2` of a taken name
MAX_ITEMS: Final = 10_000_000
_ONLY_TABLES: Final = frozenset({"csv", "tsv", "jsonl", "parquet"})  # a manifest may well be json or txt
_COPY_SIZE_BYTES: Final = 1 << 20
_LIST_DASHES: Final = re.compile(r"\s*(?:-\s+)*")  # the text before an entry of `items` in its line


class _ManifestText(Struct, frozen=True):
    """The source of a manifest's text. File names in the manifest are relative to `folder`."""

    path: Path
    folder: Path
    shown_folder: str
    manifest_path: str


class Manifest:
    """A manifest. `job` is the header, or its valid part; `items` reads the rest.

    `warnings` are those of the latest reading of the items: entries whose tables have no rows.
    """

    def __init__(self, job: JobSpec, reader: "_ManifestReader") -> None:
        self.job = job
        self._reader = reader

    @property
    def is_valid(self) -> bool:
        """Whether the header is valid. Otherwise `items` raises its errors, too."""
        return not self._reader.diagnostics

    def refuse(self, *fields: str, reason: str, remedy: str | None = None) -> NoReturn:
        """Raise an error about the first of these fields that the header has, with all errors of the manifest.

        They are not complete: the catalogue, which depends on the header, has not been read.
        """
        diagnostics = self._reader.diagnostics
        diagnostics.at(self._reader.mark_of(*fields), reason, remedy)
        diagnostics.is_partial = True
        for _ in self.items():
            pass
        raise diagnostics.error()

    def items(self, catalogue: Catalogue | None = None) -> Iterator[LocatedItem]:
        """Yield the items in the order of the text, in constant memory. May be called again.

        With the service's `catalogue`, items that the service would refuse have `objections`. Raise `InputError` with
        all errors, those of the header included, after the last item: the caller must then discard the items that came
        before.
        """
        return _one_by_one(self._reader.items(self.job.filename, catalogue))

    def portions(self, catalogue: Catalogue | None = None) -> Iterator[LocatedItem | SimilarItems]:
        """Yield the items as `items` does, many at a time where they differ in a few texts alone."""
        return self._reader.items(self.job.filename, catalogue)

    def contents(self, catalogue: Catalogue | None = None) -> "ManifestContents":
        """Return what the items are made of, with the same `catalogue`; its sources are known once they are read."""
        return self._reader.contents(catalogue)

    @property
    def reading_place(self) -> "ReadingPlace":
        """The file that is being read."""
        return self._reader.place

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings about the items that were read last; complete once all of them were."""
        return tuple(self._reader.warnings)

    def diagnostic_at(
        self, file: str, line: int, reason: str, remedy: str | None = None, column: int | None = None
    ) -> Diagnostic:
        """Return a diagnostic for the location of a `LocatedItem`, with its source line."""
        path = self._reader.diagnostics.paths.get(file)
        text = read_lines(path, {line}).get(line) if path is not None else None
        if text is not None and column is None:
            start = _LIST_DASHES.match(text)
            column = start.end() + 1 if start is not None and file == self._reader.diagnostics.file else 1
        found = Diagnostic(reason, file, line, column=column, remedy=remedy)
        return self._reader.diagnostics.shown(found, text)

    def place(self, file: str, line: int) -> str:
        """Return the location of a `LocatedItem` as text for a person."""
        program = self._reader.diagnostics.program
        return program.item(line) if program is not None and file == IN_PROGRAM else f"{file}:{line}"


def open_manifest(
    path: str,
    *,
    stdin: BinaryIO | None = None,
    stdin_name: str = STDIN_NAME,
    working_dir: Path,
    output_base: Path | str | None = None,
    access: FileAccess | None = None,
) -> Manifest:
    """Open a manifest and read its header. The path `-` reads `stdin`, which is copied to a temporary file.

    Diagnostics call that stream `stdin_name`. Blocking: run it in a thread. Raise `InputError` if the file cannot be
    read; `Manifest.items` raises the errors of the header with those of the items. A relative `output.dir` is below
    `output_base`, a path or a URL, or below `working_dir`. With `access`, another machine has sent the manifest, which
    may name only the files that `access` permits.
    """
    name = stdin_name if path == "-" else path
    text, spool = _located(path, stdin, working_dir, stdin_name)
    program = ProgramPlaces() if spool is not None and stdin_name == IN_PROGRAM else None
    reader = _ManifestReader(text, Diagnostics(name, text.path, program), access)
    if spool is not None:
        weakref.finalize(reader, spool.unlink, missing_ok=True)
    return Manifest(reader.job(output_base or working_dir), reader)


class ReadingPlace(Struct, frozen=True):
    """The file that is being read, and the part of it that was read, from 0 to 1; None if that is unknown."""

    name: str
    share: float | None


class ManifestContents:
    """What the items of a manifest are made of, as hashes. `key` is of all but the rows of the sources."""

    def __init__(self, reader: "_ManifestReader", key: str) -> None:
        self.key = key
        self._reader = reader

    @property
    def sources(self) -> Mapping[str, str] | None:
        """The hash of each source by its path, once all items have been read.

        None if a source cannot be recognised, such as one at a URL, or if there are warnings.
        """
        read = self._reader.read_sources
        return read.found if read is not None and read.are_known and not self._reader.warnings else None

    def has_sources(self, sources: Mapping[str, str]) -> bool:
        """Return whether sources have these hashes now, by path. Reads all of them."""
        return are_as_before(sources)


class _ManifestReader:
    """The two passes over one text. `diagnostics` are those of the header."""

    def __init__(self, text: _ManifestText, diagnostics: Diagnostics, access: FileAccess | None = None) -> None:
        self._text = text
        self._access = access
        self._version = _version_of(text.path)
        self.diagnostics = diagnostics
        self._header = MapNode(_Start(), {})
        self._has_items = False
        self._remote = RemoteSources()
        self.warnings: list[Diagnostic] = []
        self.read_sources: ReadSources | None = None
        self._reading = ReadSources()
        weakref.finalize(self, self._remote.close)
        self._read_header()

    def job(self, output_base: Path | str) -> JobSpec:
        """Return the header as a job. Of an invalid one, which adds diagnostics, it is the valid part."""
        tree = self._header
        check_names(tree, [*Header.model_fields, "items"], self.diagnostics, of_items=Settings.model_fields)
        known = MapNode(tree.start_mark, {name: tree.pairs[name] for name in tree.pairs if name in Header.model_fields})
        header = check(Header, known, self.diagnostics)
        if not self._has_items:
            self.diagnostics.at(
                tree.start_mark, "`items` is missing", "add the list of prompts: `items:`, then `- prompt: …`"
            )
        if header is None:
            absent = {"version": 1, "job": NO_NAME}
            header = valid_part(Header, known, absent=absent) or Header.model_validate(absent)
            self.diagnostics.is_partial = header.job == NO_NAME  # the items are not compared with a job's
        output, budget = header.output, header.budget
        directory = _output_folder(output_base, (output and output.dir) or DEFAULT_DIR)
        self._check_header(header)
        self._check_access(directory)
        if not self.diagnostics:
            self._check_path_lengths(directory, (output and output.filename) or DEFAULT_FILENAME)
        filename = None if self.diagnostics else output and output.filename
        return JobSpec(
            name=header.job,
            description=header.description or "",
            profile=header.profile,
            accounts=tuple(header.accounts or ([header.account] if header.account else [])),
            order=Order(header.order or "manifest"),
            budget_credits=budget.credits if budget else None,
            budget_credits_per_day=budget.credits_per_day if budget else None,
            output_dir=directory,
            filename=filename or DEFAULT_FILENAME,
            manifest_path=self._text.manifest_path,
            notify=None if header.notify is None else tuple(header.notify),
            versions=(output and output.versions) or filenames.VERSIONS,
            sidecar=Sidecar(output.sidecar) if output and output.sidecar else None,
        )

    def mark_of(self, *fields: str) -> Mark:
        """Return the place of the value of the first of these fields that the header has, or that of the header."""
        pairs = self._header.pairs
        return next((pairs[field][1].start_mark for field in fields if field in pairs), self._header.start_mark)

    def items(self, pattern: str, catalogue: Catalogue | None = None) -> Iterator[LocatedItem | SimilarItems]:
        """Yield the items, alone or many at a time, then raise `InputError` if there were errors.

        `warnings` are made anew.
        """
        diagnostics = self.diagnostics.copy()
        self.warnings = []
        self.read_sources = None
        read_sources = self._reading = ReadSources()
        defaults = self._header.pairs.get("defaults")
        images = Images(self._text.folder, self._access)
        unread = UnreadItems()
        context = ManifestContext(
            diagnostics=diagnostics,
            settings=SettingsReader(
                defaults[1] if defaults and isinstance(defaults[1], MapNode) else None,
                images,
                diagnostics,
                catalogue,
                unread=unread,
            ),
            pattern=pattern,
            pattern_fields=filenames.fields(pattern) - set(filenames.BUILT_IN_FIELDS),
            folder=self._text.folder,
            shown_folder=self._text.shown_folder,
            remote=self._remote,
            warnings=self.warnings,
            unread=unread,
            read_sources=read_sources,
            access=self._access,
        )
        try:
            with self._text.path.open("rb") as stream:
                items = self._entries_to_items(TreeReader(stream, diagnostics), context)
                count = 0
                for each in items:
                    count += len(each) if isinstance(each, SimilarItems) else 1
                    if count > MAX_ITEMS:
                        reason = f"more than {MAX_ITEMS:,} items"
                        diagnostics.at_line(diagnostics.entry_line, reason, "split it into several manifests")
                        break
                    yield each
        except _READ_ERRORS as error:
            self._report(error, diagnostics)
        if self._version != _version_of(self._text.path):
            diagnostics.at_line(None, "the file changed while it was read", "run the command again")
        if diagnostics:
            raise ItemsInvalid(diagnostics.error(), unread)
        self.read_sources = read_sources

    @property
    def place(self) -> ReadingPlace:
        """The file that is being read: a source, or the manifest itself."""
        if self._reading.current is None:
            return ReadingPlace(self.diagnostics.file, None)
        name, source = self._reading.current
        return ReadingPlace(name, source.share)

    def contents(self, catalogue: Catalogue | None) -> "ManifestContents":
        """Return what the items are made of."""
        return ManifestContents(self, key_of(self._text.path, self._text.folder, self._access, catalogue))

    def _entries_to_items(self, tree: TreeReader, context: ManifestContext) -> Iterator[LocatedItem | SimilarItems]:
        if tree.open_root() is None:
            return
        for key in tree.root_keys():
            if key.value != "items":
                tree.value()
                continue
            for position, node in enumerate(tree.entries(), 1):
                context.diagnostics.entry_line = node.start_mark.line + 1
                if position == 1 and context.diagnostics.program is not None:
                    context.diagnostics.program.first_item_line = node.start_mark.line + 1
                if isinstance(node, MapNode) and ("from" in node.pairs or "matrix" in node.pairs):
                    yield from row_items(context, node)
                else:
                    yield from inline_items(context, node, position)
        tree.close_document()

    def _read_header(self) -> None:
        if (reason := encoding_error(self._text.path)) is not None:
            raise InputError([Diagnostic(reason, self.diagnostics.file, 1, 1, remedy="save the file as UTF-8")])
        try:
            with self._text.path.open("rb") as stream:
                self._read_fields(TreeReader(stream, self.diagnostics))
        except _READ_ERRORS as error:
            self._report(error, self.diagnostics)
            raise self.diagnostics.error() from error

    def _read_fields(self, tree: TreeReader) -> None:
        root = tree.open_root()
        if root is None:
            self.diagnostics.at_line(None, "the manifest is empty", "`batchkiln init` writes an example")
            raise Unreadable
        self._header.start_mark = root.start_mark
        for key in tree.root_keys():
            if key.value != "items":
                self._header.pairs[key.value] = key, tree.value()
                continue
            self._has_items = True
            start = tree.peek()
            is_block = root.flow_style is False and getattr(start, "flow_style", None) is False
            if (
                is_block
                and root.start_mark.column == 0
                and not may_have_root_keys_after(self._text.path, start.start_mark.index)
            ):
                return
            self._skip_items(tree)
        tree.close_document()

    def _skip_items(self, tree: TreeReader) -> None:
        """Read the items for their anchors only. The second pass reports their errors."""
        own, tree.diagnostics = tree.diagnostics, self.diagnostics.copy()
        try:
            for _ in tree.entries():
                pass
        except Unreadable:
            self.diagnostics = tree.diagnostics
            raise
        tree.diagnostics = own

    def _check_header(self, header: Header) -> None:
        pairs = self._header.pairs
        if header.job in {".", ".."} and "job" in pairs and plain_value(pairs["job"][1]) == header.job:
            self.diagnostics.at(pairs["job"][1].start_mark, f"`job` may not be {header.job!r}", "it names a folder")
        if header.account is not None and header.accounts is not None:
            self.diagnostics.at(
                pairs["accounts"][0].start_mark, "`account` and `accounts` are both given", "keep one of them"
            )
        if header.accounts and len(set(header.accounts)) < len(header.accounts):
            self.diagnostics.at(
                pairs["accounts"][1].start_mark, "an account appears twice in `accounts`", "keep one of them"
            )
        if header.output is not None and header.output.filename is not None:
            output = pairs["output"][1]
            assert isinstance(output, MapNode)
            self._check_pattern(output.pairs["filename"][1])
        if header.output is not None and header.output.versions is not None:
            self._check_versions(header.output.versions)

    def _check_pattern(self, node: Node) -> None:
        assert isinstance(node, ScalarEvent)
        try:
            is_ambiguous = "index" in filenames.fields(node.value) and not filenames.identifies_item(node.value)
        except filenames.PatternError as error:
            mark = node.start_mark
            offset = error.offset + (0 if node.implicit[0] else 1)
            reason, remedy = f"`output.filename`: {error.reason}", 'as in "{job}/{item}.{ext}"'
            self.diagnostics.at_line(mark.line + 1, reason, remedy, column=mark.column + 1 + offset)
            return
        if is_ambiguous:
            reason = "`output.filename`: {index} touches another field, so two items could get the same name"
            self.diagnostics.at(node.start_mark, reason, "separate them, as in {kind}-{index}, or use {item}")

    def _check_versions(self, pattern: str) -> None:
        if filenames.is_version_pattern(pattern):
            return
        output = self._header.pairs["output"][1]
        assert isinstance(output, MapNode)
        reason = (
            "`output.versions` is not usable in a file name"
            if "{version}" in pattern
            else "`output.versions` lacks {version}, so two versions of an item would share a name"
        )
        remedy = "write {version} once, with letters, digits, '.', '_' or '-' around it, as in \".v{version}\""
        self.diagnostics.at(output.pairs["versions"][1].start_mark, reason, remedy)

    def _check_access(self, directory: str) -> None:
        """Add a diagnostic for an output folder that `access` does not permit."""
        try:
            if self._access is not None:
                self._access.check_output(directory)
        except InvalidValue as error:
            output = self._header.pairs.get("output")
            mark = output[1].start_mark if output is not None else self._header.start_mark
            self.diagnostics.at(mark, error.reason, error.remedy)

    def _check_path_lengths(self, directory: str, pattern: str) -> None:
        """Add a diagnostic for an output folder in which the path of a paid file could be too long for the system."""
        output = self._header.pairs.get("output")
        mark = output[1].start_mark if output is not None else self._header.start_mark
        if is_url(directory):
            self._check_folder_url(directory, mark)
            return
        if not _is_utf8(directory):
            self.diagnostics.at(mark, "the output folder's path is not UTF-8", "choose another `output.dir`")
            return
        depth = pattern.count("/") + 1
        if depth > MAX_FOLDERS:
            self.diagnostics.at(mark, f"`output.filename` has {depth} levels of folders", f"at most {MAX_FOLDERS}")
        longest = len(directory.encode()) + depth * (filenames.COMPONENT_SIZE_BYTES + 1)
        if longest > MAX_PATH_SIZE_BYTES:
            reason = f"the paths of outputs may have {longest:,} bytes, and the system allows {MAX_PATH_SIZE_BYTES:,}"
            self.diagnostics.at(mark, reason, "choose a shorter `output.dir`, or fewer folders in `output.filename`")

    def _check_folder_url(self, url: str, mark: Mark) -> None:
        if (reason := folder_url_problem(url)) is not None:
            remedy = "write s3://bucket/folder alone; credentials come from the environment or the configuration"
            self.diagnostics.at(mark, f"`output.dir`: {reason}", remedy)

    def _report(self, error: Exception, diagnostics: Diagnostics) -> None:
        match error:
            case yaml.YAMLError():
                diagnostics.is_partial = True
                report_syntax(error, self._text.path, diagnostics)
            case EntryTooLarge():
                reason = "one entry, or a text in it, is too large"
                diagnostics.at_line(diagnostics.entry_line or None, reason, "a prompt has at most 20,000 characters")
            case OSError():
                diagnostics.at_line(None, f"the file cannot be read: {error.strerror or error}")
            case _:
                pass  # `Unreadable` has its diagnostic already


def _one_by_one(items: Iterable[LocatedItem | SimilarItems]) -> Iterator[LocatedItem]:
    for each in items:
        if isinstance(each, SimilarItems):
            yield from each
        else:
            yield each


def _output_folder(base: Path | str, name: str) -> str:
    """Return an output folder as a URL or an absolute path. A `file://` URL becomes a path."""
    if scheme_of(name) == "file":
        name = unquote(name.partition("://")[2])
    if is_url(name):
        return name.rstrip("/")
    if isinstance(base, str) and not Path(name).is_absolute():
        return f"{base}/{os.path.normpath(name)}"
    return os.path.abspath(Path(base) / name)  # noqa: PTH100  resolve() would follow links


_READ_ERRORS: Final = (yaml.YAMLError, EntryTooLarge, Unreadable, OSError)


class _Start(Struct, frozen=True):
    """The mark of the first character."""

    line: int = 0
    column: int = 0


def _located(
    path: str, stdin: BinaryIO | None, working_dir: Path, stdin_name: str
) -> tuple[_ManifestText, Path | None]:
    """Return the text of a manifest, and the copy that was made of a stream or pipe."""
    if path == "-":
        if stdin is None:
            raise InputError([Diagnostic("there is no standard input to read", "-")])
        spool = _spooled(stdin, stdin_name)
        return _ManifestText(spool, working_dir, "", "-"), spool
    absolute = Path(os.path.abspath(working_dir / path))  # noqa: PTH100  the folder of the link is meant
    shown_folder = os.path.dirname(path)  # noqa: PTH120  as the person wrote it
    if not _is_utf8(str(absolute)):
        shown_path = os.fsencode(path).decode("utf-8", "replace")
        raise InputError([Diagnostic("the manifest's path is not UTF-8", shown_path, remedy="rename it")])
    text = _ManifestText(absolute, absolute.parent, shown_folder, str(absolute))
    table = source_for(absolute.name, absolute, path)
    if table is not None and table.kind in _ONLY_TABLES:
        remedy = f"a table is read by a manifest with `from: {absolute.name}`; `batchkiln init` writes a first manifest"
        raise InputError([Diagnostic("this is a table, and no manifest", path, remedy=remedy)])
    try:
        status = absolute.stat()
        if not stat.S_ISREG(status.st_mode):
            with absolute.open("rb") as stream:
                spool = _spooled(stream, path)
            return _ManifestText(spool, text.folder, shown_folder, text.manifest_path), spool
    except (OSError, ValueError) as error:
        raise InputError([_unreadable(error, path, absolute)]) from error
    if signature := _signature_of(absolute):
        remedy = "a manifest is a YAML file, and names an image in the `inputs` of an item; `batchkiln init` writes one"
        raise InputError([Diagnostic(f"this is {signature}, and no manifest", path, remedy=remedy)])
    if status.st_size > MAX_SIZE_BYTES:
        raise InputError([_too_large(path)])
    return text, None


def _yaml_files(folder: Path) -> list[str]:
    return sorted(each.name for suffix in ("*.yaml", "*.yml") for each in folder.glob(suffix))


def _unreadable(error: OSError | ValueError, path: str, absolute: Path) -> Diagnostic:
    """Return the mistake of a manifest that cannot be read, with the manifest that may be meant."""
    if isinstance(error, IsADirectoryError):
        found = _yaml_files(absolute)
        example = str(Path(path, found[0])) if found else None
        remedy = (
            "it has no YAML file; `batchkiln init` writes a first manifest"
            if example is None
            else f"give a file in it, such as {example}; `batchkiln watch` runs the manifests that appear in a folder"
        )
        return Diagnostic("this is a folder, and no manifest", path, remedy=remedy)
    reason = getattr(error, "strerror", None) or str(error)
    near = closest(absolute.name, _yaml_files(absolute.parent)) if isinstance(error, FileNotFoundError) else []
    meant = did_you_mean(str(Path(path).with_name(name)) for name in near)
    return Diagnostic(f"the manifest cannot be read: {reason}", path, remedy=meant or f"looked for {absolute}")


_SIGNATURES: Final = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"SQLite format 3\0", "a database, such as a queue"),
)
"""The first bytes of files that people give in place of a manifest. None of them begins a YAML text."""


def _signature_of(path: Path) -> str | None:
    """Return what a file is by its first bytes; None if it may be a text, or cannot be read."""
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError:
        return None  # its reader says so
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "a WebP image"
    if start[4:8] == b"ftyp":
        return "a video"
    return next((name for signature, name in _SIGNATURES if start.startswith(signature)), None)


def _too_large(name: str) -> Diagnostic:
    remedy = f"at most {MAX_SIZE_BYTES >> 30} GiB: put the rows into a file for `from`"
    return Diagnostic("the manifest is too large", name, remedy=remedy)


def _copy(stream: BinaryIO, copy: BinaryIO, name: str) -> None:
    while chunk := stream.read(_COPY_SIZE_BYTES):
        copy.write(chunk)
        if copy.tell() > MAX_SIZE_BYTES:
            raise InputError([_too_large(name)])


def _spooled(stream: BinaryIO, name: str) -> Path:
    handle, spool = tempfile.mkstemp(prefix="batchkiln-", suffix=".yaml")
    try:
        with os.fdopen(handle, "wb") as copy:
            _copy(stream, copy, name)
    except BaseException:
        Path(spool).unlink(missing_ok=True)
        raise
    return Path(spool)


def _version_of(path: Path) -> tuple[int, int] | None:
    """Return time and size of a file, which change when it is written; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _is_utf8(path: str) -> bool:
    """Return whether a path is valid text, which the queue needs. A file system may have other names."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
