"""The machines that keep journals of attempts for one database, and those that a restored database still waits for.

A database that was restored to an older state lacks attempts that are recorded only in the journal of the machine that
sent them. No account may be taken until each machine has compared its journals with the database: otherwise another
account would pay again for the item of a lost attempt.

A restore is detected in four ways: a journal has an attempt that the database lacks; the database lacks an event that a
worker of the machine has seen; the server reports another incarnation of the database; or the database lacks a worker's
last heartbeat. Every function takes a session inside a transaction.
"""

import json
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from batchkiln.core.lease_types import AwaitedMachine
from batchkiln.core.polling import RETENTION
from batchkiln.core.timestamps import from_milliseconds
from batchkiln.disk_sync import sync_file, sync_folder
from batchkiln.store.attempt_journal import AttemptJournal
from batchkiln.store.meta import AWAITED, read_meta, write_meta
from batchkiln.store.session import Session
from batchkiln.store.sql import query
from batchkiln.store.sqlite.preflight import PRIVATE_MODE, make_folder

INCARNATION: Final = "incarnation"
_KNOWN: Final = "journal_machines"
_FOUND_AT: Final = "lost_attempts_found_at"
_KEPT_MS: Final = int(RETENTION.total_seconds() * 1000)
_DAY_MS: Final = 24 * 3600 * 1000


class Machine(Struct, frozen=True):
    """A folder of journals on one machine. `token` is in a file beside them, and `place` is their path without number.

    `incarnation` identifies the present state of the database at the server; None if the server does not report it.
    """

    token: str
    host: str
    place: Path
    incarnation: str | None = None

    @property
    def newest_event(self) -> int:
        """The id of the newest event of the queue that a worker of this machine has seen; 0 if none has."""
        with suppress(OSError, ValueError):
            return int(self._seen.read_text())
        return 0

    def remember(self, newest_event: int) -> None:
        """Store the newest event that a worker of this machine has seen. A power cut or a full disk may lose it."""
        new = self._seen.with_name(f"{self._seen.name}-{os.getpid()}")
        with suppress(OSError):
            new.touch(PRIVATE_MODE)
            new.write_text(str(newest_event))
            new.replace(self._seen)

    @property
    def _seen(self) -> Path:
        return self.place.with_name(f"{self.place.name}.seen")

    def others(self, own: AttemptJournal) -> list[AttemptJournal]:
        """Return the journals of this machine's other processes, including those that have ended."""
        return [journal for journal in journals_at(self.place) if journal.path != own.path]


def journals_at(place: Path) -> list[AttemptJournal]:
    """Return all journals that this machine has of a queue: the file's, or those of its workers, by number."""
    found = (path.with_suffix("") for path in place.parent.glob(f"{place.name}*.attempts"))
    return [AttemptJournal(path) for path in sorted(found) if path == place or _is_numbered(path, place)]


def _is_numbered(path: Path, place: Path) -> bool:
    return path.name.removeprefix(f"{place.name}-").isdecimal()


def machine_at(place: Path, incarnation: str | None) -> Machine:
    """Return the machine that keeps its journals at a place. Its token is created at the first call."""
    make_folder(place.parent)
    path = place.with_name("machine")
    if path.exists() and not path.read_text():  # a power cut may have left it so, under an earlier version
        path = place.with_name("machine-again")
    if not path.exists():
        _make_token(path)
    return Machine(path.read_text(), socket.gethostname(), place, incarnation)


def _make_token(path: Path) -> None:
    """Create the token of a machine atomically and durably. Only one of several processes creates it."""
    new = path.with_name(f"machine-{secrets.token_hex(8)}")
    new.touch(PRIVATE_MODE)
    with new.open("w") as file:
        file.write(secrets.token_hex(16))
        file.flush()
        sync_file(file.fileno())
    with suppress(FileExistsError):
        os.link(new, path)  # unlike a rename, it never replaces the token that another process has just read
    new.unlink()
    sync_folder(path.parent)


def compared(connection: Session, machine: Machine, now: int, *, has_lost: bool) -> None:
    """Record that a machine's journals were compared with this database; `now` is the database's clock.

    If they show that the database was restored, it now waits for the journals of all other machines.
    """
    known = _read(connection, _KNOWN)
    known[machine.token] = {"host": machine.host, "seen_at": now}
    _write(connection, _KNOWN, known)
    before = read_meta(connection, INCARNATION)
    is_other = machine.incarnation is not None and before not in {None, machine.incarnation}
    if machine.incarnation is not None:
        write_meta(connection, INCARNATION, machine.incarnation)
    is_expected = machine.token in _read(connection, AWAITED)
    has_lost |= connection.execute(query("newest_event")).fetchone()["id"] < machine.newest_event
    if is_other or (has_lost and not is_expected):
        await_all(connection, now)
    _arrive(connection, machine.token)


def await_all(connection: Session, now: int) -> None:
    """Mark the database as restored: no account is taken before each machine has compared its journals with it.

    Workers that already drive accounts lose them. Machines that were last seen longer ago than the service's retention,
    counted from the newest sign of any machine, are not waited for.
    """
    known = _read(connection, _KNOWN)
    if _read(connection, AWAITED).keys() != known.keys():
        newest = max((each["seen_at"] for each in known.values()), default=0)
        _write(connection, AWAITED, {key: each for key, each in known.items() if each["seen_at"] > newest - _KEPT_MS})
    write_meta(connection, _FOUND_AT, str(now))
    revoke_leases(connection)


def revoke_leases(connection: Session) -> None:
    """End all leases, so that later writes under them are refused."""
    connection.execute(query("revoke_leases"))


def seen(connection: Session, machine: Machine, now: int) -> bool:
    """Record once a day that a machine is present; return whether its journals must be compared again.

    They must also be compared if the database does not know the machine: it was restored to a state from before the
    machine's first worker, or a person declared the machine gone.
    """
    rows = {row["key"]: row["value"] for row in connection.execute(query("journal_machines"))}
    known: dict[str, Any] = json.loads(rows.get(_KNOWN, "{}"))
    if machine.token in known and now - known[machine.token]["seen_at"] > _DAY_MS:
        known[machine.token]["seen_at"] = now
        _write(connection, _KNOWN, known)
    return machine.token not in known or machine.token in json.loads(rows.get(AWAITED, "{}"))


def awaited_machines(connection: Session) -> list[AwaitedMachine]:
    """Return the machines whose journals a restored database waits for, by name."""
    since = from_milliseconds(int(read_meta(connection, _FOUND_AT) or 0))
    entries = _read(connection, AWAITED).values()
    found = [AwaitedMachine(str(each["host"]), since, from_milliseconds(each["seen_at"])) for each in entries]
    return sorted(found, key=lambda machine: machine.host)


def awaited_hosts(connection: Session) -> list[str]:
    """Return the names of the machines whose journals a restored database waits for, each once."""
    machines = awaited_machines(connection)  # one may have several journals
    return list(dict.fromkeys(machine.host for machine in machines))


def forget_machine(connection: Session, host: str) -> int:
    """Stop waiting for the journals of a machine that is gone; return how many of its folders were known."""
    gone = {token for token, each in _read(connection, _KNOWN).items() if each["host"] == host}
    for token in gone:
        _arrive(connection, token)
    _write(connection, _KNOWN, {token: each for token, each in _read(connection, _KNOWN).items() if token not in gone})
    return len(gone)


def _arrive(connection: Session, token: str) -> None:
    _write(connection, AWAITED, {key: each for key, each in _read(connection, AWAITED).items() if key != token})


def _read(connection: Session, key: str) -> dict[str, Any]:
    text = read_meta(connection, key)
    found: dict[str, Any] = {} if text is None else json.loads(text)
    return found


def _write(connection: Session, key: str, machines: Mapping[str, Any]) -> None:
    write_meta(connection, key, json.dumps(machines, ensure_ascii=False, sort_keys=True) if machines else None)
