"""The queue in a PostgreSQL database, for many machines. The only importer of psycopg, an extra that may be missing."""

from batchkiln.core.errors import InputError

try:
    import psycopg as psycopg
except ImportError as error:
    raise InputError(
        f"a queue in PostgreSQL needs psycopg, which cannot be loaded ({error}); install it with "
        "pip install 'batchkiln[postgres]'. Nothing was sent"
    ) from error
