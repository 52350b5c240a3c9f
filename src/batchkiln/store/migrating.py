"""Bringing a queue's schema up to date when a person asks for it."""

from dataclasses import dataclass

from batchkiln.store.location import DatabaseUrl, QueueLocation

# ruff: noqa: PLC0415  see `drivers`


@dataclass(frozen=True, slots=True)
class Migration:
    """The schema's version before, 0 without a queue, and after; `latest` is this program's."""

    before: int
    after: int
    latest: int


def migrate(location: QueueLocation, *, is_check: bool = False) -> Migration:
    """Bring a queue up to date, whole or not at all; make one where there is none. With `is_check`, only look.

    Raise `QueueUnusable` for a queue of a newer version, or a place that cannot hold one.
    """
    if isinstance(location, DatabaseUrl):
        from batchkiln.store.postgres.schema_updates import migrate as migrate_database

        return migrate_database(location, is_check=is_check)
    from batchkiln.store.sqlite.file_health import migrate as migrate_file

    return migrate_file(location, is_check=is_check)
