"""The text of `workers`: a table of the workers, and the accounts without a worker."""

from rich.table import Table
from rich.text import Text

from batchkiln.cli.rich_console import console
from batchkiln.core.lease_types import WorkerState
from batchkiln.presentation.formatting import plural
from batchkiln.presentation.shared_by import SharedBy
from batchkiln.presentation.worker_views import WorkerView


def show_workers(shared: SharedBy | None, views: list[WorkerView]) -> None:
    """Print one line per worker, and one per account without a worker.

    A silent worker whose address another one sends from has been replaced, as by a restart, and is only counted.
    """
    out = console()
    if shared is None:
        out.print("No worker has been at this queue. `batchkiln work --forever` starts one.")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("WORKER", "EGRESS", "VERSION", "SEEN", "ACCOUNTS", "LAST MINUTE", "ACTIVE", "WAITS FOR"):
        table.add_column(heading, no_wrap=heading != "WAITS FOR", overflow="fold")
    served = {view.state.egress for view in views if view.state.is_alive}
    shown = [view for view in views if view.state.is_alive or view.state.egress not in served]
    for view in shown:
        table.add_row(*_cells(view))
    out.print(table)
    if replaced := len(views) - len(shown):
        out.print(f"Without {plural(replaced, 'silent worker')} whose address another one has; `--json` lists all.")
    if not all(view.state.is_alive for view in shown):
        out.print(
            "A silent worker was killed or has no connection; other workers take its accounts. A day after it was seen "
            "last, it leaves this list."
        )
    for warning in shared.warnings:
        out.print(Text(f"Warning: {warning}.", style="yellow"))


def _accounts(state: WorkerState) -> str:
    """Return how many accounts a worker drives, of those with work whose API keys it has; `-` while there is no work.

    The last account is still driven for a while after its work has ended.
    """
    able = max(len(state.able), state.driven)
    return f"{state.driven} of {able}" if able else "-"


def _cells(view: WorkerView) -> list[str]:
    state = view.state
    seen = f"{state.silent_seconds:.0f} s" if state.is_alive else f"silent for {state.silent_seconds:,.0f} s"
    opening = [state.name, state.egress, state.version, seen]
    if not view.is_sender:
        whose = f"{state.egress} is {state.sender}'s" if state.sender else ""
        return [*opening, "standby" if state.is_alive else "-", "", "", whose]
    waits = ", ".join(f"{count} {reason}" for reason, count in view.waits) or "-"
    return [
        *opening,
        _accounts(state) + (", draining" if state.is_draining else ""),
        f"{view.requests} of {view.requests_limit}",
        str(view.active),
        waits,
    ]
