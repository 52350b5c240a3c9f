"""The files of a finished generation: the data to download and name them, and the records of saved files."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from batchkiln.core.job import SavedFile, SavedOutput, Sidecar
from batchkiln.core.queue_types import DownloadTask
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.core.urls import is_url
from batchkiln.store.origins import origin_of
from batchkiln.store.row_types import attempt_of, instant
from batchkiln.store.session import Row, Session
from batchkiln.store.shared_paths import local_dir_of, local_path_of, stored_path
from batchkiln.store.sql import query
from batchkiln.store.transitions import Detail

NO_EVENTS: Final = "{}"  # as the query `download_task` returns them, for nearly every item


def download_task(connection: Session, attempt_id: int, number: int = 1) -> DownloadTask:
    """Return the data needed to download an attempt's files and to name output `number`."""
    row = connection.execute(query("download_task"), {"attempt_id": attempt_id}).fetchone()
    saved = {int(number): sha256 for number, sha256 in json.loads(row["saved"]).items()}
    task = DownloadTask(
        attempt=attempt_of(row),
        job_name=row["job_name"],
        item_name=row["item_name"],
        index=row["position"],
        model=row["model"],
        metadata=row["metadata"],
        output_dir=local_dir_of(connection, row["output_dir"]),
        filename=row["file_name"] or row["filename"],
        created_at=from_milliseconds(row["generation_created_at"]),
        saved=saved,
        listed=row["listed"],
        version=row["version"] or row["next_version"],
        versions=row["versions"],
        sidecar=Sidecar(row["sidecar"]) if row["sidecar"] else None,
        origin=origin_of(connection, attempt_id) if row["sidecar"] else None,
        last_read_at=instant(row["last_read_at"]),
        staged=_staged_files(row["staged"], saved),
        gone=_gone_files(connection, row, saved),
    )
    taken = taken_paths(connection, task, number)
    return replace(task, taken=taken) if taken else task


def _staged_files(events: str, saved: Mapping[int, str]) -> tuple[SavedOutput, ...]:
    """Return the staged files without a recorded object: for each number, the file of the last staging event."""
    if events == NO_EVENTS:
        return ()
    details = (json.loads(event) for _, event in sorted(json.loads(events).items(), key=lambda told: int(told[0])))
    found = {each["number"]: each for each in details if each["number"] not in saved}
    return tuple(
        SavedOutput(
            SavedFile(each["name"], each["size_bytes"], each["sha256"], each["media_type"]),
            number=number,
            listed=each["of"],
            type=each["type"],
        )
        for number, each in sorted(found.items())
    )


def _gone_files(connection: Session, row: Row, saved: Mapping[int, str]) -> tuple[SavedOutput, ...]:
    """Return the files whose absence was recorded, each number once. Earlier versions recorded fewer details."""
    if row["gone"] == NO_EVENTS:
        return ()
    details = (json.loads(event) for _, event in sorted(json.loads(row["gone"]).items(), key=lambda told: int(told[0])))
    found = {each["number"]: each for each in details if each["number"] not in saved and "size_bytes" in each}
    return tuple(
        SavedOutput(
            SavedFile(local_path_of(connection, each["path"]), each["size_bytes"], each["sha256"], each["media_type"]),
            number=number,
            listed=row["listed"],
            type=each["type"],
        )
        for number, each in sorted(found.items())
        if not is_url(each["path"])
    )


def staged_detail(staged: SavedOutput) -> Detail:
    """Return the details of a staging event: all that is needed to record the object later."""
    file = staged.file
    return {
        "number": staged.number,
        "of": staged.listed,
        "name": file.path,
        "size_bytes": file.size_bytes,
        "sha256": file.sha256,
        "media_type": file.media_type,
        "type": staged.type,
        "host": socket.gethostname(),
    }


def taken_paths(connection: Session, task: DownloadTask, number: int) -> frozenset[str]:
    """Return an output's possible paths that are recorded for another output, whether or not the file still exists."""
    paths = [stored_path(connection, path) for path in output_paths(task, number)]
    parameters = {"paths": json.dumps(paths), "attempt_id": task.attempt.id, "number": number}
    return frozenset(
        local_path_of(connection, path) for (path,) in connection.execute(query("taken_paths"), parameters)
    )


def output_paths(task: DownloadTask, number: int) -> list[str]:
    """Return an output's possible paths as they would be recorded: URLs, or absolute with symbolic links resolved."""
    names = task.relative_names(number)
    if is_url(task.output_dir):
        return [f"{task.output_dir}/{name}" for name in names]
    parts = [name.rpartition("/") for name in names]
    # Not `Path.resolve`, which takes twice the time, once for each finished generation.
    places = {folder: os.path.join(task.output_dir, folder) for folder in {each[0] for each in parts}}  # noqa: PTH118
    folders = {folder: os.path.realpath(place) for folder, place in places.items()}
    return [f"{folders[folder].rstrip('/')}/{name}" for folder, _, name in parts]


def count_outputs(connection: Session, attempt_id: int | None) -> int:
    """Return how many files of an attempt are saved."""
    return int(connection.execute(query("count_outputs"), {"attempt_id": attempt_id}).fetchone()[0])


def count_staged_elsewhere(connection: Session, attempt_id: int) -> int:
    """Return how many files of an attempt are complete on another machine, which still has to write them to a URL."""
    row = connection.execute(query("download_task"), {"attempt_id": attempt_id}).fetchone()
    events = (json.loads(event) for event in json.loads(row["staged"]).values())
    saved = json.loads(row["saved"])
    return len({each["number"] for each in events if each["host"] != socket.gethostname()} - set(map(int, saved)))


def is_name_taken(connection: Session, attempt_id: int, saved: SavedOutput) -> bool:
    """Return whether a file is recorded as another output, so that this output needs another name.

    Both outputs have the same bytes, and this file was taken for the leftover of a crash while the other output was
    being recorded.
    """
    path = stored_path(connection, saved.file.path)
    place = {"attempt_id": attempt_id, "number": saved.number, "path": path}
    return bool(connection.execute(query("is_name_taken"), place).fetchone()[0])


def insert_output(connection: Session, attempt: Row, saved: SavedOutput, now: int) -> Detail:
    """Record a complete file under its final name, once (Law 7); return the details for the history."""
    output = {
        "item_id": attempt["item_id"],
        "attempt_id": attempt["id"],
        "number": saved.number,
        "type": saved.type,
        "path": stored_path(connection, saved.file.path),
        "size_bytes": saved.file.size_bytes,
        "sha256": saved.file.sha256,
        "media_type": saved.file.media_type,
        "now": now,
    }
    connection.execute(query("insert_output"), output)
    if attempt["version"] is None:  # its first file
        connection.execute(query("number_version"), output)
        before = saved.file.sha256
    else:
        gone = [json.loads(detail) for (detail,) in connection.execute(query("forgotten_outputs"), output)]
        before = next((file["sha256"] for file in gone if file["number"] == saved.number), saved.file.sha256)
    return {
        "number": saved.number,
        "of": saved.listed,
        "path": output["path"],
        "size_bytes": saved.file.size_bytes,
        **({"instead_of": before} if before != saved.file.sha256 else {}),
    }
