"""Reads a file at a URL piece by piece, within bounds of size and silence."""

from collections.abc import Callable
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Final

from batchkiln.core.errors import StorageError
from batchkiln.object_storage.filesystems import open_url, translated_errors
from batchkiln.object_storage.threads import CALL_SECONDS

MAX_SIZE_BYTES: Final = 2 << 30

_PIECE_SIZE_BYTES: Final = 1 << 20
_PIECES_AHEAD: Final = 4


def stream(
    url: str,
    write: Callable[[bytes], object],
    *,
    silence_seconds: float = CALL_SECONDS,
    max_size_bytes: int = MAX_SIZE_BYTES,
) -> None:
    """Pass a file's content to `write` as it arrives. A read that hangs is abandoned in its thread.

    Raise `FileNotFoundError`, and `StorageError` for every other failure, such as no data for `silence_seconds`.
    """
    pieces: Queue[bytes | Exception] = Queue(_PIECES_AHEAD)
    given_up = Event()
    arguments = (url, max_size_bytes, pieces, given_up)
    Thread(target=_read, args=arguments, name="batchkiln-source", daemon=True).start()
    size_bytes = 0
    try:
        while True:
            try:
                piece = pieces.get(timeout=silence_seconds)
            except Empty:
                reason = f"nothing came for {silence_seconds:.0f} seconds"
                raise StorageError(reason, remedy="run the command again, or copy the file to this machine") from None
            if isinstance(piece, Exception):
                raise piece
            if not piece:
                return
            size_bytes += len(piece)
            if size_bytes > max_size_bytes:
                raise _too_large(max_size_bytes)
            write(piece)
    finally:
        given_up.set()


def _read(url: str, max_size_bytes: int, pieces: "Queue[bytes | Exception]", given_up: Event) -> None:
    def put(piece: bytes | Exception) -> bool:
        while not given_up.is_set():
            try:
                pieces.put(piece, timeout=1)
            except Full:
                continue
            return True
        return False

    try:
        with translated_errors():
            files, path = open_url(url)
            if (files.info(path).get("size") or 0) > max_size_bytes:
                put(_too_large(max_size_bytes))
                return
            with files.open(path, "rb") as content:
                while piece := content.read(_PIECE_SIZE_BYTES):
                    if not put(piece):
                        return
    except Exception as error:  # noqa: BLE001  it belongs to whoever waits
        put(error)
    else:
        put(b"")


def _too_large(max_size_bytes: int) -> StorageError:
    reason = f"it has more than {max_size_bytes:,} bytes"
    return StorageError(reason, is_lasting=True, remedy="split it into several files")
