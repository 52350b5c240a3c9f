"""`batchkiln serve report`: what clients did, from the local service's books as they are now."""

import sqlite3
import sys
from pathlib import Path

from batchkiln.cli.command import ServerCommand, command
from batchkiln.cli.options import Common
from batchkiln.cli.serve_config import STATE_DIR, config_of_books
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln_service import read_report


@command("report", example="batchkiln serve report --state-dir rehearsal > report.json", cls=ServerCommand)
@STATE_DIR
def report(common: Common, *, state_dir: Path | None) -> ExitStatus:
    """Print what clients did, as JSON.

    While the service runs or not, also after it was killed; it only reads. It tells of the instant of the last request.
    """
    config = config_of_books(common, state_dir)
    try:
        found = read_report(config)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise InputError(f"the books in {config.state_dir} cannot be read: {error}") from error
    sys.stdout.write(found.as_json().decode())
    sys.stdout.flush()
    return ExitStatus.OK
