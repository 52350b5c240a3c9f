"""`batchkiln workers`: the workers that share a queue in a database, and the orderly end of one worker."""

from typing import TYPE_CHECKING, Any

import click

from batchkiln.api import DatabaseUrl
from batchkiln.api.queue import await_journals, drain_workers, forget_machine
from batchkiln.api.reading import open_reader
from batchkiln.cli.command import Command, Common, command, run_async
from batchkiln.cli.output import print_json, print_result
from batchkiln.core.errors import ExitStatus, InputError
from batchkiln.presentation.item_documents import iso
from batchkiln.presentation.job_documents import awaited_document

if TYPE_CHECKING:
    from batchkiln.presentation.shared_by import SharedBy
    from batchkiln.presentation.worker_views import WorkerView


@command("drain", example="batchkiln workers drain fra-1")
@click.argument("name")
def drain(common: Common, name: str) -> ExitStatus:
    """Make the worker NAME release its accounts and end, as SIGTERM does.

    With the name of an address or of a machine, all its workers end. Work in progress is recorded first, and
    other workers take the accounts within seconds.
    """
    _refuse_file(common)
    return run_async(_drain(common, name))


@command("restored", example="batchkiln workers restored")
def restored(common: Common) -> ExitStatus:
    """Declare that the database was restored to an older state, before any worker is started.

    Nothing is sent until a worker has started on each machine that drove the queue, and has read its journals: the
    database lacks the attempts in these journals, which may have been charged.
    """
    _refuse_file(common)
    return run_async(_restored(common))


async def _restored(common: Common) -> ExitStatus:
    hosts = await await_journals(common.queue)
    if common.is_json:
        print_json({"awaited": hosts})
    elif hosts:
        print_result(f"Nothing is sent until a worker has started on {', '.join(hosts)}.")
    else:
        print_result("No machine has a journal of this queue; there is nothing to wait for.")
    return ExitStatus.OK


@command("gone", example="batchkiln workers gone vm-7")
@click.argument("host")
def gone(common: Common, host: str) -> ExitStatus:
    """Declare the machine HOST gone for good: a restored database no longer waits for its journals.

    Attempts that only its journals record may be charged again.
    """
    _refuse_file(common)
    return run_async(_gone(common, host))


async def _gone(common: Common, host: str) -> ExitStatus:
    if not await forget_machine(common.queue, host):
        raise InputError(f"no machine {host} has a journal of this queue; nothing was changed")
    if common.is_json:
        print_json({"gone": host})
    else:
        print_result(f"The journals of {host} are not waited for any more.")
    return ExitStatus.OK


class _Workers(Command, click.Group):
    """The command by itself lists the workers; `drain` ends one, and `restored` and `gone` are about a restore."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  click's own signature
        """Initialize with click's arguments."""
        commands = {"drain": drain, "restored": restored, "gone": gone}
        super().__init__(*args, **kwargs, commands=commands, invoke_without_command=True)


@command(
    "workers",
    example="batchkiln workers\nbatchkiln workers --json\nbatchkiln workers --check fra-1\n"
    "batchkiln workers drain fra-1",
    cls=_Workers,
)
@click.option("--check", "checked", metavar="NAME", help="Exit with 0 if the worker NAME is alive, else with 1.")
def workers(common: Common, checked: str | None) -> ExitStatus:
    """List the workers that share a queue in a database: their accounts, recent requests, and waits.

    Also lists accounts that have work but no worker. NAME is a worker's name, the name of its address (--egress), or
    that of its machine.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return ExitStatus.OK
    _refuse_file(common)
    return run_async(_check(common, checked) if checked is not None else _list(common))


async def _list(common: Common) -> ExitStatus:
    config = common.load_config()
    async with open_reader(common.queue) as queue:
        shared, views = await queue.workers(config)
    if common.is_json:
        print_json(_document(shared, views))
    else:
        from batchkiln.cli.workers_text import show_workers  # noqa: PLC0415  Rich is slow to import

        show_workers(shared, views)
    return ExitStatus.OK


async def _check(common: Common, name: str) -> ExitStatus:
    async with open_reader(common.queue) as queue:
        found = [state for state in await queue.worker_states() if state.is_named(name)]
    is_alive = any(state.is_alive for state in found)
    if common.is_json:
        print_json({"name": name, "alive": is_alive})
    elif is_alive:
        silent = min(state.silent_seconds for state in found)
        print_result(f"{name} is alive: it was seen {silent:.0f} s ago.")
    else:
        print_result(f"{name} is not alive: no worker of this name was seen in the last 15 s.")
    return ExitStatus.OK if is_alive else ExitStatus.UNEXPECTED


async def _drain(common: Common, name: str) -> ExitStatus:
    names = await drain_workers(common.queue, name)
    if not names:
        raise InputError(f"there is no worker {name}; nothing was changed. `batchkiln workers` lists the workers")
    if common.is_json:
        print_json({"draining": names})
    else:
        print_result(f"Draining {', '.join(names)}. `batchkiln workers` shows when it has ended.")
    return ExitStatus.OK


def _refuse_file(common: Common) -> None:
    if not isinstance(common.queue, DatabaseUrl):
        raise InputError(
            f"{common.queue} is a file, which one process runs, so that it has no workers; `batchkiln status` shows the"
            " process. Name a queue in a database: --queue postgresql://…"
        )


def _document(shared: "SharedBy | None", views: "list[WorkerView]") -> dict[str, Any]:
    return {
        "workers": [_worker_document(view, shared) for view in views],
        "undriven": [
            {"profile": each.profile, "account": each.account, "reason": each.reason}
            for each in (shared.undriven if shared else ())
        ],
        "awaited": awaited_document(shared),
    }


def _worker_document(view: "WorkerView", shared: "SharedBy | None") -> dict[str, Any]:
    state = view.state
    return {
        "worker": state.name,
        "egress": state.egress,
        "host": state.host,
        "pid": state.pid,
        "version": state.version,
        "started_at": iso(state.started_at),
        "seen_seconds_ago": round(state.silent_seconds, 1),
        "alive": state.is_alive,
        "sends": view.is_sender,
        "draining": state.is_draining,
        "accounts": [
            {"profile": each.profile, "account": each.account, "since": iso(each.since)}
            for each in (shared.drivers if shared else ())
            if each.worker == state.name
        ],
        "accounts_with_key": len(state.able),
        "requests_last_minute": view.requests,
        "requests_limit": view.requests_limit,
        "active": view.active,
        "waits": [{"reason": reason, "accounts": count} for reason, count in view.waits],
    }
