"""Warnings of a plan: items that can never be sent, results that may be lost, and slow uploads."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from math import ceil
from typing import Final

from msgspec import Struct

from batchkiln.api.apply_manifests import TAKEN_REMEDY, describe_taken_files
from batchkiln.core.budget import BudgetLimit
from batchkiln.core.byte_sizes import format_size
from batchkiln.core.errors import Diagnostic, command_arguments
from batchkiln.core.forecast import Unpayable
from batchkiln.core.polling import RETENTION
from batchkiln.core.rate_limits import Limits
from batchkiln.outputs.paths import taken_names
from batchkiln.planning.plan import AffectedItem, JobPlan, Plan
from batchkiln.presentation.confirmations import redo_effects_text
from batchkiln.presentation.formatting import plural

_LIMITS: Final = {
    BudgetLimit.OVER_CAP: "its cap",
    BudgetLimit.OVER_DAY: "the account's daily credit limit",
    BudgetLimit.OVER_JOB_DAY: "the job's budget.credits_per_day",
    BudgetLimit.OVER_JOB_BUDGET: "the rest of the job's budget.credits",
}


class PlanWarning(Struct, frozen=True):
    """One warning. `code` is for programs, `message` for people. `job` is None if the warning concerns an account."""

    code: str
    job: str | None
    message: str


def warnings_of(plan: Plan) -> tuple[PlanWarning, ...]:
    """Return all warnings of a plan; those about losing money or results come first."""
    found = [warning for job in plan.jobs for warning in _job_warnings(job, plan)]
    found += _balance_warnings(plan)
    found += _account_warnings(plan)
    found += _catalogue_warnings(plan)
    if plan.others:
        names = ", ".join(plan.others[:_NAMES]) + (
            f" and {len(plan.others) - _NAMES} more" * (len(plan.others) > _NAMES)
        )
        message = f"other jobs also have queued items ({names}): `run` does not send them, `work` may send them first"
        found.append(PlanWarning("other_jobs", None, message))
    return tuple(found)


_NAMES: Final = 5
_GROUPS: Final = 6


def _job_warnings(job: JobPlan, plan: Plan) -> Iterator[PlanWarning]:
    name, report, profile = job.manifest.spec.name, job.manifest.report, plan.profiles[job.manifest.profile]
    if report.changed_count and not report.kept:
        yield PlanWarning(
            "changed_after_sent",
            name,
            f"{_items(report.changed_count)} changed after being sent: `run` refuses the manifest (exit 2). Use "
            "new ids to generate both versions, or pass --on-change keep or --on-change redo",
        )
    yield from _duplicate_warnings(job, allows_duplicates=plan.allows_duplicates)
    for warning in job.manifest.without_rows:
        yield PlanWarning("no_rows", name, one_line_diagnostic(warning))
    for warning in report.warnings:
        yield PlanWarning("catalogue", name, one_line_diagnostic(warning))
    if taken := taken_names(job.manifest.spec.output_dir, job.manifest.new_names):
        yield PlanWarning(
            "files_there_already", name, f"{describe_taken_files(job.manifest.spec, taken)}; {TAKEN_REMEDY}"
        )
    for unpayable in job.unpayable:
        yield _never_sent_warnings(unpayable, job)
    for refused in job.refused:
        yield PlanWarning(
            "refused",
            name,
            f"{_items(refused.count)} of {refused.model} would be rejected, because the service refuses to price "
            f"{refused.item} ({refused.error.code}: {refused.error.message})"
            f"{_names(refused.count, job.named(refused))}",
        )
    yield from _retention_warnings(job)
    yield from _profile_warnings(job)
    yield from _redo_warnings(job)
    yield from _chain_warnings(job)
    yield from _upload_warnings(job, profile.limits)
    told = _reasons(plan, job.manifest.profile)
    unpriced = [group for group in job.unpriced if group.reason not in told]
    for group in unpriced[:_GROUPS]:
        code = "unpriced_uploads" if group.needs_uploads else "unpriced"
        yield PlanWarning(
            code,
            name,
            f"{_items(group.items)} of {group.title} {_has(group.items)} no price: {group.reason}. Each costs at most "
            f"{plural(group.bound, 'credit')} ({group.bound_by})",
        )
    if more := unpriced[_GROUPS:]:
        items = sum(group.items for group in more)
        yield PlanWarning("unpriced", name, f"{_items(items)} of {len(more):,} other kinds have no price; see --json")
    if job.manifest.is_paused:
        resuming = f"`batchkiln unpause {command_arguments(name)}`"
        yield PlanWarning("paused", name, f"it is paused and starts nothing: {resuming} resumes it")


def _retention_warnings(job: JobPlan) -> Iterator[PlanWarning]:
    """Warn of a job that may take longer than the service keeps results."""
    end_at = job.end.at
    latest_at = end_at if job.end.range is None else job.end.range.latest_at
    if end_at is None or latest_at is None or latest_at - job.now <= RETENTION:
        return
    is_likely = end_at - job.now > RETENTION
    at_most = ceil((latest_at - job.now) / timedelta(days=1))
    takes = f"takes {(end_at - job.now).days}" if is_likely else f"may take {at_most}"
    yield PlanWarning(
        "longer_than_retention",
        job.manifest.spec.name,
        f"it {takes} days, but the service keeps a result for only {RETENTION.days}: "
        f"keep the program running, or run it at least every {RETENTION.days} days, or paid results are lost",
    )


def note_of_images_to_make(job: JobPlan, plan: Plan) -> str:
    """Return a note on how items were priced whose images are still to be made; an empty text without such items."""
    if not job.to_make:
        return ""
    verb, image = ("is", "an image that is") if job.to_make == 1 else ("are", "images that are")
    text = f"{plural(job.to_make, 'item')} {verb} made from {image} not there yet"
    if job.to_make == job.to_make_unpriced:
        return text
    is_embedded = plan.profiles[job.manifest.profile].is_embedded
    found = "the local service's" if is_embedded else "those of equal requests with other images"
    if job.to_make == 1:
        return f"{text}; its price is {found if is_embedded else 'that of an equal request with another image'}"
    if not job.to_make_unpriced:
        return f"{text}; the prices are {found}"
    lacking = f"{job.to_make_unpriced:,} of them {_has(job.to_make_unpriced)} no price yet"
    return f"{text}; {lacking}, and the other prices are {found}"


def _profile_warnings(job: JobPlan) -> Iterator[PlanWarning]:
    name, profile = job.manifest.spec.name, job.manifest.report.moved_from
    if profile is not None:
        yield PlanWarning(
            "profile",
            name,
            f"its items have the profile {profile}: `run` moves them to {job.manifest.profile}, since none was sent. "
            f"With `--profile {profile}` they stay there",
        )


def _redo_warnings(job: JobPlan) -> Iterator[PlanWarning]:
    """Warn of what `--on-change redo` takes from what exists, in the words of `redo`."""
    name, report = job.manifest.spec.name, job.manifest.report
    if report.redo_refusal is not None:
        yield PlanWarning("redo_over_budget", name, one_line_diagnostic(report.redo_refusal))
    for sentence in redo_effects_text(report.redo_effects, "what is made again"):
        yield PlanWarning("redo_effects", name, sentence)


def _chain_warnings(job: JobPlan) -> Iterator[PlanWarning]:
    chains, name = job.manifest.chains, job.manifest.spec.name
    if chains.stale:
        verb = "was" if chains.stale == 1 else "were"
        yield PlanWarning(
            "stale",
            name,
            f"{_items(chains.stale)} {verb} made from a file that is no longer current, because its item was made "
            "again since, or another version or variant was chosen. Nothing is made again unasked; "
            f"`batchkiln items {command_arguments(name)}` names stale items",
        )
    if chains.waiting_for_pruned:
        yield PlanWarning(
            "waiting_for_pruned",
            name,
            f"{_items(chains.waiting_for_pruned)} would wait in vain for what --prune cancels",
        )


def _duplicate_warnings(job: JobPlan, *, allows_duplicates: bool) -> Iterator[PlanWarning]:
    manifest = job.manifest
    name, number = manifest.spec.name, manifest.report.paid_before
    if number and not allows_duplicates:
        some = ", ".join(f"{same.name} as {same.old_name}" for same in manifest.paid_before[:_NAMES])
        message = (
            f"{_items(number)} {'asks' if number == 1 else 'ask'} under a new id for what the job has paid for ({some}"
            f"{', …' * (number > _NAMES)}): `run` refuses to pay again. Use the old ids, or pass --allow-duplicates"
        )
        yield PlanWarning("paid_before", name, message)
    number, pairs = manifest.equal_requests
    if number:
        some = ", ".join(f"{one} as {first}" for one, first in pairs[:_NAMES])
        message = (
            f"{_items(number)} of the manifest {'repeats' if number == 1 else 'repeat'} the request of an earlier one "
            f"({some}{', …' * (number > _NAMES)}): each is paid for by itself"
        )
        yield PlanWarning("duplicate_requests", name, message)


def one_line_diagnostic(warning: Diagnostic) -> str:
    """Return a warning about a part of the manifest in one line, with its place."""
    place = f"{warning.place}: " if warning.place else ""
    return f"{place}{warning.reason}" + (f" ({warning.remedy})" if warning.remedy else "")


def _never_sent_warnings(unpayable: Unpayable, job: JobPlan) -> PlanWarning:
    what, remedy = _LIMITS[unpayable.obstacle], _remedy(unpayable, job)
    message = (
        f"{_items(unpayable.count)} would be rejected: {unpayable.cost:,} credits each exceed {what} "
        f"({unpayable.limit:,}); {remedy}{_names(unpayable.count, job.named(unpayable))}"
    )
    return PlanWarning(unpayable.obstacle.value, unpayable.job, message)


def _remedy(unpayable: Unpayable, job: JobPlan) -> str:
    """Return what to change, with the figure that would suffice if it is known."""
    match unpayable.obstacle:
        case BudgetLimit.OVER_CAP:
            return f"raise max_cost_credits to {unpayable.cost:,}, or request less"
        case BudgetLimit.OVER_DAY:
            return "request less: it exceeds a whole day's limit"
        case BudgetLimit.OVER_JOB_DAY:
            return f"raise it to at least {unpayable.cost:,}, or request less"
        case BudgetLimit.OVER_JOB_BUDGET:
            enough = job.sufficient_budget
            if enough is None:
                return "raise it to generate all of them; the figure is not known while items have no price"
            return f"raise budget.credits to {enough:,} to generate all of them"


def _names(count: int, named: Sequence[AffectedItem]) -> str:
    """Return the names of items as the end of a sentence; an empty text without items."""
    if not named:
        return ""
    shown = ", ".join(map(str, named[:_NAMES]))
    return f": {shown}" + (f" and {count - _NAMES:,} more" if count > _NAMES else "")


def _upload_warnings(job: JobPlan, limits: Limits) -> Iterator[PlanWarning]:
    uploads, name = job.manifest.uploads, job.manifest.spec.name
    if not uploads.files:
        return
    if not limits.upload_files_per_day or uploads.largest_bytes > limits.upload_bytes_per_day:
        yield PlanWarning(
            "over_upload_limit",
            name,
            f"an image of {format_size(uploads.largest_bytes)} exceeds the account's daily upload limit "
            f"({format_size(limits.upload_bytes_per_day)}): its items would be rejected",
        )
        return
    days = max(
        ceil(uploads.files / limits.upload_files_per_day), ceil(uploads.size_bytes / limits.upload_bytes_per_day)
    )
    if days > 1:
        yield PlanWarning(
            "uploads_take_days",
            name,
            f"{uploads.files:,} images ({format_size(uploads.size_bytes)}) must be uploaded, and the daily limit is "
            f"{limits.upload_files_per_day:,} files and {format_size(limits.upload_bytes_per_day)}: the uploads "
            f"alone take {days} days, which the calendar does not include",
        )


def _balance_warnings(plan: Plan) -> Iterator[PlanWarning]:
    for outlook in plan.outlooks:
        known = [plan.quotes.balances.get((outlook.profile, account)) for account in outlook.accounts]
        cost = sum(day.credits for day in outlook.forecast.days)
        balance = sum(credit_count or 0 for credit_count in known)
        if None not in known and balance < cost:
            accounts = ", ".join(f"{outlook.profile}/{account}" for account in outlook.accounts)
            message = f"{accounts} has {balance:,} credits, and this costs about {cost:,}: buy more before they run out"
            yield PlanWarning("balance_too_low", None, message)


def _account_warnings(plan: Plan) -> Iterator[PlanWarning]:
    """Warn once of each cause, for all accounts and for the items whose price is missing by it."""
    accounts: dict[str, list[str]] = {}
    for failure in plan.quotes.failures:
        accounts.setdefault(failure.reason, []).append(f"{failure.profile}/{failure.account}")
    for reason, names in accounts.items():
        items = sum(group.items for job in plan.jobs for group in job.unpriced if group.reason == reason)
        lacking = f"{_items(items)} {_has(items)} no price; a run asks again, and the service checks them then"
        asks = f" {lacking}." if items else ""
        asked = " and ".join(names)
        message = f"{asked} could not be asked for prices: {reason}.{asks} `batchkiln doctor` looks for the cause"
        yield PlanWarning("account_not_asked", None, message)


def _catalogue_warnings(plan: Plan) -> Iterator[PlanWarning]:
    """Warn of missing catalogues, but for those that are missing for the same cause as prices."""
    for profile, complaint in plan.catalogue_warnings.items():
        if not any(reason in complaint for reason in _reasons(plan, profile)):
            yield PlanWarning("catalogue_unknown", None, complaint)


def _reasons(plan: Plan, profile: str) -> set[str]:
    """Return why accounts of a profile could not be asked; `_account_warnings` tells it."""
    return {failure.reason for failure in plan.quotes.failures if failure.profile == profile}


def _items(count: int) -> str:
    return plural(count, "item")


def _has(count: int) -> str:
    return "has" if count == 1 else "have"
