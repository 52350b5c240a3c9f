"""Items that are made from other items: their open inputs are filled when the source is done, and chosen.

An input is filled in the transaction that makes its source available, so that a crash leaves both or neither. Only
queued items are changed: what was sent was made from the file that it was sent with.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from batchkiln.store.session import Row, Session
from batchkiln.store.sql import query
from batchkiln.store.transitions import log_event


def fill_dependents(connection: Session, source_ids: Sequence[int], now: int) -> int:
    """Fill, exchange or open again the inputs of queued items that are made from these items or their groups.

    Call it in the transaction that saves a source's files, makes it again, chooses a version of it, or keeps or drops
    it. `now` is milliseconds of service time. Return the number of items that wait for no input any more.
    """
    rows = connection.execute(query("dependents"), {"ids": json.dumps(list(source_ids))}).fetchall()
    offers: dict[_Source, Row | None] = {}
    for row in rows:
        source = _source_of(row)
        if source not in offers:
            offers[source] = _offered(connection, source)
    return sum(
        _fill(connection, item_id, [(row, offers[_source_of(row)]) for row in own], now)
        for item_id, own in groupby(rows, key=itemgetter("item_id"))
    )


_Source = tuple[int | None, int | None, int, int]


def _source_of(row: Row) -> _Source:
    return row["source_id"], row["group_id"], row["rank"], row["output"]


def _offered(connection: Session, source: _Source) -> Row | None:
    """Return the output that an item or a group offers, or None."""
    source_id, group_id, rank, output = source
    name = "offered_output" if group_id is None else "offered_choice"
    parameters = {"source_id": source_id, "group_id": group_id, "rank": rank, "output": output}
    found: Row | None = connection.execute(query(name), parameters).fetchone()
    return found


def _fill(connection: Session, item_id: int, sources: Sequence[tuple[Row, Row | None]], now: int) -> bool:
    """Fill the inputs of one item; return whether this closed its last open input."""
    changed = [(row, made) for row, made in sources if row["made_by"] != (made and made["attempt_id"])]
    if not changed:
        return False
    inputs: list[int | None] = json.loads(connection.execute(query("inputs_of"), {"item_id": item_id}).fetchone()[0])
    was_open = None in inputs
    for row, made in changed:
        place = row["place"]
        made_by, sha256 = (None, None) if made is None else (made["attempt_id"], made["sha256"])
        filled = {"item_id": item_id, "place": place, "made_by": made_by, "sha256": sha256}
        connection.execute(query("fill_source"), filled)
        inputs[place] = None if made is None else _input_id(connection, made)
        kind = "input_opened" if made is None else "input_filled"
        log_event(connection, kind, item_id=item_id, now=now, detail={"place": place, "sha256": sha256})
    values = {"item_id": item_id, "inputs": json.dumps(inputs), "open_inputs": inputs.count(None)}
    connection.execute(query("set_inputs"), values)
    return was_open and None not in inputs


def _input_id(connection: Session, output: Row) -> int:
    """Store an output as an input, and return its id."""
    values = {name: output[name] for name in ("path", "sha256", "size_bytes", "media_type")}
    return int(connection.execute(query("store_input"), values).fetchone()[0])
