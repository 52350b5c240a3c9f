"""Restricts a manifest that another machine has sent to one folder to read from and one to write to."""

import os
from pathlib import Path, PurePosixPath

from msgspec import Struct

from batchkiln.core.urls import folder_url_problem, is_url
from batchkiln.yaml_reading.diagnostics import InvalidValue, quoted


class FileAccess(Struct, frozen=True):
    """The folders of a manifest that another machine has sent.

    Names of input images and data files are relative to `files`, and may not leave it; without `files`, the manifest
    may name none. Results are written below `outputs`, a folder or a URL. The refusal of a name does not reveal whether
    the file exists.
    """

    outputs: Path | str
    files: Path | None = None

    @property
    def remedy(self) -> str:
        """The remedy for a file that cannot be read. It does not contain the folder's path, which is the server's."""
        return "name a file of the folder `http.files`, relative to it"

    def path_of(self, name: str) -> Path:
        """Return the path of an input image or a data file. Raise `InvalidValue` if the manifest may not read it."""
        if self.files is None:
            reason = f"`{quoted(name)}` is a file of this server, which a manifest sent over HTTP may not read"
            raise InvalidValue(reason, "its owner can set `http.files` to a folder of files that it may")
        if is_url(name):
            reason = f"`{quoted(name)}` is a URL, which a manifest sent over HTTP may not have read"
            raise InvalidValue(reason, self.remedy)
        path = Path(os.path.abspath(self.files / name))  # noqa: PTH100  the links are resolved below
        if not _parts_below(path, self.files):
            reason = f"`{quoted(name)}` is outside the folder whose files a manifest sent over HTTP may read"
            raise InvalidValue(reason, self.remedy)
        return path

    def check_output(self, directory: str) -> None:
        """Raise `InvalidValue` for an output folder outside `outputs`."""
        if not self._may_write(directory):
            reason = "`output.dir` is outside the folders in which a manifest sent over HTTP may write"
            raise InvalidValue(reason, "name a relative folder that is not hidden, as in `output: {dir: out/birds}`")

    def _may_write(self, directory: str) -> bool:
        """Return whether results may be in a folder: below the permitted one, which has files of others itself.

        Hidden folders are those of programs, such as the queue's own.
        """
        if not isinstance(self.outputs, str):
            below = () if is_url(directory) else _parts_below(Path(directory), self.outputs)
        elif directory.startswith(f"{self.outputs}/") and folder_url_problem(directory) is None:
            below = PurePosixPath(directory.removeprefix(self.outputs).strip("/")).parts
        else:
            below = ()
        return bool(below) and not any(part.startswith(".") for part in below)


def _parts_below(path: Path, folder: Path) -> tuple[str, ...]:
    """Return the names on the way from a folder to a path in it, after all links are resolved; none for other paths."""
    try:
        return path.resolve().relative_to(folder.resolve()).parts
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long, or a null character
        return ()
