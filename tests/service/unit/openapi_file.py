"""The schemas that `openapi.json` must hold, generated from the models; as a command, write them into the file.

python tests/service/unit/openapi_file.py
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).resolve().parents[3] / "src"
sys.path.insert(0, str(SOURCE))  # as a command, this runs without pytest's path

from pydantic.json_schema import GenerateJsonSchema, models_json_schema  # noqa: E402 - after the path is set

from batchkiln_service.api.openapi import FILE  # noqa: E402 - after the path is set
from batchkiln_service.rules import replies  # noqa: E402 - after the path is set
from batchkiln_service.rules.catalog import load_catalog  # noqa: E402 - after the path is set
from batchkiln_service.rules.request_models import variants_of  # noqa: E402 - after the path is set
from batchkiln_service.rules.wire import CompletionRequest, UploadRequest, Wire  # noqa: E402 - after the path is set

REPLIES: Final[tuple[type[replies.Reply], ...]] = (
    replies.AssetList,
    replies.Balance,
    replies.Error,
    replies.GenerationRecord,
    replies.ModelList,
    replies.Quote,
    replies.UploadList,
)
REFERENCE: Final = "#/components/schemas/{model}"
WIDTH: Final = 120


class _WithoutTitles(GenerateJsonSchema):
    """Without titles on fields: they would repeat the names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - the base class's signature
        return False


def schemas_of_models() -> dict[str, Any]:
    """Return `components.schemas`: each request and reply model, and the unions of the generation requests."""
    bodies: dict[str, list[type[Wire]]] = {"video": [], "image": []}
    for model in load_catalog().values():
        bodies[model.kind] += dict.fromkeys(variant.body for variant in variants_of(model).values())
    requests: list[type[Wire]] = [UploadRequest, CompletionRequest, *bodies["video"], *bodies["image"]]
    _, defined = models_json_schema(
        [*((body, "validation") for body in requests), *((reply, "serialization") for reply in REPLIES)],
        ref_template=REFERENCE,
        schema_generator=_WithoutTitles,
    )
    unions = {
        "GenerationRequest": _one_of("A request for a video or an image.", "VideoRequest", "ImageRequest"),
        "VideoRequest": _one_of("A request for a video.", *(body.__name__ for body in bodies["video"])),
        "ImageRequest": _one_of("A request for an image.", *(body.__name__ for body in bodies["image"])),
    }
    return unions | dict(sorted(defined["$defs"].items()))


def _one_of(text: str, *names: str) -> dict[str, Any]:
    return {"description": text, "oneOf": [{"$ref": REFERENCE.format(model=name)} for name in names]}


def formatted(document: object) -> str:
    """Return a document as JSON in which each value is on one line if it fits."""
    return "".join(_lines(document, "", "")) + "\n"


def _lines(value: object, indent: str, end: str) -> Iterator[str]:
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(line) + len(end) <= WIDTH:
        yield line + end
        return
    inner = indent + "  "
    entries = value.items() if isinstance(value, dict) else (("", entry) for entry in value)
    yield "{" if isinstance(value, dict) else "["
    for number, (name, entry) in enumerate(entries, 1):
        yield f"\n{inner}" + (f"{json.dumps(name)}: " if isinstance(value, dict) else "")
        yield from _lines(entry, inner, "," if number < len(value) else "")
    yield f"\n{indent}" + ("}" if isinstance(value, dict) else "]") + end


def main() -> None:
    """Replace the schemas of the file by those of the models."""
    document = json.loads(FILE.read_text("utf-8"))
    document["components"]["schemas"] = schemas_of_models()
    FILE.write_text(formatted(document), "utf-8")


if __name__ == "__main__":
    main()
