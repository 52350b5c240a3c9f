"""The report on what clients did, read from the books and written to a file."""

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
    """Report what the books in a state folder say, also while no service runs; default instant: the last request's.

    Limits and days are those of the service's last start. Only reads. Not for the event loop's thread. Raises
    sqlite3.Error when the books cannot be read, OSError when there are none, `DatabaseVersionError`.
    """
    path = config.state_dir / FILE_NAME
    if not path.exists():
        raise FileNotFoundError(f"no service has kept books in {config.state_dir}")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        check_version(connection, path)
        config = with_rules(connection, config)
    return read_client_report(path, config.limits, calendar_of(config), now_ms=now_ms)


def write_report(report: Report, path: Path) -> None:
    """Write a report as JSON; whoever reads the file finds it whole, or as it was before. Raises OSError."""
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
