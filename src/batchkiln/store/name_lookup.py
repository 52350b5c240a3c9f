"""A job and its items by the names that a person typed; what is not there is told with what is near."""

import difflib
import sqlite3
from collections.abc import Sequence
from typing import Final

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.states import ItemState
from batchkiln.store.sql import query

_NAMES_COMPARED: Final = 2_000  # comparing is slow, and a job may have a million names
_PREFIX_LENGTH: Final = 3


def job_id_of(connection: sqlite3.Connection, name: str) -> int:
    """Return a job's id. Raises `InputError` for one that the queue does not have."""
    found = connection.execute(query("find_job"), {"name": name}).fetchone()
    if found is not None:
        return int(found[0])
    names = [row[0] for row in connection.execute(query("job_names"))]
    raise InputError([_unknown(f"the queue has no job {name!r}", name, names, "`batchkiln status` lists the jobs")])


def items_of(
    connection: sqlite3.Connection, job_id: int, *, job: str, names: Sequence[str]
) -> dict[str, tuple[int, ItemState]]:
    """Return id and state of each item named. Raises one `InputError` for all that the job does not have."""
    found: dict[str, tuple[int, ItemState]] = {}
    mistakes: list[Diagnostic] = []
    for name in dict.fromkeys(names):
        row = connection.execute(query("named_item"), {"job_id": job_id, "name": name}).fetchone()
        if row is not None:
            found[name] = (row[0], ItemState(row[1]))
            continue
        near = _names_near(connection, job_id, name)
        remedy = f"`batchkiln items {job}` lists its items"
        mistakes.append(_unknown(f"the job {job!r} has no item {name!r}", name, near, remedy))
    if mistakes:
        raise InputError(mistakes)
    return found


def _names_near(connection: sqlite3.Connection, job_id: int, name: str) -> list[str]:
    for begin in (name[:_PREFIX_LENGTH], ""):
        place = {"job_id": job_id, "begin": begin, "limit": _NAMES_COMPARED}
        if names := [row[0] for row in connection.execute(query("names_near"), place)]:
            return names
    return []


def _unknown(reason: str, name: str, names: Sequence[str], remedy: str) -> Diagnostic:
    near = difflib.get_close_matches(name, names)
    hint = f"did you mean {' or '.join(repr(one) for one in near)}? {remedy}" if near else remedy
    return Diagnostic(reason, remedy=hint)
