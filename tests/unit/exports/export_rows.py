"""Rows with real files, and exports of them."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from PIL import Image

from batchkiln.core.job import Mode
from batchkiln.core.sample_names import DatasetRow
from batchkiln.exports import Export, ExportOptions, ExportResult, Format, JobFacts, SchemaInference

MADE_AT = datetime(2027, 1, 15, 8, tzinfo=UTC)
SUBJECT = JobFacts("birds", "Birds of the garden", 10, 50)


def row(item: str, **fields: Any) -> DatasetRow:  # noqa: ANN401  any field of the dataclass
    made = DatasetRow(
        item=item,
        index=0,
        output=1,
        path=f"/nowhere/{item}.png",
        size_bytes=1,
        sha256="0",
        media_type="image/png",
        saved_at=MADE_AT,
        prompt=f"a picture of {item}",
        model="epsilon-2",
        mode=Mode.TEXT_TO_IMAGE,
        parameters={"resolution": "1024x1024"},
        generation_id=f"gen-{item}",
        metadata={},
    )
    return replace(made, **fields)


def picture(folder: Path, item: str, index: int, **fields: Any) -> DatasetRow:  # noqa: ANN401  as above
    """Give a row with a small picture of its own colour."""
    path = folder / "out" / f"{item.replace('/', '_')}-{fields.get('output', 1)}.png"
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (8, 8), (index % 256, 100, 100)).save(path)
    return with_file(row(item, index=index, **fields), path)


def clip(folder: Path, item: str, index: int, content: bytes = b"") -> DatasetRow:
    """Give a row of a clip; without content it only looks like one."""
    path = folder / "out" / f"{item}.mp4"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content or f"clip of {item}".encode())
    fields = {"mode": Mode.TEXT_TO_VIDEO, "media_type": "video/mp4", "parameters": {"duration_seconds": 5}}
    return with_file(row(item, index=index, **fields), path)


def with_file(made: DatasetRow, path: Path) -> DatasetRow:
    content = path.read_bytes()
    return replace(made, path=str(path), size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def export(
    rows: Sequence[DatasetRow],
    to: Path | str,
    wanted: Format = Format.IMAGEFOLDER,
    *,
    of_job: Sequence[DatasetRow] | None = None,
    check_interrupted: Callable[[], None] = lambda: None,
    **options: Any,  # noqa: ANN401  fields of `ExportOptions`
) -> ExportResult:
    """Export rows to the end, as the command does; `of_job` are those that the columns come from."""
    shapes = SchemaInference()
    for one in of_job or rows:
        shapes.learn(makes_video=one.is_video, parameters=one.parameters, metadata=one.metadata)
    made = Export(
        ExportOptions(wanted, str(to), **options),
        SUBJECT,
        shapes,
        check_interrupted=check_interrupted,
        on_left_out=lambda _: None,
    )
    try:
        for one in rows:
            made.add(one)
        return made.finish()
    finally:
        made.close()


def tree(folder: Path) -> dict[str, bytes]:
    """Give all files below a folder with their contents."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
