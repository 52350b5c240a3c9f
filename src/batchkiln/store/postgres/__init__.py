"""The queue in a PostgreSQL database, for many machines. The only importer of psycopg, an extra that may be missing."""
