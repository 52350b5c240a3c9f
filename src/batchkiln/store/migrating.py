"""Updates the schema of a queue when a person requests it."""

from msgspec import Struct

from batchkiln.store.location import DatabaseUrl, QueueLocation

# ruff: noqa: PLC0415  see `drivers`


class Migration(Struct, frozen=True):
    """A migration's result. `before` is 0 if there was no queue. `latest` is this program's version."""

    before: int
    after: int
    latest: int


def migrate(location: QueueLocation, *, is_check: bool = False) -> Migration:
    """Create or update a queue's schema atomically. With `is_check`, only read the version.

    Raise `QueueUnusable` for a queue of a newer version, or for a location that cannot hold a queue.
    """
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.schema_updates import migrate as migrate_database

        return migrate_database(location, is_check=is_check)
    from batchkiln.store.sqlite.file_health import migrate as migrate_file

    return migrate_file(location, is_check=is_check)
