"""Opens file systems of fsspec by their URLs, with the options of the configuration."""

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, Final

from msgspec import field

from batchkiln.core.errors import InputError, StorageError
from batchkiln.core.redacted import Redacted
from batchkiln.core.urls import redacted, scheme_of

_EXTRAS: Final = {"s3": "s3", "s3a": "s3"}
_EXTRA: Final = "datasets"  # fsspec alone: it names the package that another scheme needs
_LASTING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS, errno.ENAMETOOLONG}
)
_REASON_SIZE: Final = 300

Options = Mapping[str, Mapping[str, Any]]


class StorageSettings(Redacted, frozen=True):
    """The options of file systems by scheme, and the bytes that local copies may have.

    Options may hold secrets and are never shown (Law 8).
    """

    hidden: ClassVar = frozenset({"options"})

    options: Options = field(default_factory=dict)
    copies_bytes: int = 4 << 30


class _Configured:
    """The settings of this process, and whether they have been read."""

    read: Callable[[], StorageSettings] = StorageSettings


def configure(read: Callable[[], StorageSettings]) -> None:
    """Set the function that reads the settings of this process. It is called once, when the first URL is opened."""
    _Configured.read = staticmethod(cache(read))


def settings() -> StorageSettings:
    """Return the settings of this process. Raise `InputError` if a secret is missing."""
    return _Configured.read()


def open_url(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it. Raise `StorageError`."""
    with translated_errors(scheme_of(url)):
        from fsspec.core import url_to_fs  # noqa: PLC0415  an extra, and slow to import

        found, path = url_to_fs(url, **settings().options.get(scheme_of(url), {}))
        found.invalidate_cache()  # listings may be older than what another process has written
        return found, str(path)


@contextmanager
def translated_errors(scheme: str = "") -> Iterator[None]:
    """Raise any error of the block as `StorageError`, except the two that state whether a file exists.

    `scheme` is that of the URL, if a package may be missing that reads it.
    """
    try:
        yield
    except (StorageError, InputError, FileExistsError, FileNotFoundError):
        raise
    except ImportError as error:
        remedy = f"pip install 'batchkiln[{_EXTRAS.get(scheme, _EXTRA)}]'"
        if error.name == "fsspec" or scheme in _EXTRAS:
            raise StorageError("a URL needs packages that are not installed", is_lasting=True, remedy=remedy) from error
        raise StorageError(f"this kind of URL needs another package: {_text(error)}", is_lasting=True) from error
    except PermissionError as error:
        raise StorageError(f"access is denied: {_text(error)}", is_lasting=True) from error
    except Exception as error:  # each kind of storage raises different ones
        is_lasting = isinstance(error, ValueError | NotImplementedError) or (
            isinstance(error, OSError) and error.errno in _LASTING
        )
        raise StorageError(f"{type(error).__name__}: {_text(error)}", is_lasting=is_lasting) from error


def _text(error: Exception) -> str:
    text = redacted(" ".join(str(error).split()))
    return "".join(character if character.isprintable() else "\ufffd" for character in text)[:_REASON_SIZE]
