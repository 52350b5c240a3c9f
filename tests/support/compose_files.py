"""The files of docs/compose, merged as Docker Compose does it."""

from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "compose"


def merged(*names: str) -> dict[str, Any]:
    """Return what several compose files say together; those files must use no other rules than these.

    Mappings are merged. A command is replaced, and so is a volume that is mounted at the same place. Other lists are
    joined.
    """
    found: dict[str, Any] = {}
    for name in names:
        found = _merge(found, yaml.safe_load((FOLDER / name).read_text("utf-8")))
    return found


def _merge(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    found = dict(before)
    for key, value in after.items():
        if key == "volumes" and isinstance(value, list):
            places = {line.split(":")[1]: line for line in (*before.get(key, []), *value)}
            found[key] = list(places.values())
        elif isinstance(value, dict) and isinstance(before.get(key), dict):
            found[key] = _merge(before[key], value)
        elif isinstance(value, list) and key != "command":
            found[key] = [*before.get(key, []), *value]
        else:
            found[key] = value
    return found
