"""The recorded shape of a service's replies, stored beside the queue to detect later changes.

Only names, types and a digest of the service's description are stored: no values, no secrets (Law 8).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from batchkiln.core import provider
from batchkiln.core.errors import InputError
from batchkiln.doctor.check_results import CheckResult, ok, warn
from batchkiln.store import QueueLocation, local_path, make_local_folder

DESCRIPTION: Final = f"GET {provider.DESCRIPTION}"
BALANCE: Final = f"GET {provider.BALANCE}"
_SHOWN: Final = 6
_PROBE: Final = "batchkiln doctor --probe"

Types = Mapping[str, str]
"""The type of each field of a reply by its path, as `field_types` returns it."""


class Learned(Struct, frozen=True):
    """The recorded shapes of one profile's replies, by call; empty for another base URL."""

    base_url: str
    calls: Mapping[str, Types] = field(default_factory=dict)

    def differences(self, call: str, types: Types) -> list[str]:
        """Return the differences from the recorded shape; none if the call is new or had no reply."""
        before = self.calls.get(call)
        return [] if not before or not types else list(_differences(before, types))

    def with_call(self, call: str, types: Types) -> "Learned":
        """Return a copy with a call's newest shape. If the call had no reply, the recorded shape remains."""
        return self if not types else Learned(self.base_url, {**self.calls, call: types})


def learned_path(queue: QueueLocation) -> Path:
    """Return the path of the file with the recorded shapes."""
    file = local_path(queue)
    return file.with_name(f"{file.name}.shapes.json")


def load_learned(queue: QueueLocation, profile: str, base_url: str) -> Learned:
    """Return the recorded shapes; empty if the file is missing, damaged or about another base URL."""
    entry = _entries(queue).get(profile)
    if not isinstance(entry, Mapping) or entry.get("base_url") != base_url:
        return Learned(base_url)
    calls = entry.get("calls")
    known = calls.items() if isinstance(calls, Mapping) else ()
    return Learned(base_url, {str(call): types for call, types in known if _are_types(types)})


def save_learned(queue: QueueLocation, profile: str, learned: Learned) -> None:
    """Save the recorded shapes atomically. Raise `InputError` if the folder is not writable."""
    path = learned_path(queue)
    entries = {**_entries(queue), profile: {"base_url": learned.base_url, "calls": learned.calls}}
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        make_local_folder(queue)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=1, sort_keys=True)
        part.replace(path)
    except OSError as fault:
        with suppress(OSError):
            part.unlink()
        reason = f"{path}: the learned shapes cannot be saved: {fault.strerror}"
        raise InputError(f"{reason}; make the folder writable, and probe again") from fault


def description_digest(document: Mapping[str, object]) -> Types:
    """Return a digest of a service's description, which is too long to store."""
    text = json.dumps(document, sort_keys=True, default=str)
    return {"sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}


def check_unchanged(learned: Learned, call: str, types: Types) -> CheckResult | None:
    """Compare a reply with the last `doctor --probe`; return None if there is nothing to compare."""
    if call not in learned.calls or not types:
        return None
    found = learned.differences(call, types)
    if not found:
        return ok("learned shapes", f"{call} has the same shape as at the last `{_PROBE}`")
    what = "the description has changed" if call == DESCRIPTION else "; ".join(found)
    return warn(
        "learned shapes",
        f"{call} has changed since the last `{_PROBE}`: {what}",
        f"run `{_PROBE}` to check that the replies are still understood; it costs no credits",
    )


def _differences(before: Types, after: Types) -> Iterator[str]:
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    other = sorted(path for path in before.keys() & after.keys() if _differ(before[path], after[path]))
    for word, paths in (("gone", gone), ("new", new)):
        if paths:
            yield f"{word}: {_listed(paths)}"
    if other:
        yield "of another type: " + _listed([f"{path} ({before[path]}, now {after[path]})" for path in other])


def _differ(before: str, after: str) -> bool:
    """Return whether types differ; a null is compatible with every type."""
    return "null" not in {before, after} and before != after


def _listed(paths: list[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _entries(queue: QueueLocation) -> dict[str, object]:
    try:
        entries = json.loads(learned_path(queue).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _are_types(types: object) -> bool:
    return isinstance(types, Mapping) and all(isinstance(each, str) for pair in types.items() for each in pair)
