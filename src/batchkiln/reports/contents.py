"""The data of a report. The caller removes local paths and secrets from every text."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from batchkiln.core.job import Charge, Mode
from batchkiln.core.responses import ErrorInfo
from batchkiln.core.states import ItemState


class ReportJob(Struct, frozen=True):
    """The job of a report.

    `now` is service time; `end_text` is when it ends, or why that is not known. `service_note` says of a local service
    that its credits are made up; it is empty for another one.
    """

    name: str
    description: str
    profile: str
    manifest: str
    is_finished: bool
    end_text: str
    created_at: datetime
    now: datetime
    budget_credits: int | None
    budget_credits_per_day: int | None
    version: str
    service_note: str = ""


class ReportFile(Struct, frozen=True):
    """One output. `path` is read and never shown; `name` is relative to the output folder.

    If its place is `url`, a local copy with the content `sha256` is read.
    """

    path: Path
    name: str
    size_bytes: int
    media_type: str
    saved_at: datetime
    url: str | None = None
    sha256: str = ""

    @property
    def is_video(self) -> bool:
        """Whether the file is a video."""
        return self.media_type.startswith("video/")


class ReportItem(Struct, frozen=True):
    """One item with its request, files and charges.

    `inputs` are file names without folders. `stale` is why what it was made from is no longer current, or empty;
    `verdict` is that of a person, or empty.
    """

    name: str
    index: int
    state: ItemState
    prompt: str
    model: str
    mode: Mode
    parameters: tuple[tuple[str, str | int | bool], ...]
    inputs: tuple[str, ...]
    metadata: Mapping[str, Any]
    error: ErrorInfo | None
    generation_id: str | None
    files: tuple[ReportFile, ...]
    charges: tuple[Charge, ...]
    stale: str = ""
    verdict: str = ""

    @property
    def credits(self) -> int:
        """The credits charged for the item, net of refunds."""
        return sum(charge.charged - charge.refunded for charge in self.charges)
