"""What an action of a person may cost, said before it is done: on a terminal and on a page."""

from collections.abc import Mapping

from batchkiln.core.job import AttemptState
from batchkiln.core.states import ItemState
from batchkiln.presentation.formatting import plural
from batchkiln.store import CancelReport, Decision, ItemDetail, JobSummary, RetryReport


def cost_of_retry(job: str, preview: RetryReport) -> str:
    """Say what queueing items again may cost."""
    number = sum(preview.requeued.values())
    if not number:
        return f"{job}: nothing to retry; it costs nothing."
    parts = [f"{job}: retrying {plural(number, 'item')} ({_by_state(preview.requeued)})"]
    if preview.may_cost is not None:
        parts.append(f"may cost {plural(preview.may_cost, 'credit')} by the quotes known")
    if preview.unquoted:
        parts.append(
            f"{plural(preview.unquoted, 'item')} of them {'has' if preview.unquoted == 1 else 'have'} no quote"
        )
    if preview.paying_again:
        parts.append(f"{preview.paying_again:,} may have been paid before and would be paid again")
    return "; ".join(parts) + "."


def cost_of_cancel(job: str, preview: CancelReport) -> str:
    """Say what canceling costs: nothing."""
    items = plural(preview.canceled, "queued item")
    return f"{job}: canceling {items}; it costs nothing, and what was sent is still fetched."


def cost_of_pause(job: str) -> str:
    """Say what pausing costs: nothing."""
    return f"{job}: pausing costs nothing; what was sent already is finished and fetched."


def cost_of_unpause(summary: JobSummary) -> str:
    """Say what the queued items of a job may cost once it goes on."""
    queued = plural(summary.items[ItemState.QUEUED], "item")
    unquoted = f", and {summary.queued_unquoted:,} without a quote on top" if summary.queued_unquoted else ""
    cost = plural(summary.queued_cost, "credit")
    return f"{summary.name}: {queued} queued, which may cost {cost} by the quotes known{unquoted}."


def cost_of_resolve(decision: Decision, story: ItemDetail) -> str:
    """Say what a decision about a held item may cost."""
    name = f"{story.job}/{story.item.name}"
    price = f"about {story.quote_credits} credits" if story.quote_credits is not None else "the price of one item"
    match decision:
        case Decision.NOT_CREATED:
            if not story.attempts:
                return f"{name} was never sent; it is queued again, and will cost {price}."
            return (
                f"{name} is queued again with a new key, and costs {price}. If the earlier attempt did create "
                "something, that is paid as well."
            )
        case Decision.FAILED:
            return f"{name} is given up. This costs nothing more; what it may have cost stays paid."
        case Decision.ASK_AGAIN:
            return (
                f"{name} is sent again, with the same bytes under the same key. It costs nothing more where the "
                f"service still knows the key, and {price} where it has forgotten it or never got it."
            )
        case Decision.SAVED:
            files = plural(len(story.item.outputs), "file")
            return f"{name} is done with the {files} on disk. This costs nothing; the rest of it is not fetched."
        case Decision.GENERATION:
            return _cost_of_fetching(name, price, story)


def _cost_of_fetching(name: str, price: str, story: ItemDetail) -> str:
    if story.attempts and story.attempts[-1].state is AttemptState.SUCCEEDED:
        return f"{name} is fetched again; it is paid already, and this costs nothing."
    return (
        f"{name} is taken to have become this generation, for {price}; it is polled and fetched. "
        "Its id can be changed only once the service has denied it for an hour."
    )


def _by_state(counts: Mapping[ItemState, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
