"""The origin of a saved file: the request that made it. Sidecars and `on_saved` get it as JSON or as a caption.

It contains no link, no key, and no path except the file's own name (Law 8).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from batchkiln.core.job import SavedFile, Sidecar

_IDENTITY: Final = ("job", "item", "version", "output", "file", "sha256")


class Origin(Struct, frozen=True):
    """The facts about one attempt whose files are saved.

    `version` counts the item's attempts with saved files, from 1. `inputs` has the name and the SHA-256 of each image.
    `credits` is the cost, or the quote until the service has reported the cost.
    """

    job: str
    item: str
    index: int
    version: int
    prompt: str
    model: str
    mode: str
    parameters: Mapping[str, Any]
    inputs: tuple[tuple[str, str], ...]
    metadata: Mapping[str, Any]
    generation_id: str | None
    credits: int
    created_at: datetime | None

    def document(self, file: SavedFile, output: int) -> dict[str, Any]:
        """Return the JSON document of one file; `output` counts from 1."""
        created = self.created_at
        return {
            "job": self.job,
            "item": self.item,
            "index": self.index,
            "version": self.version,
            "output": output,
            "prompt": self.prompt,
            "model": self.model,
            "mode": self.mode,
            "parameters": dict(self.parameters),
            "inputs": [{"name": name, "sha256": sha256} for name, sha256 in self.inputs],
            "metadata": dict(self.metadata),
            "generation_id": self.generation_id,
            "credits": self.credits,
            "created_at": created and created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "file": file.path.rpartition("/")[2],
            "media_type": file.media_type,
            "bytes": file.size_bytes,
            "sha256": file.sha256,
        }

    def sidecar(self, kind: Sidecar, file: SavedFile, output: int) -> bytes:
        """Return the content of a sidecar. A caption is the prompt, as the column `text` of an export has it."""
        if kind is Sidecar.TXT:
            return self.prompt.encode()
        return (json.dumps(self.document(file, output), ensure_ascii=False, indent=2) + "\n").encode()


def tells_same(kind: Sidecar, there: bytes, wanted: bytes) -> bool:
    """Return whether an existing file is the sidecar of the same output, and can therefore stay.

    Facts that may change later, such as metadata, do not matter.
    """
    if there == wanted or kind is Sidecar.TXT:
        return there == wanted
    try:
        found = json.loads(there)
    except (ValueError, RecursionError):
        return False
    expected = json.loads(wanted)
    return isinstance(found, dict) and all(found.get(name) == expected[name] for name in _IDENTITY)
