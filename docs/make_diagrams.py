# ruff: noqa: INP001  a script beside the pages that it writes, and no package
"""Writes `docs/states.md` from the one table of states: run it after changing `core/states.py`.

python docs/make_diagrams.py
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from batchkiln.core import states
from batchkiln.core.states import FINAL_STATES, TRANSITIONS, WORKING_STATES, Event, ItemState

PAGE: Final = Path(__file__).with_name("states.md")
_STATE_LINE: Final = re.compile(r'^ +([A-Z]+) = "[a-z]+"\n +"""(.+)"""$', re.MULTILINE)
_MOVE_LINE: Final = re.compile(r"^ +\([\w.]+, +Event\.([A-Z_]+)\): +[\w.]+,(?: +# (.+))?$", re.MULTILINE)

Move = tuple[ItemState, Event, ItemState]


def states_page() -> str:
    """Give the page: two diagrams, all states, all moves. Fails where a line of the table cannot be read."""
    moves = [(state, event, target) for (state, event), target in TRANSITIONS.items()]
    forward = [move for move in moves if move[0] in WORKING_STATES]
    back = [move for move in moves if move[0] not in WORKING_STATES]
    return "\n".join(
        [
            "# Item states",
            "",
            "<!-- Written by docs/make_diagrams.py from src/batchkiln/core/states.py; do not edit. -->",
            "",
            "## Normal transitions",
            "",
            "The program, the service's replies, and `cancel` for items that were never sent cause these transitions.",
            "",
            *_diagram(forward, start=ItemState.QUEUED, ends=FINAL_STATES),
            "",
            "## Transitions by a person",
            "",
            "These transitions leave `held` and the final states. Their causes are a command, a changed manifest,",
            "or an API key or file that is available again.",
            "",
            *_diagram(back),
            "",
            "## All states",
            "",
            *_table(("state", "final", "meaning"), _state_rows()),
            "",
            "## All transitions",
            "",
            "Any other transition is a bug, and stops the program.",
            "",
            *_table(("from", "event", "to", "why"), _move_rows(moves)),
            "",
        ]
    )


def _diagram(moves: Iterable[Move], *, start: ItemState | None = None, ends: Iterable[ItemState] = ()) -> list[str]:
    """Draw the moves; those between the same two states share an arrow."""
    arrows: dict[tuple[ItemState, ItemState], list[Event]] = {}
    for state, event, target in moves:
        arrows.setdefault((state, target), []).append(event)
    reached = {target for _, target in arrows}
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {start}"] if start else []
    lines += [f"    {state} --> {target}: {'<br/>'.join(events)}" for (state, target), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in ItemState if state in ends and state in reached]
    return [*lines, "```"]


def _state_rows() -> list[tuple[str, ...]]:
    meanings = _comments(_STATE_LINE, inspect.getsource(states))
    return [(f"`{state}`", "yes" if state in FINAL_STATES else "", meanings[state.name]) for state in ItemState]


def _move_rows(moves: Iterable[Move]) -> list[tuple[str, ...]]:
    source = inspect.getsource(states)
    found = _MOVE_LINE.findall(source[source.index("TRANSITIONS") : source.index("# fmt: on")])
    rows: list[tuple[str, ...]] = []
    for (state, event, target), (name, reason) in zip(moves, found, strict=True):
        assert event.name == name, f"the table has a line for {event} that cannot be read"
        rows.append((f"`{state}`", f"`{event}`", f"`{target}`", reason))
    return rows


def _comments(pattern: re.Pattern[str], source: str) -> Mapping[str, str]:
    return dict(pattern.findall(source))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [_row(head), _row(("---",) * len(head)), *(_row(row) for row in rows)]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(states_page(), encoding="utf-8")
