"""Reads the origin of saved files: the request that made them, for sidecars and the hook `on_saved`."""

import json

from batchkiln.core.origin import Origin
from batchkiln.store.row_types import instant
from batchkiln.store.session import Session
from batchkiln.store.sql import query


def origin_of(connection: Session, attempt_id: int) -> Origin:
    """Return the origin of an attempt's files: the request as it was sent, and the names of its local images."""
    row = connection.execute(query("origin"), {"attempt_id": attempt_id}).fetchone()
    inputs = connection.execute(query("origin_inputs"), {"attempt_id": attempt_id}).fetchall()
    sent = json.loads(bytes(row["body"]))
    return Origin(
        job=row["job"],
        item=row["item"],
        index=row["position"],
        version=row["made_version"],
        prompt=sent["prompt"],
        model=sent["model"],
        mode=sent["mode"],
        parameters=sent.get("parameters", {}),
        inputs=tuple((str(each["path"]).rpartition("/")[2], each["sha256"]) for each in inputs),
        metadata=json.loads(row["metadata"] or "{}"),
        generation_id=row["generation_id"],
        credits=row["quote_credits"] if row["cost_credits"] is None else row["cost_credits"],
        created_at=instant(row["generation_created_at"]),
    )
