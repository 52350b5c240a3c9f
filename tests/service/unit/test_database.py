"""The service's database file."""

from contextlib import closing
from pathlib import Path

from batchkiln_service.db.database import connect
from support.other_programs import is_locked

SCHEMA = "CREATE TABLE thing (name TEXT);"


def test_second_connection_of_a_process_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """A program that runs the service changes its accounts; another process must not remove the log meanwhile."""
    path = tmp_path / "service.db"
    with closing(connect(path, SCHEMA)) as first:
        first.execute("SELECT count(*) FROM thing").fetchone()

        connect(path, SCHEMA).close()

        assert is_locked(path)


def test_new_file_is_private(tmp_path: Path) -> None:
    """The database has keys."""
    path = tmp_path / "service.db"

    connect(path, SCHEMA).close()

    assert path.stat().st_mode & 0o777 == 0o600
