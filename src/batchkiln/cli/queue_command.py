"""`batchkiln queue copy`: move a queue between a file and a database."""

import click
from msgspec.structs import asdict

from batchkiln.api.queue_copy import copy_queue, keep_queue
from batchkiln.cli.command import Common, command, location_of
from batchkiln.cli.output import print_json, print_result, print_status
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.formatting import plural


@command(
    "queue",
    example="batchkiln queue copy queue.db postgresql://batch@db.example/kiln\n"
    "batchkiln queue copy postgresql://batch@db.example/kiln queue.db",
)
@click.argument("action", metavar="copy|keep", type=click.Choice(["copy", "keep"]))
@click.argument("source", type=click.Path(), metavar="FROM")
@click.argument("target", type=click.Path(), metavar="TO")
def queue(common: Common, *, action: str, source: str, target: str) -> ExitStatus:
    """Move an idle queue between a file and a PostgreSQL database, in either direction.

    No process may run the queue. TO must not contain a queue with jobs: a file is created, and a database needs the
    tables that `batchkiln migrate` creates. Everything is copied in one transaction and compared. Nothing is charged
    again. Afterwards, each command refuses FROM and names the new place.

    If the copy is interrupted, run the same command again. If TO is lost meanwhile, `queue keep FROM TO`
    makes FROM usable again.
    """
    places = [location_of(common, text) for text in (source, target)]
    if action == "keep":
        keep_queue(*places)
        if common.is_json:
            print_json({"kept": str(places[0])})
        else:
            print_result(f"{places[0]} is the queue; the copy to {places[1]} was given up.")
        return ExitStatus.OK
    copied = copy_queue(*places)
    if common.is_json:
        print_json({"from": str(places[0]), "to": str(places[1])} | asdict(copied))
        return ExitStatus.OK
    for path in copied.missing_images:
        print_status(f"{path}: this image is still to be sent, and is not there; enqueue its manifest again.")
    for path in copied.staged_left:
        print_status(f"{path}: this paid file is still to be written to its URL, and cannot be moved to the new queue.")
    if copied.staged_left:
        again = f"batchkiln queue copy {places[0]} {places[1]}"
        print_status(f"Free the disk or the names there, and run `{again}` again before the new queue is run.")
    if copied.staged_elsewhere:
        print_status(
            f"Paid files that are still to be written to a URL are on {', '.join(copied.staged_elsewhere)} alone. "
            f"Let `batchkiln work --queue {places[1]}` download them again while the service keeps them (14 days)."
        )
    if copied.is_finished_only:
        print_result(f"{places[1]}: the queue had been copied before; {places[0]} is now marked as moved.")
    else:
        print_result(
            f"{places[1]}: moved {copied.jobs:,} jobs with {copied.items:,} items ({copied.rows:,} rows, all compared)."
        )
    if copied.staged:
        print_result(f"{plural(copied.staged, 'complete file')} moved along; the next run writes them to their URL.")
    print_result(f"Use --queue {places[1]} from now on; {places[0]} is kept, and refused.")
    return ExitStatus.OK
