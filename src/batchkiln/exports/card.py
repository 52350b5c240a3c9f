"""The dataset card: what is in the dataset, for people and for the Hugging Face Hub, which reads the front matter.

It depends on the job and the rows alone, so that the same dataset has the same card. What a person writes below its
last line is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from batchkiln.exports.columns_inference import Columns
from batchkiln.exports.result import Outcome

_FENCE: Final = "---\n"
_OURS: Final = "batchkiln"
_YOURS: Final = "<!-- What you write below this line is kept by the next export. -->\n"
_MANY: Final = 1_000

_EXPLAINED: Final[Mapping[str, str]] = {
    "file_name": "the file, relative to the table",
    "text": "the prompt",
    "item": "the item's id in its job",
    "index": "its place in the job",
    "output": "which output of the item",
    "type": "`image` or `video`",
    "model": "the model that made it",
    "mode": "what it was made from",
    "generation_id": "the service's id of the generation",
    "created_at": "when the file was fetched (UTC)",
    "media_type": "the file's media type",
    "bytes": "the file's size",
    "sha256": "the file's hash",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a card tells of the job itself. `credits_spent` is what was charged and not refunded."""

    job: str
    description: str
    items: int
    credits_spent: int


def front_matter(card: str) -> dict[str, Any]:
    """Read a card's front matter, empty where it has none. Raises `yaml.YAMLError`."""
    if not card.startswith(_FENCE):
        return {}
    found = yaml.safe_load(card.removeprefix(_FENCE).partition("\n---")[0])
    return found if isinstance(found, dict) else {}


def told_of(front: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the layout that an export recorded in its card; None for the card of another program."""
    found = front.get(_OURS)
    return found if isinstance(found, dict) else None


def first_card_text(subject: Subject, layout: Mapping[str, Any]) -> str:
    """Write the card of an export that has not come to its end."""
    return "".join(
        [
            _front({"pretty_name": subject.job, _OURS: dict(layout)}),
            f"# {subject.job}\n\nThis export was begun and has not come to its end: run the same command again.\n",
        ]
    )


def card_text(
    subject: Subject, layout: Mapping[str, Any], outcome: Outcome, columns: Columns, *, earlier: str | None
) -> str:
    """Write the card of a whole export; `earlier` is the one that it takes the place of."""
    parts = [
        _front(_matter(subject, layout, outcome)),
        f"# {subject.job}\n\n",
        f"{subject.description.strip()}\n\n" if subject.description.strip() else "",
        _figures(subject, outcome),
        _splits(outcome),
        _columns(columns),
        _loading(layout, outcome),
        f"\n{_YOURS}",
        (earlier or "").partition(_YOURS)[2],
    ]
    return "".join(parts)


def _front(matter: Mapping[str, Any]) -> str:
    return f"{_FENCE}{yaml.safe_dump(dict(matter), sort_keys=False, allow_unicode=True)}{_FENCE}"


def _matter(subject: Subject, layout: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    matter = {
        "pretty_name": subject.job,
        "task_categories": sorted(outcome.modes),  # the Hub names its tasks as the service its modes
        "tags": ["synthetic", _OURS],
        "size_categories": [_size_category(outcome.files)],
        "configs": _configs(layout, outcome),
        _OURS: dict(layout),
    }
    return {name: value for name, value in matter.items() if value}  # the Hub takes no empty list


def _configs(layout: Mapping[str, Any], outcome: Outcome) -> list[dict[str, Any]]:
    """Say which files a loader takes for which split; a dataset of several kinds has a configuration for each."""
    splits = [name for name in layout["splits"] if outcome.splits[name, False] or outcome.splits[name, True]]
    match layout["format"]:
        case "imagefolder":
            # A loader takes all that a card names for one kind of media, so that clips beside pictures are not named.
            root = "images/" if len(layout["makes"]) > 1 else ""
            pictured = [split for split in splits if not root or outcome.splits[split, False]]
            patterns = {"default": {split: f"{root}{split}/**" for split in pictured}}
        case "webdataset":
            extensions = sorted(outcome.extensions)
            patterns = {
                extension if len(extensions) > 1 else "default": {
                    split: f"{split}/{extension}-*.tar" for split in splits if outcome.shards[split, extension]
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
    if rows < _MANY:
        return "n<1K"
    for low, high, name in (
        (1_000, 10_000, "1K<n<10K"),
        (10_000, 100_000, "10K<n<100K"),
        (100_000, 1_000_000, "100K<n<1M"),
    ):
        if low <= rows < high:
            return name
    return "1M<n<10M"


def _figures(subject: Subject, outcome: Outcome) -> str:
    lines = [
        ("Images", f"{outcome.files - outcome.videos:,}"),
        ("Videos", f"{outcome.videos:,}"),
        ("Bytes", f"{outcome.size_bytes:,}"),
        ("Items", f"{outcome.items:,} of {subject.items:,}"),
        ("Models", ", ".join(f"{model} ({count:,})" for model, count in sorted(outcome.models.items()))),
        *((name, outcome.parameter(name)) for name in sorted(outcome.values)),
        ("Credits spent", f"{subject.credits_spent:,}"),
    ]
    if outcome.first_at is not None and outcome.last_at is not None:
        days = sorted({f"{at:%Y-%m-%d}" for at in (outcome.first_at, outcome.last_at)})
        lines.append(("Made", f"{' to '.join(days)} (UTC)"))
    if outcome.left_count:
        lines.append(("Left out", f"{outcome.left_count:,} files that are gone or damaged"))
    return _table(("", ""), lines)


def _splits(outcome: Outcome) -> str:
    names = dict.fromkeys(split for split, _ in outcome.splits)
    rows = [(name, f"{outcome.splits[name, False]:,}", f"{outcome.splits[name, True]:,}") for name in sorted(names)]
    return "\n## Splits\n\n" + _table(("split", "images", "videos"), rows)


def _columns(columns: Columns) -> str:
    keys = {name: key for key, name in columns.metadata.items()}
    rows = []
    for name, kind in columns.kinds.items():
        if name in keys:
            told = "metadata" if keys[name] == name else f"metadata `{keys[name]}`"
        elif name in columns.parameters:
            told = "a parameter of the request"
        else:
            told = _EXPLAINED[name]
        rows.append((f"`{name}`", kind.value, told))
    return "\n## Columns\n\n" + _table(("column", "type", ""), rows)


def _loading(layout: Mapping[str, Any], outcome: Outcome) -> str:
    if layout["format"] == "imagefolder" and len(layout["makes"]) > 1:
        lines = [
            'images = load_dataset("imagefolder", data_dir="path/to/this/folder/images")',
            'videos = load_dataset("videofolder", data_dir="path/to/this/folder/videos")',
        ]
    else:
        names = [config["config_name"] for config in _configs(layout, outcome)]
        chosen = [f', "{name}"' for name in names] if len(names) > 1 else [""]
        lines = [f'dataset = load_dataset("path/to/this/folder"{name})' for name in chosen]
    code = "\n".join(["from datasets import load_dataset", "", *lines])
    return f"\n## Loading\n\n```python\n{code}\n```\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
