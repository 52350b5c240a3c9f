"""The possible cost of an action, as stated before a confirmation on the terminal and on the dashboard."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from batchkiln.core.credit_price import CreditPrice
from batchkiln.core.job import AttemptState
from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import plural, sanitize
from batchkiln.store import CancelReport, Decision, ItemDetail, JobSummary, RedoEffects, RedoReport, RetryReport


class Spending(Struct, frozen=True):
    """The credits that a change of a job may spend.

    `credits` is the sum of the known quotes, or what the job's budget leaves if that is less, or if a quote is missing.
    Without a budget, `unpriced` items without a quote may cost more. `profile` is the job's.
    """

    profile: str
    credits: int
    unpriced: int

    def question(self, price: CreditPrice | None) -> str:
        """Return the question before the change. `price` is the configured price of a credit."""
        amount = f"about {plural(self.credits, 'credit')}{money_text(self.credits, price)}"
        more = f", and the price of {plural(self.unpriced, 'item')} without a quote" if self.unpriced else ""
        return spending_question(amount + more)


def spending_of(summary: JobSummary, cost: int, unquoted: int) -> Spending:
    """Return what items of a job may spend: `cost` by their known quotes, and `unquoted` items without one."""
    left = summary.budget_left
    if left is None:
        return Spending(summary.profile, cost, unquoted)
    return Spending(summary.profile, left if unquoted else min(cost, left), 0)


def budget_text(summary: JobSummary, cost: int) -> str:
    """Return sentences about the job's budgets that do not pay `cost` credits more; each begins with a space."""
    text, left = "", summary.budget_left
    if left is not None and cost and summary.queued_cost + cost > left:
        queued = f" beside {summary.queued_cost:,} for what is queued" if summary.queued_cost else ""
        text = (
            f" The job's budget.credits has {left:,} of {summary.budget_credits:,} credits left{queued}: what does not "
            f"fit is rejected. Raise it to {summary.budget_for(cost):,} in {sanitize(summary.manifest_path)} first."
        )
    if summary.budget_credits_per_day is not None and cost > summary.budget_credits_per_day:
        text += f" Its budget.credits_per_day is {summary.budget_credits_per_day:,}: the rest waits for later days."
    return text


def spending_question(amount: str) -> str:
    """Return the question before anything is spent, with an amount as text."""
    return f"This may spend {amount}. Continue?"


def money_text(amount: int, price: CreditPrice | None) -> str:
    """Return the price of credits in brackets, to follow their number; "" without a configured price."""
    return "" if price is None else f" ({price.of(amount)})"


def cost_of_retry(job: str, preview: RetryReport) -> str:
    """Return a sentence with the cost of queuing items again."""
    number = sum(preview.requeued.values())
    if not number:
        return f"{job}: nothing to retry; this costs nothing."
    parts = [f"{job}: retrying {plural(number, 'item')} ({by_state(preview.requeued)})"]
    if preview.may_cost is not None:
        parts.append(_retry_cost_text(preview.may_cost, preview))
    if preview.unquoted:
        parts.append(
            f"{plural(preview.unquoted, 'item')} of them {'has' if preview.unquoted == 1 else 'have'} no quote"
        )
    if preview.paying_again:
        parts.append(f"{preview.paying_again:,} may have been paid before and would be paid again")
    return "; ".join(parts + _over_cap(preview.over_cap)) + "."


def _retry_cost_text(may_cost: int, preview: RetryReport) -> str:
    """Return the sum of the quotes, with that of the rejected items apart: they seldom cost anything."""
    rejected = preview.requeued.get(ItemState.REJECTED, 0)
    those = "the rejected one is" if rejected == 1 else "the rejected ones are"
    others = may_cost - preview.rejected_cost
    if not preview.rejected_cost:
        return _quotes_text(may_cost, preview.day_cost)
    if not others:
        cost = f"{plural(may_cost, 'credit')} by the known quotes"
        return f"costs nothing unless {those} accepted now, which may cost {cost}"
    text = _quotes_text(others, preview.day_cost)
    return f"{text}, and {preview.rejected_cost:,} more only if {those} accepted now"


def _quotes_text(may_cost: int, day_cost: int) -> str:
    """Return a sum of quotes, and how much of the day's credits it may use if attempts fail."""
    text = f"may cost {plural(may_cost, 'credit')} by the known quotes"
    if day_cost <= may_cost:
        return text
    return f"{text} (at most {day_cost:,} of the day's credits: what fails is refunded, and tried again)"


def cost_of_redo(job: str, preview: RedoReport) -> str:
    """Return a sentence with the cost of making done items again."""
    if not preview.redone:
        return f"{job}: nothing to make again; this costs nothing."
    kept = "its files are kept" if preview.redone == 1 else "their files are kept"
    parts = [f"{job}: making {plural(preview.redone, 'done item')} again; {kept}"]
    if preview.may_cost is not None:
        parts.append(_quotes_text(preview.may_cost, preview.day_cost))
    if preview.unquoted:
        verb = "has" if preview.unquoted == 1 else "have"
        parts.append(f"{plural(preview.unquoted, 'item')} of them {verb} no quote")
    those = "it" if preview.redone == 1 else "them"
    effects = "".join(f" {sentence}." for sentence in redo_effects_text(preview.effects, those))
    return "; ".join(parts + _over_cap(preview.over_cap)) + "." + effects


def redo_effects_text(effects: RedoEffects, those: str) -> Iterator[str]:
    """Yield sentences, without full stops, about verdicts that end and items that become stale by a redo.

    `those` is the word for the items that are made again, as in "made from them".
    """
    if effects.kept:
        more = effects.kept - len(effects.kept_names)
        names = ", ".join(map(sanitize, effects.kept_names)) + (f" and {more:,} more" if more else "")
        ends = "is kept: the verdict ends" if effects.kept == 1 else "are kept: their verdicts end"
        yield f"{names} {ends} once there are new files, which wait for a review"
    outdated = effects.outdated
    if outdated is not None:
        name = sanitize(outdated.first) if outdated.count == 1 else plural(outdated.count, "item")
        verbs = ("was", "becomes", "it") if outdated.count == 1 else ("were", "become", "them")
        cost = (
            "has no quote yet" if outdated.may_cost is None else f"may cost {plural(outdated.may_cost, 'credit')} more"
        )
        unquoted = f", and {outdated.unquoted:,} without a quote" if outdated.unquoted and outdated.may_cost else ""
        yield f"{name} {verbs[0]} made from {those} and {verbs[1]} stale: making {verbs[2]} again {cost}{unquoted}"


def _over_cap(number: int) -> list[str]:
    """Return a part of a sentence about items whose quotes exceed their caps, or the job's budget of a day."""
    return (
        [f"{number:,} of them would be rejected and cost nothing, because {over_cap_reason(number)}"] if number else []
    )


def over_cap_reason(number: int) -> str:
    """Return why so many items would be rejected for what each would cost, as a clause."""
    its = "its quote exceeds its cap" if number == 1 else "their quotes exceed their caps"
    return f"{its} or the job's budget.credits_per_day"


def cost_of_cancel(job: str, preview: CancelReport) -> str:
    """Return a sentence about canceling, which is free."""
    items = plural(preview.canceled, "queued item")
    waiting = ""
    if preview.waiting:
        verb = "waits" if preview.waiting == 1 else "wait"
        others = "another queued item" if preview.waiting == 1 else f"{preview.waiting:,} other queued items"
        waiting = f" Then {others} {verb} in vain for what they would have made; `batchkiln retry` queues them again."
    return f"{job}: canceling {items}; this costs nothing. Items that were already sent are still downloaded.{waiting}"


def cost_of_pause(summary: JobSummary) -> str:
    """Return a sentence about pausing: nothing new is charged, but what was sent stays charged and is fetched."""
    sent = len(summary.under_way)
    if not sent:
        return f"{summary.name}: nothing of it is active, so nothing is charged until it is unpaused."
    them = "it" if sent == 1 else "them"
    items = f"{plural(sent, 'item')} already sent and charged"
    return f"{summary.name}: {items}; a run still finishes {them}, and sends no more."


def cost_of_unpause(summary: JobSummary) -> str:
    """Return a sentence with the cost of a job's queued items, which unpausing releases."""
    if not summary.items[ItemState.QUEUED]:
        return f"{summary.name}: nothing is queued, so this costs nothing; what is queued later can begin again."
    queued = plural(summary.items[ItemState.QUEUED], "item")
    unquoted = f", plus {summary.queued_unquoted:,} without a quote" if summary.queued_unquoted else ""
    cost = f"{plural(summary.queued_cost, 'credit')} by the known quotes{unquoted}"
    spending = spending_of(summary, summary.queued_cost, summary.queued_unquoted)
    if summary.queued_unquoted > spending.unpriced or spending.credits < summary.queued_cost:
        cost = f"at most {plural(spending.credits, 'credit')} by the job's budget ({cost})"
    return f"{summary.name}: {queued} queued, which may cost {cost}."


def cost_of_resolve(decision: Decision, detail: ItemDetail) -> str:
    """Return a sentence with the cost of a decision about a held item."""
    name = f"{detail.job}/{detail.item.name}"
    price = f"about {detail.quote_credits} credits" if detail.quote_credits is not None else "the price of one item"
    match decision:
        case Decision.NOT_CREATED:
            if not detail.attempts:
                return f"{name} was never sent; it is queued again, and will cost {price}."
            return (
                f"{name} is queued again with a new idempotency key, and costs {price}. If the earlier attempt did "
                "create something, that is paid as well."
            )
        case Decision.FAILED:
            return f"{name} is given up. This costs nothing more; credits that were already charged stay charged."
        case Decision.ASK_AGAIN:
            return (
                f"{name} is sent again, with the same bytes and the same idempotency key. It costs nothing more if "
                f"the service still knows the idempotency key, and {price} if it has forgotten or never received it."
            )
        case Decision.SAVED:
            files = plural(len(detail.item.outputs), "file")
            return (
                f"{name} is marked done with the {files} on disk. This costs nothing; its other outputs are not "
                "downloaded."
            )
        case Decision.GENERATION:
            return _cost_of_fetching(name, price, detail)


def _cost_of_fetching(name: str, price: str, detail: ItemDetail) -> str:
    if detail.attempts and detail.attempts[-1].state is AttemptState.SUCCEEDED:
        return f"{name} is downloaded again; it is already paid, so this costs nothing."
    return (
        f"{name} is linked to this generation, for {price}; it is polled and downloaded. The id can be changed only "
        "after the service has denied it for an hour."
    )


def by_state(counts: Mapping[ItemState, int]) -> str:
    """Return numbers of items with their states, without zeros, as in "2 failed, 1 rejected"."""
    return ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
