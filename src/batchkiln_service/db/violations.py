"""Finds the requests of a client that break the service's rules, as far as the request log shows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from batchkiln_service.db.report import Violation
from batchkiln_service.faults.fault_rules import REPLY

# The refusals that a client which keeps the rules never receives: code, meaning, and source.
_BY_CODE: Final = {
    "rate_limited": ("requests beyond the limit of a minute", "section 8"),
    "daily_limit": ("requests or uploads beyond the limit of a day", "section 8"),
    "credit_budget_exhausted": ("creates beyond the credits of a day", "section 8"),
    "generation_active": ("creates beside an active generation", "section 8"),
    "edge_blocked": ("requests beyond the firewall's limit of a minute", "section 7"),
    "idempotency_conflict": ("other bodies under a used idempotency key", "rule 4.3"),
    "wrong_api_key": ("reads or replays with another API key than that of the create", "rule 5.7"),
    "origin_not_allowed": ("requests with an Origin header, as browsers send it", "rule 5.5"),
    "internal_error": ("requests that the service itself failed to answer", "a defect of the service"),
}
AcceptedCreate = tuple[str, str, str, str | None]  # account, SHA-256 of the body, generation, joined kinds of faults


def violations_of(
    refusals: Mapping[str, int], *, early_polls: int, replacements: int, ledger_errors: int
) -> tuple[Violation, ...]:
    """Return the broken rules. `refusals` are numbers of requests by code."""
    found = [
        Violation(code, refusals[code], meaning, source)
        for code, (meaning, source) in _BY_CODE.items()
        if refusals.get(code)
    ]
    if early_polls:
        found.append(Violation("early_poll", early_polls, "polls of an active generation too soon", "rule 4.4"))
    if replacements:
        meaning = "creates of a body under a new key while the outcome of an equal create was unknown"
        found.append(Violation("replaced_create", replacements, meaning, "rules 4.2 and 4.5"))
    if ledger_errors:
        found.append(Violation("ledger", ledger_errors, "errors of the ledger", "a defect of the service"))
    return tuple(found)


def count_replacements(accepted: Iterable[AcceptedCreate]) -> int:
    """Return how many generations were created after the reply to an equal create was lost and no replay was sent.

    `accepted` are the accepted creates of bodies with several generations, in the order of the log. A replay whose
    reply arrives makes the outcome known.
    """
    known: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    unknown: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    count = 0
    for account, body, generation, faults in accepted:
        request = (account, body)
        is_new = generation not in known[request] | unknown[request]
        count += is_new and bool(unknown[request])
        if REPLY.isdisjoint((faults or "").split(", ")):
            known[request].add(generation)
            unknown[request].discard(generation)
        elif generation not in known[request]:
            unknown[request].add(generation)
    return count
