"""Every mapping in the source that is keyed by state has an entry for each state that it can meet."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

import batchkiln
from batchkiln.core.job import AttemptState
from batchkiln.core.states import (
    AT_REST,
    FAILED_STATES,
    FINAL_STATES,
    RETRYABLE,
    TRANSITIONS,
    UNDER_WAY,
    WITH_SERVICE,
    Event,
    ItemState,
)
from batchkiln.store.sql import QUERIES

SOURCE = Path(batchkiln.__file__).parent
ENUMS: dict[str, type[StrEnum]] = {"ItemState": ItemState, "AttemptState": AttemptState}
CANCELABLE = {state for state, event in TRANSITIONS if event is Event.CANCEL_REQUESTED}

UNDECIDED = {AttemptState.SENT, AttemptState.ACTIVE, AttemptState.SUCCEEDED}  # an outcome still changes the attempt

PARTIAL = {
    "store/operations.py:_NOT_RETRIED": set(ItemState) - RETRYABLE,
    "store/operations.py:_NOT_CANCELED": {
        *UNDER_WAY,
        ItemState.DONE,
        ItemState.CANCELED,
        ItemState.HELD,
    },  # and the other ends
    "store/diff.py:_EVENTS": CANCELABLE | {ItemState.REJECTED, ItemState.CANCELED, ItemState.HELD},  # never sent
    "presentation/chained_inputs.py:_ENDS": set(AT_REST) - {ItemState.DONE},
    "presentation/explain.py:_STUCK": WITH_SERVICE,
    "presentation/explain.py:_ENDED": set(FINAL_STATES) - set(FAILED_STATES),
    "store/account_changes.py:_RESUMED": UNDECIDED,
    "core/outcomes.py:ITEM_STATES": UNDECIDED,
    "store/diff.py:_REDO_EVENTS": RETRYABLE | CANCELABLE | {ItemState.DONE},
    "dashboard/partials.py:_ACTIONS": CANCELABLE | {ItemState.HELD, ItemState.DONE},
}
"""Mappings that are meant to hold some states only; every other one holds them all."""


def test_each_mapping_keyed_by_state_is_complete() -> None:
    """A new state is either in a mapping, or the mapping says here why not."""
    found = dict(_mappings())

    assert {name: keys for name, keys in found.items() if keys != PARTIAL.get(name, _all_of(keys))} == {}
    assert set(PARTIAL) <= set(found)
    assert "presentation/formatting.py:STYLES" in found


def test_no_other_module_names_a_set_of_states() -> None:
    """A set of states that has a name is in `core/states.py`, where one sees what it is for."""
    named = [place for place, _ in _collections() if not place.endswith(":")]

    assert named == []


@pytest.mark.parametrize("name", ["item_ids", "item_ids_before"])
def test_pages_of_items_hold_every_state(name: str) -> None:
    """A page is merged from one range of the index for each state."""
    assert [state.value for state in ItemState if f"state = '{state}'" not in QUERIES[name]] == []


def _all_of(keys: set[StrEnum]) -> set[StrEnum]:
    return set(type(next(iter(keys))))


def _mappings() -> Iterator[tuple[str, set[StrEnum]]]:
    """Yield each dictionary display with keys of one of the enums, by file and name."""
    for place, node in _named_nodes():
        if isinstance(node, ast.Dict) and (keys := {key for each in node.keys if (key := _member(each))}):
            yield place, keys


def _collections() -> Iterator[tuple[str, ast.AST]]:
    """Yield each assignment of a set, list or tuple with two states or more, outside `core/states.py`."""
    for place, node in _named_nodes():
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and not place.startswith("core/states.py"):
            members = [member for each in node.elts if isinstance(member := _member(each), ItemState)]
            if len(members) > 1:
                yield place, node


@cache
def _named_nodes() -> list[tuple[str, ast.AST]]:
    """Return every expression with its file and the module's name that it is assigned to, empty in functions."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE).as_posix()
        text = path.read_text("utf-8")
        if not any(name in text for name in ENUMS):
            continue
        for statement in ast.parse(text).body:
            name = ""
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
            found += [(f"{relative}:{name}", node) for node in ast.walk(statement)]
    return found


def _member(node: ast.expr | None) -> StrEnum | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ENUMS:
        return ENUMS[node.value.id][node.attr] if node.attr in ENUMS[node.value.id].__members__ else None
    return None
