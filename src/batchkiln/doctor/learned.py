"""What a service's replies looked like, kept beside the queue, so that a later change is noticed.

Only names and types are kept, and a digest of the service's description: no values, no secrets (Law 8).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from batchkiln.core import provider
from batchkiln.core.errors import InputError
from batchkiln.doctor.check_results import CheckResult, ok, warn

DESCRIPTION: Final = f"GET {provider.DESCRIPTION}"
BALANCE: Final = f"GET {provider.BALANCE}"
_SHOWN: Final = 6
_OLDEST: Final = "batchkiln doctor --probe"

Types = Mapping[str, str]
"""The type of each place of a reply by its path, as `field_types` gives it."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What was seen of one profile's service, by call; of another base URL nothing is known."""

    base_url: str
    calls: Mapping[str, Types] = field(default_factory=dict)

    def differences(self, call: str, types: Types) -> list[str]:
        """Return what differs from the last time; nothing where the call is new, or nothing came."""
        before = self.calls.get(call)
        return [] if not before or not types else list(_differences(before, types))

    def with_call(self, call: str, types: Types) -> "Learned":
        """Return it with a call's newest reply; the last one stays where nothing came."""
        return self if not types else Learned(self.base_url, {**self.calls, call: types})


def learned_path(queue: Path) -> Path:
    """Return where the shapes of a queue's services are kept."""
    return queue.with_name(f"{queue.name}.shapes.json")


def load_learned(queue: Path, profile: str, base_url: str) -> Learned:
    """Return what is known; nothing for a file that is missing, damaged, or about another address."""
    entry = _entries(queue).get(profile)
    if not isinstance(entry, Mapping) or entry.get("base_url") != base_url:
        return Learned(base_url)
    calls = entry.get("calls")
    known = calls.items() if isinstance(calls, Mapping) else ()
    return Learned(base_url, {str(call): types for call, types in known if _are_types(types)})


def save_learned(queue: Path, profile: str, learned: Learned) -> None:
    """Keep what is known, whole or not at all. Raises `InputError` where the folder cannot be written."""
    path = learned_path(queue)
    entries = {**_entries(queue), profile: {"base_url": learned.base_url, "calls": learned.calls}}
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=1, sort_keys=True)
        part.replace(path)
    except OSError as fault:
        with suppress(OSError):
            part.unlink()
        raise InputError(f"{path}: what was learned cannot be kept: {fault.strerror}") from fault


def description_digest(document: Mapping[str, object]) -> Types:
    """Return what stands for a service's description: a digest, since the document is long."""
    text = json.dumps(document, sort_keys=True, default=str)
    return {"sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}


def check_unchanged(learned: Learned, call: str, types: Types) -> CheckResult | None:
    """Tell whether a reply differs from the last `doctor --probe`; None where nothing can be said."""
    if call not in learned.calls or not types:
        return None
    found = learned.differences(call, types)
    if not found:
        return ok("learned shapes", f"{call} answers as at the last `{_OLDEST}`")
    what = "the description differs" if call == DESCRIPTION else "; ".join(found)
    return warn(
        "learned shapes",
        f"{call} answers otherwise than at the last `{_OLDEST}`: {what}",
        f"`{_OLDEST}` tells whether all is still understood, and costs no credits",
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
    """Tell whether types differ; a null may stand anywhere, and says nothing."""
    return "null" not in {before, after} and before != after


def _listed(paths: list[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _entries(queue: Path) -> dict[str, object]:
    try:
        entries = json.loads(learned_path(queue).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _are_types(types: object) -> bool:
    return isinstance(types, Mapping) and all(isinstance(each, str) for pair in types.items() for each in pair)
