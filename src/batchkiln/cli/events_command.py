"""`batchkiln events`: the history of the queue, and new events as they occur."""

import asyncio
from typing import Final

import click

from batchkiln.api import LoggedEvent
from batchkiln.api.reading import QueueReader, open_reader
from batchkiln.cli.command import JOB, Common, command, handle_signals, run_async
from batchkiln.cli.output import print_json_lines, print_result, print_status
from batchkiln.clock import ServiceClock
from batchkiln.core.errors import ExitStatus
from batchkiln.presentation.formatting import clock_note, format_second, sanitize, zone_name
from batchkiln.presentation.history import sentence_of
from batchkiln.presentation.item_documents import event_document

_AT_ONCE: Final = 1000
_LOOK_SECONDS: Final = 0.5
_HANGING: Final = 4


def event_line(event: LoggedEvent) -> str:
    """Return an event as one line: its time, the item, the new state if it has one, and what happened."""
    name = event.job if event.item is None else f"{event.job}/{event.item}"
    state = f" -> {event.state}" if event.state is not None else ""
    said = sentence_of(event.kind, event.detail)
    return f"{format_second(event.at)} {zone_name(event.at)}  {sanitize(name)}{state}  {said}"


@command("events", example="batchkiln events field-guide\nbatchkiln events --follow --last 10")
@click.argument("job", required=False, type=JOB)
@click.option("--follow", "is_following", is_flag=True, help="Also print new events as they occur, until Ctrl-C.")
@click.option("--last", type=click.IntRange(min=0), metavar="N", help="Begin with the last N events of the queue.")
def events(common: Common, job: str | None, *, is_following: bool, last: int | None) -> ExitStatus:
    """Print the history of the queue or of JOB, oldest first.

    Only reads the queue. Works while another process runs it. With --json: one line for each event with its kind and
    all details, as `run --json` prints them.
    """
    return run_async(_events(common, job, is_following=is_following, last=last))


async def _events(common: Common, job: str | None, *, is_following: bool, last: int | None) -> ExitStatus:
    ticker, stopped = ServiceClock(), asyncio.Event()
    with handle_signals("") as signals:
        signals.stop = stopped.set
        async with open_reader(common.queue) as queue:
            if job is not None:
                await queue.read(lambda reader: reader.jobs.id_of(job))  # an unknown job is an error
            if not (common.is_json or common.is_quiet):
                await _print_clocks(common, queue)
            newest = 0 if last is None else await queue.read(lambda reader: reader.events.last_id())
            after = await _print_after(common, queue, job, max(0, newest - (last or 0)))
            while is_following and not stopped.is_set():
                await ticker.sleep_until(ticker.monotonic() + _LOOK_SECONDS, stopped)
                if not stopped.is_set():  # a line behind the terminal's ^C would be broken at the wrong place
                    after = await _print_after(common, queue, job, after)
    return ExitStatus.OK if signals.exit_status is None else ExitStatus(signals.exit_status)


async def _print_clocks(common: Common, queue: QueueReader) -> None:
    """Print whose clock shows the times of the queue's services, once for each clock that runs faster."""
    profiles = common.load_config().profiles
    accounts = await queue.read(lambda reader: reader.accounts.summaries())
    for name in sorted({account.profile for account in accounts} & profiles.keys()):
        if note := clock_note(profiles[name].time_scale):
            print_status(f"Times of the profile {name} are those{note}.")


async def _print_after(common: Common, queue: QueueReader, job: str | None, after: int) -> int:
    """Print all events after the given one, and return the id of the last."""
    while found := await queue.events_after(after, _AT_ONCE):
        wanted = [event for event in found if job is None or event.job == job]
        if common.is_json:
            print_json_lines([event_document(event) for event in wanted])
        else:
            for event in wanted:
                print_result(event_line(event), hanging=_HANGING)
        after = found[-1].id
    return after
