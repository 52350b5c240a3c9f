"""Jobs and accounts as JSON values: `status --json` prints them, and the HTTP interface replies with them.

The field names are stable (docs/reference/contract.md, section 4).
"""

from typing import Any, TypedDict

from batchkiln.core.rate_limits import HeldUntil
from batchkiln.core.states import ItemState
from batchkiln.presentation.ends import JobEnd
from batchkiln.presentation.item_documents import iso
from batchkiln.presentation.overview import AccountView, JobView, Overview, alerts_of
from batchkiln.presentation.shared_by import SharedBy
from batchkiln.store import UnderWay


class CreditsDocument(TypedDict):
    """The credits of a job."""

    reserved: int
    charged: int
    refunded: int


class BudgetDocument(TypedDict):
    """The budget of a job, and the known cost of its queued items.

    `beyond_budget` counts the items left that it does not pay for; null while `queued_unquoted` items leave that open.
    `sufficient` is the budget that would pay for what was rejected for it; null without such items, if it is not known,
    and where it was not looked for.
    """

    credits: int | None
    credits_per_day: int | None
    queued_cost: int
    queued_unquoted: int
    beyond_budget: int | None
    sufficient: int | None


class UnderWayDocument(TypedDict):
    """An item that was sent and has not ended."""

    item: str
    state: ItemState
    account: str
    since: str | None
    age_seconds: float
    sends: int
    generation_id: str | None
    status: str | None
    retention_ends_at: str | None


class JobProblemDocument(TypedDict):
    """The items of a job that ended badly or are held for one cause."""

    state: ItemState
    code: str
    count: int
    message: str | None
    item: str | None


class BlockerDocument(TypedDict):
    """An item that others wait for, or the first without a result of a group that they wait for a choice of."""

    job: str
    item: str
    group: str | None
    state: ItemState
    items: int


_Waiting = TypedDict("_Waiting", {"items": int, "stuck": int, "for": list[BlockerDocument]})


class WaitingDocument(_Waiting):
    """The items that wait for the files of others."""


class JobEndDocument(TypedDict):
    """The estimated end of a job, and the range in which it ends nine times of ten while the service keeps its pace.

    All are in service time (ISO 8601, UTC), and null if they are not known. `end_reason` says why `estimated_end_at` is
    null; `earliest_end_at` may be known then.
    """

    estimated_end_at: str | None
    earliest_end_at: str | None
    latest_end_at: str | None
    end_reason: str | None


class JobDocument(JobEndDocument):
    """A job with its progress. `items` has a count for each state, and `total`.

    `stale` counts done items that were made from what is no longer current; null where they were not counted.
    """

    job: str
    description: str
    profile: str
    manifest: str
    output_dir: str
    created_at: str | None
    paused: bool
    finished: bool
    items: dict[str, int]
    credits: CreditsDocument
    budget: BudgetDocument
    active: list[UnderWayDocument]
    problems: list[JobProblemDocument]
    to_review: int
    to_choose: int
    stale: int | None
    waiting: WaitingDocument
    warnings: list[str]


def job_document(view: JobView) -> JobDocument:
    """Return a job as `status JOB --json` prints it."""
    summary = view.summary
    return {
        "job": summary.name,
        "description": summary.description,
        "profile": summary.profile,
        "manifest": summary.manifest_path,
        "output_dir": summary.output_dir,
        "created_at": iso(summary.created_at),
        "paused": summary.is_paused,
        "finished": summary.is_finished,
        "items": {state.value: summary.items[state] for state in ItemState} | {"total": summary.total},
        "credits": {
            "reserved": summary.credits.reserved,
            "charged": summary.credits.charged,
            "refunded": summary.credits.refunded,
        },
        "budget": {
            "credits": summary.budget_credits,
            "credits_per_day": summary.budget_credits_per_day,
            "queued_cost": summary.queued_cost,
            "queued_unquoted": summary.queued_unquoted,
            "beyond_budget": view.known_beyond_budget,
            "sufficient": view.sufficient_budget,
        },
        "active": [_under_way(entry, view) for entry in summary.under_way],
        "problems": [
            {
                "state": problem.state,
                "code": problem.code,
                "count": problem.count,
                "message": problem.example,
                "item": view.examples.get((problem.state, problem.code)),
            }
            for problem in summary.problems
        ],
        "to_review": summary.to_review,
        "to_choose": summary.to_choose,
        "stale": view.stale,
        "waiting": {
            "items": summary.waiting,
            "stuck": summary.stuck,
            "for": [
                {"job": each.job, "item": each.item, "group": each.group, "state": each.state, "items": each.count}
                for each in summary.blockers
            ],
        },
        **job_end_document(view.job_end, view.end_reason),
        "warnings": alerts_of(view),
    }


def job_end_document(end: JobEnd, reason: str | None) -> JobEndDocument:
    """Return what is known of a job's end, and the reason that is shown if it is not known."""
    return {
        "estimated_end_at": iso(end.at),
        "earliest_end_at": iso(end.not_before if end.range is None else end.range.earliest_at),
        "latest_end_at": None if end.range is None else iso(end.range.latest_at),
        "end_reason": reason,
    }


def _under_way(entry: UnderWay, view: JobView) -> UnderWayDocument:
    return {
        "item": entry.item,
        "state": entry.state,
        "account": entry.account,
        "since": iso(entry.since),
        "age_seconds": max(0.0, (view.now - entry.since).total_seconds()),
        "sends": entry.sends,
        "generation_id": entry.generation_id,
        "status": entry.status,
        "retention_ends_at": iso(entry.retention_ends_at),
    }


# --- accounts ---


class TodayDocument(TypedDict):
    """The usage of an account on the current service day. Limits are null if its profile is not configured."""

    credits: int
    credits_limit: int | None
    creates: int
    creates_limit: int | None
    reads: int
    reads_limit: int | None
    upload_files: int
    upload_bytes: int


class HeldDocument(TypedDict):
    """A wait that the service imposed."""

    until: str | None
    reason: str


class OutageDocument(TypedDict):
    """A time in which the service does not answer an account."""

    since: str | None
    reason: str


class MisunderstoodDocument(TypedDict):
    """A call whose reply was not understood."""

    call: str
    since: str | None
    lacking: str
    status: int | None
    shape: str
    remedy: str | None


class RefusalDocument(TypedDict):
    """Why an account cannot work until a person acts: a word for the problem, and what the service said."""

    problem: str
    message: str


class _Account(TypedDict):
    profile: str
    account: str
    today: TodayDocument
    creates_held: HeldDocument | None
    reads_held: HeldDocument | None
    outage: OutageDocument | None
    key_missing: str | None
    refused: RefusalDocument | None
    not_understood: list[MisunderstoodDocument]


class AccountDocument(_Account, total=False):
    """An account. `key_missing` names the places where the process that runs the queue found no API key, or is null.

    `refused` says why the account cannot work in the present run, or could not in the last one; null if it can.
    `driven_by` is included only if workers share the queue.
    """

    driven_by: str | None


def account_document(view: AccountView, overview: Overview) -> AccountDocument:
    """Return an account of an overview as `status --json` prints it."""
    limits, outage, shared_by = view.limits, view.summary.outage, overview.shared_by
    refused = overview.refusal_of(view)
    document: AccountDocument = {
        "profile": view.summary.profile,
        "account": view.summary.name,
        "today": {
            "credits": view.usage.credits,
            "credits_limit": limits.credits_per_day if limits else None,
            "creates": view.usage.creates,
            "creates_limit": limits.creates_per_day if limits else None,
            "reads": view.usage.reads,
            "reads_limit": limits.reads_per_day if limits else None,
            "upload_files": view.usage.upload_files,
            "upload_bytes": view.usage.upload_bytes,
        },
        "creates_held": _held_document(view.summary.creates_held, view),
        "reads_held": _held_document(view.summary.reads_held, view),
        "outage": None if outage is None else {"since": iso(outage.since), "reason": outage.reason},
        "key_missing": view.summary.key_missing if overview.lacks_key(view) else None,
        "refused": None if refused is None else {"problem": refused.problem.value, "message": refused.error.message},
        "not_understood": [
            {
                "call": entry.call.value,
                "since": iso(entry.since),
                "lacking": entry.lacking,
                "status": entry.status,
                "shape": entry.shape,
                "remedy": entry.remedy or None,
            }
            for entry in view.summary.misunderstood
        ],
    }
    if shared_by is not None:
        document["driven_by"] = shared_by.driver_of(view.summary.profile, view.summary.name)
    return document


def _held_document(held: HeldUntil | None, view: AccountView) -> HeldDocument | None:
    if held is None or held.until <= view.now:
        return None
    return {"until": iso(held.until), "reason": held.reason.value}


class DriverDocument(TypedDict):
    """The process that runs the queue."""

    pid: int
    host: str
    command: str
    started_at: str | None


class UndrivenDocument(TypedDict):
    """An account with work that no worker drives."""

    profile: str
    account: str
    reason: str


class AwaitedDocument(TypedDict):
    """A machine whose journals a restored database waits for."""

    host: str
    since: str | None
    seen_at: str | None


def awaited_document(shared_by: SharedBy | None) -> list[AwaitedDocument]:
    """Return the machines whose journals a restored database waits for."""
    machines = shared_by.awaited if shared_by is not None else ()
    return [{"host": each.host, "since": iso(each.since), "seen_at": iso(each.seen_at)} for each in machines]


class _Accounts(TypedDict):
    accounts: list[AccountDocument]
    driver: DriverDocument | None


class AccountsDocument(_Accounts, total=False):
    """The accounts, and the process that runs the queue. The other fields exist only if workers share the queue."""

    workers: list[str]
    undriven: list[UndrivenDocument]
    awaited: list[AwaitedDocument]


def accounts_document(overview: Overview) -> AccountsDocument:
    """Return the accounts, and the process that runs the queue."""
    lease, shared_by = overview.lease, overview.shared_by
    document: AccountsDocument = {
        "accounts": [account_document(view, overview) for view in overview.accounts],
        "driver": None
        if lease is None
        else {
            "pid": lease.pid,
            "host": lease.host,
            "command": lease.command,
            "started_at": iso(lease.started_at),
        },
    }
    if shared_by is not None:
        document["workers"] = [state.name for state in shared_by.alive]
        document["undriven"] = [
            {"profile": each.profile, "account": each.account, "reason": each.reason} for each in shared_by.undriven
        ]
        document["awaited"] = awaited_document(shared_by)
    return document


def overview_document(overview: Overview) -> dict[str, Any]:
    """Return the whole queue as `status --json` prints it."""
    return {"jobs": [job_document(view) for view in overview.jobs], **accounts_document(overview)}
