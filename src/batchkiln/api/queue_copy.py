"""Moving an idle queue between a file and a database."""

from dataclasses import dataclass

from batchkiln.clock import machine_now
from batchkiln.core.job import InputFile
from batchkiln.inputs import shared_inputs
from batchkiln.store import DatabaseUrl, QueueLocation, copy_queue as copy_rows, keep_queue

__all__ = ["QueueCopied", "copy_queue", "keep_queue"]


@dataclass(frozen=True, slots=True)
class QueueCopied:
    """The result of a move. `missing_images` still have to be uploaded, but are not at the paths in their manifests."""

    jobs: int
    items: int
    rows: int
    missing_images: tuple[str, ...]
    is_finished_only: bool


def copy_queue(source: QueueLocation, target: QueueLocation) -> QueueCopied:
    """Move an idle queue to a location without a queue or with an empty one; the source can no longer be used.

    Idempotency keys, attempts, counters and ids are copied, so that nothing is paid again. Raise `QueueInUse` if a
    process drives the queue, and `QueueUnusable` or `InputError` if the target cannot contain it.
    """
    shared_dir = target.shared_dir if isinstance(target, DatabaseUrl) else None
    shared = None if shared_dir is None else shared_inputs(shared_dir)
    missing: list[str] = []

    def keep_image(file: InputFile) -> None:
        if shared is not None and not shared.keep_if_there(file):
            missing.append(file.path)

    copied = copy_rows(source, target, keep_image=keep_image, now=machine_now())
    return QueueCopied(
        jobs=copied.rows.get("job", 0),
        items=copied.rows.get("item", 0),
        rows=copied.total,
        missing_images=tuple(missing),
        is_finished_only=copied.is_finished_only,
    )
