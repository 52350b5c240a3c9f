"""The identity of staged items: ids of earlier versions, and requests that are made more than once.

A request is the model, mode, parameters, prompt and images of an item. The cap and the number of attempts are not part
of it, because they do not change the outputs.
"""

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from batchkiln.core.states import ItemState
from batchkiln.store.session import Session
from batchkiln.store.sql import query

SHOWN: Final = 20
"""Maximum number of named items that ask for what another one made or makes."""

_LONGEST_CHAIN: Final = 100  # of new items that are made from each other; what is further is not compared
_STDIN: Final = "-"
_IDS: Final = "ids"
_BY_POSITION: Final = "item"


class SameRequest(Struct, frozen=True):
    """A new item, its place, and an item of the job with the same request that is paid or under way."""

    name: str
    file: int
    line: int
    old_name: str
    state: ItemState


def may_have_old_ids(connection: Session, job_id: int | None, job: str) -> bool:
    """Return whether items of a job may have the default ids of an earlier version."""
    if _has_lost(connection, job):
        return True
    if job_id is None:
        return False
    first = next(iter(_manifests(connection, job_id)), None)
    return first is None or first.get(_IDS) != _BY_POSITION


def adopt_old_ids(connection: Session, *, job_id: int | None, job: str, manifest_path: str) -> bool:
    """Give staged items the default ids that an earlier version gave them; return whether that may happen again.

    Earlier versions made default ids of the manifest's file name. A job from such a version keeps its ids: those from
    the name of this file, as before, and those from other names that the manifest had, where the request is equal.
    An item whose new id is already in the job keeps the new id.
    """
    if not may_have_old_ids(connection, job_id, job):
        return False
    paths = [manifest_path]
    if job_id is not None:
        paths += [detail["manifest"] for detail in reversed(list(_manifests(connection, job_id)))]
    for number, stem in enumerate(dict.fromkeys(_stem(path) for path in paths)):
        params = {"job_id": job_id, "job": job, "stem": stem, "is_own": int(number == 0)}
        connection.execute(query("adopt_old_ids"), params)
        connection.execute(query("follow_old_ids"), {"stem": stem})
    return _has_lost(connection, job)


def _has_lost(connection: Session, job: str) -> bool:
    return bool(connection.execute(query("has_lost_attempts"), {"job": job}).fetchone()[0])


def _manifests(connection: Session, job_id: int) -> Iterator[dict[str, str]]:
    """Yield the details of the job's events that name a manifest, in order."""
    for (text,) in connection.execute(query("job_manifests"), {"job_id": job_id}).fetchall():
        yield json.loads(text)


def new_job_detail(manifest_path: str, *, has_old_ids: bool) -> dict[str, str]:
    """Return the detail of a job's first event. It records that default ids are made of positions alone."""
    return {"manifest": manifest_path} | ({} if has_old_ids else {_IDS: _BY_POSITION})


def find_paid_before(connection: Session, job_id: int, *, has_references: bool = False) -> int:
    """Stage the new items whose requests equal those of done or sent items of the job; return their number.

    An item that is made from another one repeats a request if it is made from the same content, or from an item that
    itself repeats the request of the earlier source.
    """
    if not connection.execute(query("has_paid_items"), {"job_id": job_id}).fetchone()[0]:
        return 0
    connection.execute(query("find_paid_before"), {"job_id": job_id})
    for _ in range(_LONGEST_CHAIN if has_references else 0):
        if connection.execute(query("find_paid_chains"), {"job_id": job_id}).rowcount < 1:
            break
    return int(connection.execute(query("count_paid_before")).fetchone()[0])


def paid_before(connection: Session) -> Iterator[SameRequest]:
    """Yield the first items that `find_paid_before` has staged."""
    for row in connection.execute(query("paid_before"), {"limit": SHOWN}).fetchall():
        yield SameRequest(row["name"], row["file"], row["line"], row["old_name"], ItemState(row["state"]))


def equal_requests(connection: Session) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return how many staged items repeat the request of an earlier one; and the ids of the first few, in pairs.

    Only the items of one `repeat` do not count.
    """
    number = int(connection.execute(query("count_equal_requests")).fetchone()[0])
    if not number:
        return 0, ()
    connection.execute(query("index_placed_requests"))  # to count, a sort is enough
    rows = connection.execute(query("equal_requests"), {"limit": SHOWN}).fetchall()
    return number, tuple((row["name"], row["first_name"]) for row in rows)


def _stem(path: str) -> str:
    return _BY_POSITION if path == _STDIN else PurePath(path).stem or _BY_POSITION
