"""The queue in one file: the embedded database, which needs no server. The only importer of SQLite."""
