"""From a world that breaks a promise to the smallest that still does: what can be left out, is."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from .plan import Plan

_ROWS: Final = ("kills", "outages", "clock_steps", "troubles", "rests")
_SINGLES: Final = {
    "revoked_at": None,
    "stranger_until": 0.0,
    "cuts_power": None,
    "weather": None,
    "storage": None,
    "few": None,
}
_ITEM: Final = "  - {id:"
TRIES_MAX: Final = 200


def shrunken(plan: Plan, violations: Callable[[Plan], tuple[str, ...]], *, tries: int = TRIES_MAX) -> Plan:
    """Return the smallest plan that was found to break the same promise as `plan` does.

    `violations` plays a plan. A promise is known by its words, whatever names and figures stand in them.
    """
    wanted = _promise(violations(plan))
    goes_on = True
    while goes_on and tries:
        goes_on = False
        for smaller in _smaller(plan):
            tries -= 1
            if not wanted.isdisjoint(_promise(violations(smaller))):
                plan, goes_on = smaller, True
                break
            if not tries:
                break
    return plan


def _promise(violations: tuple[str, ...]) -> frozenset[str]:
    return frozenset(re.sub(r"'[^']*'|\S*\d\S*", "…", violation) for violation in violations)


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Give plans that lack something, those first that lack much."""
    for name in plan.manifests if len(plan.manifests) > 1 else ():
        yield replace(plan, manifests={other: text for other, text in plan.manifests.items() if other != name})
    for name, text in plan.manifests.items():
        for fewer in _fewer_items(text):
            yield replace(plan, manifests=plan.manifests | {name: fewer})
    for name, nothing in _SINGLES.items():
        if getattr(plan, name) != nothing:
            yield _with(plan, **{name: nothing})
    for name in _ROWS:
        for fewer_rows in _parts(getattr(plan, name)):
            yield _with(plan, **{name: fewer_rows})
    faults = plan.service.get("faults", [])
    assert isinstance(faults, list)
    for fewer_faults in _parts(tuple(faults)):
        yield replace(plan, service=plan.service | {"faults": list(fewer_faults)})


def _with(plan: Plan, **changes: Any) -> Plan:  # noqa: ANN401  fields by their names
    return replace(plan, **changes)


def _fewer_items(manifest: str) -> Iterator[str]:
    lines = manifest.splitlines(keepends=True)
    items = tuple(line for line in lines if line.startswith(_ITEM))
    head = [line for line in lines if not line.startswith(_ITEM)]
    for fewer in _parts(items):
        if fewer:
            yield "".join([*head, *fewer])


def _parts(row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Give what is left of a row without all, without a half, without a quarter …, without one."""
    size = len(row)
    while size:
        for at in range(0, len(row), size):
            yield row[:at] + row[at + size :]
        size //= 2
