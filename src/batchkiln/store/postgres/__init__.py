"""The queue in a PostgreSQL database, shared by many machines. Only this package imports psycopg, an extra."""

from batchkiln.core.errors import InputError

try:
    import psycopg as psycopg
except ImportError as error:
    raise InputError(
        f"a queue in PostgreSQL needs psycopg, which cannot be loaded ({error}); install it with "
        "pip install 'batchkiln[postgres]'. Nothing was sent"
    ) from error
