"""Read the report on what clients did from the database, and write it to a file."""

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from batchkiln_service.config import ServiceConfig
from batchkiln_service.db.client_report import read_client_report
from batchkiln_service.db.database import check_version
from batchkiln_service.db.report import Report
from batchkiln_service.db.setup import FILE_NAME, calendar_of, with_rules


def read_report(config: ServiceConfig, *, now_ms: int | None = None) -> Report:
    """Return the report from a state folder, whether or not the service is running.

    `now_ms` defaults to the instant of the last request. Limits and days are those of the service's last start. Read-
    only, and blocking: do not call it in the event loop's thread. Raises sqlite3.Error if the database cannot be read,
    OSError if there is none, and `DatabaseVersionError`.
    """
    path = config.state_dir / FILE_NAME
    if not path.exists():
        raise FileNotFoundError(f"there is no service database in {config.state_dir}")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        check_version(connection, path)
        config = with_rules(connection, config)
    return read_client_report(path, config.limits, calendar_of(config), now_ms=now_ms)


def write_report(report: Report, path: Path) -> None:
    """Write a report as JSON. The file is replaced atomically. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as file:
            file.write(report.as_json())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
