"""Moving an idle queue between a file and a database."""

import socket

from msgspec import Struct

from batchkiln.api.app_context import outgoing_folder
from batchkiln.clock import machine_now
from batchkiln.core.job import InputFile
from batchkiln.inputs import shared_inputs
from batchkiln.outputs import move_staged
from batchkiln.store import DatabaseUrl, QueueLocation, copy_queue as copy_rows, keep_queue

__all__ = ["QueueCopied", "copy_queue", "keep_queue"]


class QueueCopied(Struct, frozen=True):
    """The result of a move. `missing_images` still have to be uploaded, but are not at the paths in their manifests.

    `staged` counts the complete files that were moved, and are to be written to a URL. Others are on the machines
    `staged_elsewhere`, or could not be moved (`staged_left`).
    """

    jobs: int
    items: int
    rows: int
    missing_images: tuple[str, ...]
    is_finished_only: bool
    staged: int = 0
    staged_elsewhere: tuple[str, ...] = ()
    staged_left: tuple[str, ...] = ()


def copy_queue(source: QueueLocation, target: QueueLocation) -> QueueCopied:
    """Move an idle queue to a location without a queue or with an empty one; the source can no longer be used.

    Idempotency keys, attempts, counters and ids are copied, so that nothing is paid again. Files of this machine that
    are still to be written to a URL are moved too, and the next run sends them. Raise `QueueInUse` if a process drives
    the queue, and `QueueUnusable` or `InputError` if the target cannot contain it.
    """
    shared_dir = target.shared_dir if isinstance(target, DatabaseUrl) else None
    shared = None if shared_dir is None else shared_inputs(shared_dir)
    missing: list[str] = []

    def keep_image(file: InputFile) -> None:
        if shared is not None and not shared.keep_if_there(file):
            missing.append(file.path)

    copied = copy_rows(source, target, keep_image=keep_image, now=machine_now())
    staged, left = move_staged(outgoing_folder(source), outgoing_folder(target))
    return QueueCopied(
        jobs=copied.rows.get("job", 0),
        items=copied.rows.get("item", 0),
        rows=copied.total,
        missing_images=tuple(missing),
        is_finished_only=copied.is_finished_only,
        staged=staged,
        staged_elsewhere=tuple(host for host in copied.staged_on if host != socket.gethostname()),
        staged_left=tuple(map(str, left)),
    )
