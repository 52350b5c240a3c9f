"""`batchkiln migrate`: make a queue in a database, or bring one up to date."""

import click

from batchkiln.api import migrate as migrate_queue
from batchkiln.cli.command import Common, command
from batchkiln.cli.output import print_json, print_result
from batchkiln.core.errors import ExitStatus


@command("migrate", example="batchkiln migrate --queue postgresql://batch@db.example/kiln\nbatchkiln migrate --check")
@click.option("--check", "is_check", is_flag=True, help="Change nothing; exit with 2 if the queue is not up to date.")
def migrate(common: Common, *, is_check: bool) -> ExitStatus:
    """Create the queue in a PostgreSQL database, or update its tables.

    The database itself has to exist (`createdb`). All tables are changed together or not at all, and no job is lost.
    Stop all workers first, and update them too: a worker refuses a queue of another version. A queue file is
    updated by each command that writes to it, so that it needs this command only for --check.
    """
    found = migrate_queue(common.queue, is_check=is_check)
    is_current = found.after == found.latest
    if common.is_json:
        print_json({"queue": str(common.queue), "before": found.before, "after": found.after, "latest": found.latest})
    elif not is_current:
        what = f"has schema {found.after}" if found.after else "does not exist yet"
        print_result(f"{common.queue}: the queue {what}; this batchkiln needs {found.latest}. Run `batchkiln migrate`.")
    elif found.before == found.after:
        print_result(f"{common.queue}: the queue is up to date (schema {found.after}).")
    elif found.before == 0:
        print_result(f"{common.queue}: made a queue (schema {found.after}).")
    else:
        print_result(f"{common.queue}: updated from schema {found.before} to {found.after}.")
    return ExitStatus.OK if is_current else ExitStatus.USAGE
