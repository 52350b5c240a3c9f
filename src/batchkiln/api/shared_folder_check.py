"""Checks that all machines of a queue in a database use the same folder or URL as `shared_dir`."""

import asyncio
import secrets
import socket
from pathlib import Path

from batchkiln.api.app_context import AppContext
from batchkiln.core.errors import InputError, SharedFolderAway
from batchkiln.core.queue_types import Scope
from batchkiln.core.urls import is_url
from batchkiln.outputs.shared_folder import SharedFolder, SharedObjects, SharedPlace
from batchkiln.store import DatabaseUrl, SharedMark, Store


async def check_shared_folder(store: Store, app: AppContext, *, is_worker: bool) -> None:
    """Compare the folder with the one that the queue's first machine used, which left a token in both.

    The first machine records the token. A worker needs a shared folder that supports hard links, and all results below
    it. A process that enqueues needs the folder if the queue has one. Raise `InputError` before anything is sent or
    enqueued.
    """
    if not isinstance(store.location, DatabaseUrl):
        return
    mark = await store.read(lambda reader: reader.shared_mark())
    root = app.shared_dir
    if root is None:
        if is_worker or mark is not None:
            raise InputError(
                f"{store.location}: several machines use this queue, and the configuration names no folder that they "
                "share. Set shared_dir to the place where this machine mounts it. Nothing was sent or enqueued"
            )
        return
    folder = _opened(app, root)
    token = secrets.token_hex(16)
    await asyncio.to_thread(folder.check_names, token)
    if mark is None:
        mark = await _marked(store, folder, token)
    elif not await asyncio.to_thread(folder.has_mark, mark.token):
        raise _another_folder(folder, mark)
    if is_worker:
        await _check_jobs(store, root)


def _opened(app: AppContext, root: Path | str) -> SharedPlace:
    if isinstance(root, str):
        return SharedObjects(app.environment.objects(root))
    return SharedFolder(root, app.environment.files())


async def _marked(store: Store, folder: SharedPlace, token: str) -> SharedMark:
    """Write a token to the folder and the queue; return the queue's token, perhaps one of another machine."""
    await asyncio.to_thread(folder.write_mark, token)
    mark = await store.write(lambda writer: writer.mark_shared_folder(SharedMark(token, socket.gethostname())))
    if mark.token != token:
        await asyncio.to_thread(folder.remove_mark, token)
        if not await asyncio.to_thread(folder.has_mark, mark.token):
            raise _another_folder(folder, mark)
    return mark


def _another_folder(folder: SharedPlace, mark: SharedMark) -> InputError:
    text = (
        f"shared_dir: {folder.root} is not the folder that the queue's other machines share, but a disk of this "
        f"machine or another folder: {folder.mark_path(mark.token)}, which {mark.host} wrote, is not there. Mount the "
        "shared folder and name its place; if all its files were moved here, move that one as well. Nothing was sent "
        "or enqueued"
    )
    return SharedFolderAway(text) if isinstance(folder, SharedFolder) else InputError(text)


async def _check_jobs(store: Store, root: Path | str) -> None:
    """Refuse jobs from before the folder was shared: other machines would write their results to local disks."""
    work = await store.read(lambda reader: reader.jobs.work(Scope()))
    for job in work.jobs:
        if not is_url(job.output_dir) and (isinstance(root, str) or not Path(job.output_dir).is_relative_to(root)):
            raise InputError(
                f"job {job.name} writes to {job.output_dir}, which is not below {root}, the folder that the machines "
                "share. Enqueue its manifest again with an output.dir below it. Nothing was sent"
            )
