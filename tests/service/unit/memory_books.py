"""The service's books in memory, with what tests of the ledger need to write by hand."""

import sqlite3
from contextlib import contextmanager
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from batchkiln_service import Limits
from batchkiln_service.db.creates import CreateStore, NewGeneration
from batchkiln_service.db.credits import buy_first, open_account
from batchkiln_service.db.database import connect
from batchkiln_service.rules.render_spec import RenderSpec
from batchkiln_service.rules.windows import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchkiln_service.rules.lifecycle import Outcome

DAY_MS = 86_400_000
CALENDAR = Calendar(day_start_ms=0, day_ms=DAY_MS)
NOW_MS = 20_000 * DAY_MS  # midnight of a service day
DRAWING = RenderSpec(
    kind="image",
    mode="text-to-image",
    model="epsilon-2",
    prompt="A red fox",
    width=512,
    height=512,
    output_format="png",
    duration_seconds=None,
    with_audio=False,
    image_mode=None,
    asset_ids=(),
)


@contextmanager
def opened() -> "Iterator[sqlite3.Connection]":
    """Give books with the accounts `main` (100 credits) and `other` (50)."""
    schema = resources.files("batchkiln_service.db").joinpath("schema.sql").read_text(encoding="utf-8")
    connection = connect(Path(":memory:"), schema)
    try:
        for name, amount in (("main", 100), ("other", 50)):
            open_account(connection, name, subscription=False)
            buy_first(connection, name, amount, now_ms=NOW_MS)
        yield connection
    finally:
        connection.close()


def generate(
    connection: sqlite3.Connection,
    generation_id: str = "gen_1",
    *,
    account: str = "main",
    cost_credits: int = 10,
    outcome: "Outcome" = "failed",
    seconds: int = 60,
) -> str:
    """Enter a generation that ends after so many seconds, and return its id."""
    new = NewGeneration(
        id=generation_id,
        account=account,
        key_sha256=sha256(b"key").hexdigest(),
        idempotency_key=f"idempotency-key-of-{generation_id}",
        path="/api/v1/images",
        body_sha256="",
        model="epsilon-2",
        cost_credits=cost_credits,
        max_cost_credits=None,
        created_at_ms=NOW_MS,
        processing_at_ms=NOW_MS,
        finish_at_ms=NOW_MS + 1000 * seconds,
        outcome=outcome,
        rehearsed_prompt=None,
        render_spec=DRAWING,
    )
    CreateStore(Limits(), CALENDAR).enter(connection, new)
    return generation_id
