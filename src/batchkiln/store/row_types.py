"""Conversion between rows and core values. Only this module knows the columns by name."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from batchkiln.core.polling import Kind
from batchkiln.core.rate_limits import HeldUntil
from batchkiln.core.timestamps import from_milliseconds, to_milliseconds
from batchkiln.core.waits import WaitReason
from batchkiln.store.session import Row

if TYPE_CHECKING:
    from batchkiln.core.calls import Outage
    from batchkiln.core.job import Attempt, InputFile, Order, Recipe
    from batchkiln.core.queue_types import Viewpoint
    from batchkiln.core.responses import AccountBlocked


def instant(milliseconds: int | None) -> datetime | None:
    """Return the instant for stored milliseconds, or None."""
    return None if milliseconds is None else from_milliseconds(milliseconds)


def stored(at: datetime | None) -> int | None:
    """Return the milliseconds to store for an instant, or None."""
    return None if at is None else to_milliseconds(at)


def kind_of(row: Row) -> Kind:
    """Build the kind of a generation from the columns of its recipe, and whether it makes a video."""
    is_video = bool(row["is_video"])
    return Kind(row["price_key"], is_video, row["model"], output_seconds(json.loads(row["parameters"]), is_video))


def output_seconds(parameters: Mapping[str, object], is_video: bool) -> float | None:  # noqa: FBT001  of the same row
    """Return the length of a clip in seconds; None for an image, and for a clip without a stated length."""
    seconds = parameters.get("duration_seconds") if is_video else None
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def attempt_of(row: Row) -> "Attempt":
    """Build an attempt from its row."""
    from batchkiln.core.job import Attempt, AttemptState  # noqa: PLC0415  `status` needs none of these classes

    return Attempt(
        id=row["id"],
        item_id=row["item_id"],
        account_id=row["account_id"],
        number=row["number"],
        state=AttemptState(row["state"]),
        is_video=bool(row["is_video"]),
        idempotency_key=row["idempotency_key"],
        key_fingerprint=row["key_fingerprint"],
        body=row["body"],
        quote_credits=row["quote_credits"],
        sends=row["sends"],
        answers=row["answers"],
        generation_id=row["generation_id"],
        generation_created_at=instant(row["generation_created_at"]),
        cost_credits=row["cost_credits"],
        contact_at=instant(row["contact_at"] or row["recorded_at"]),
    )


def is_for(viewpoint: "Viewpoint", job: Row) -> bool:
    """Return whether the account works on a job in this run. A person may change the job's accounts at any time."""
    is_its_profile = bool(job["profile"] == viewpoint.profile)
    return is_its_profile and viewpoint.takes(_names(job["accounts"])) and viewpoint.scope.holds(job["job_id"])


@lru_cache(maxsize=64)
def _names(text: str) -> tuple[str, ...]:
    """Parse the column with a job's accounts, which is the same for all its items."""
    return tuple(json.loads(text))


def recipe_of(row: Row) -> "Recipe":
    """Build a recipe from a row that has its columns."""
    from batchkiln.core.job import Mode, Recipe  # noqa: PLC0415  as above

    return Recipe(
        model=row["model"],
        mode=Mode(row["mode"]),
        parameters=_parameters(row["parameters"]),
        inputs_count=row["inputs_count"],
        max_cost_credits=row["max_cost_credits"],
        attempts=row["attempts"],
    )


@lru_cache(maxsize=64)
def _parameters(text: str) -> tuple[tuple[str, Any], ...]:
    """Parse the column with a recipe's parameters, which is the same for all its items. They are never changed."""
    return tuple(sorted(json.loads(text).items()))


def input_file_of(row: Row) -> "InputFile":
    """Build an input file from its row."""
    from batchkiln.core.job import InputFile  # noqa: PLC0415  as above

    return InputFile(path=row["path"], sha256=row["sha256"], size_bytes=row["size_bytes"], media_type=row["media_type"])


def input_ids_of(text: str | None) -> tuple[int, ...]:
    """Parse the column with an item's input ids. Inputs that are still to be made are left out."""
    return () if text is None else tuple(input_id for input_id in json.loads(text) if input_id is not None)


def held_of(until: int | None, reason: str | None) -> HeldUntil | None:
    """Build a hold from its two columns."""
    return None if until is None or reason is None else HeldUntil(from_milliseconds(until), WaitReason(reason))


def blocked_as_list(blocked: "AccountBlocked") -> list[str]:
    """Return the reason why an account cannot work as it is stored, in a list of JSON."""
    return [blocked.problem, blocked.error.code, blocked.error.message]


def blocked_of(problem: str, code: str, message: str) -> "AccountBlocked":
    """Build the reason why an account cannot work from its list."""
    from batchkiln.core.responses import AccountBlocked, AccountProblem, ErrorInfo  # noqa: PLC0415  slow to import

    return AccountBlocked(AccountProblem(problem), ErrorInfo(code, message))


def outage_of(row: Row) -> "Outage | None":
    """Build an account's present outage from its two columns."""
    since, reason = row["outage_since"], row["outage_reason"]
    if since is None:
        return None
    from batchkiln.core.calls import Outage  # noqa: PLC0415  as above

    return Outage(from_milliseconds(since), reason)


def order_of(text: str) -> "Order":
    """Return a job's order from its stored text."""
    from batchkiln.core.job import Order  # noqa: PLC0415  as above

    return Order(text)
