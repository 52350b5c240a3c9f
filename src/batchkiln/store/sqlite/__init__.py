"""The queue in one SQLite file, which needs no server. Only this package imports `sqlite3`."""
