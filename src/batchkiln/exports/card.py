"""The dataset card, README.md: a description for people, and front matter that the Hugging Face Hub reads.

It depends only on the job and the rows, so equal datasets have equal cards. Text that a person adds below its last
line is kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml
from msgspec import Struct

from batchkiln.exports.dataset_columns import Columns
from batchkiln.exports.result import ExportResult

_FENCE: Final = "---\n"
_LAYOUT: Final = "batchkiln"  # the field of the front matter that records the export's layout
_KEPT_BELOW: Final = "<!-- What you write below this line is kept by the next export. -->\n"
_SIZE_CATEGORIES: Final = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
)


class JobFacts(Struct, frozen=True):
    """The figures of the job on a card. `credits_spent` is net of refunds; `items` counts all items of the job."""

    name: str
    description: str
    items: int
    credits_spent: int


def front_matter(card: str) -> dict[str, Any]:
    """Return a card's front matter, empty if it has none. Raise `yaml.YAMLError`."""
    if not card.startswith(_FENCE):
        return {}
    found = yaml.safe_load(card.removeprefix(_FENCE).partition("\n---")[0])
    return found if isinstance(found, dict) else {}


def recorded_layout(front: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the layout that an export recorded in its card; None for the card of another program."""
    found = front.get(_LAYOUT)
    return found if isinstance(found, dict) else None


def first_card_text(job: JobFacts, layout: Mapping[str, Any]) -> str:
    """Return the card of an unfinished export."""
    return "".join(
        [
            _front_matter_text({"pretty_name": job.name, _LAYOUT: dict(layout)}),
            f"# {job.name}\n\nThis export is not finished: run the same command again to continue it.\n",
        ]
    )


def card_text(
    job: JobFacts, layout: Mapping[str, Any], result: ExportResult, columns: Columns, *, earlier: str | None
) -> str:
    """Return the card of a finished export; `earlier` is the card that it replaces."""
    parts = [
        _front_matter_text(_front_matter(job, layout, result)),
        f"# {job.name}\n\n",
        f"{job.description.strip()}\n\n" if job.description.strip() else "",
        _figures(job, result),
        _splits(result),
        _columns(columns),
        _loading(layout, result),
        f"\n{_KEPT_BELOW}",
        (earlier or "").partition(_KEPT_BELOW)[2],
    ]
    return "".join(parts)


def _front_matter_text(fields: Mapping[str, Any]) -> str:
    return f"{_FENCE}{yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True)}{_FENCE}"


def _front_matter(job: JobFacts, layout: Mapping[str, Any], result: ExportResult) -> dict[str, Any]:
    fields = {
        "pretty_name": job.name,
        "task_categories": sorted(result.modes),  # the Hub's tasks have the names of the modes
        "tags": ["synthetic", _LAYOUT],
        "size_categories": [_size_category(result.files)],
        "configs": _configs(layout, result),
        _LAYOUT: dict(layout),
    }
    return {name: value for name, value in fields.items() if value}  # the Hub rejects empty lists


def _configs(layout: Mapping[str, Any], result: ExportResult) -> list[dict[str, Any]]:
    """Return the loader's configurations: one for each kind of file, with the files of each split."""
    splits = [name for name in layout["splits"] if result.splits[name, False] or result.splits[name, True]]
    match layout["format"]:
        case "imagefolder":
            # A loader reads all files of a configuration as one kind of media, so a mixed job's videos are not listed.
            root = "images/" if len(layout["makes"]) > 1 else ""
            listed = [split for split in splits if not root or result.splits[split, False]]
            patterns = {"default": {split: f"{root}{split}/**" for split in listed}}
        case "webdataset":
            extensions = sorted(result.extensions)
            patterns = {
                extension if len(extensions) > 1 else "default": {
                    split: f"{split}/{extension}-*.tar" for split in splits if result.shards[split, extension]
                }
                for extension in extensions
            }
        case suffix:
            patterns = {"default": {split: f"{split}.{suffix}" for split in splits}}
    return [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for name, files in patterns.items()
        if files
    ]


def _size_category(rows: int) -> str:
    return next((name for limit, name in _SIZE_CATEGORIES if rows < limit), "1M<n<10M")


def _figures(job: JobFacts, result: ExportResult) -> str:
    lines = [
        ("Images", f"{result.files - result.videos:,}"),
        ("Videos", f"{result.videos:,}"),
        ("Bytes", f"{result.size_bytes:,}"),
        ("Items", f"{result.items:,} of {job.items:,}"),
        ("Models", ", ".join(f"{model} ({count:,})" for model, count in sorted(result.models.items()))),
        *((name, result.parameter_values(name)) for name in sorted(result.values)),
        ("Credits spent", f"{job.credits_spent:,}"),
    ]
    if result.first_at is not None and result.last_at is not None:
        days = sorted({f"{at:%Y-%m-%d}" for at in (result.first_at, result.last_at)})
        lines.append(("Made", f"{' to '.join(days)} (UTC)"))
    if result.left_out_count:
        lines.append(("Left out", f"{result.left_out_count:,} files that are gone or changed"))
    return _table(("", ""), lines)


def _splits(result: ExportResult) -> str:
    names = dict.fromkeys(split for split, _ in result.splits)
    rows = [(name, f"{result.splits[name, False]:,}", f"{result.splits[name, True]:,}") for name in sorted(names)]
    return "\n## Splits\n\n" + _table(("split", "images", "videos"), rows)


def _columns(columns: Columns) -> str:
    rows = [(f"`{name}`", columns.types[name].value, text) for name, text in columns.descriptions().items()]
    return "\n## Columns\n\n" + _table(("column", "type", ""), rows)


def _loading(layout: Mapping[str, Any], result: ExportResult) -> str:
    if layout["format"] == "imagefolder" and len(layout["makes"]) > 1:
        there = {makes_video for (_, makes_video), number in result.splits.items() if number}
        lines = [
            f'{kind}s = load_dataset("{kind}folder", data_dir="path/to/this/folder/{kind}s")'
            for kind, makes_video in (("image", False), ("video", True))
            if makes_video in there
        ]
    else:
        names = [config["config_name"] for config in _configs(layout, result)]
        chosen = [f', "{name}"' for name in names] if len(names) > 1 else [""]
        lines = [f'dataset = load_dataset("path/to/this/folder"{name})' for name in chosen]
    code = "\n".join(["from datasets import load_dataset", "", *lines])
    return f"\n## Loading\n\n```python\n{code}\n```\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
