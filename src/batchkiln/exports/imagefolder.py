"""The folders that Hugging Face `datasets` loads as they are: `imagefolder`, and `videofolder` alike.

A loader takes each row of a `metadata.jsonl` for one kind of media. So a job that makes both has a dataset of pictures
and one of clips, in folders of their own; a job of one kind has its splits right at the root.
"""

from batchkiln.core.sample_names import DatasetRow
from batchkiln.exports.tables import Spot

METADATA = "metadata.jsonl"


def kind_of(row: DatasetRow) -> str:
    """Return the folder of a row's kind."""
    return "videos" if row.is_video else "images"


def spot_of(row: DatasetRow, split: str, *, is_mixed: bool) -> Spot:
    """Lay out a row: `train/images/…`, or `images/train/…` beside `videos/train/…`."""
    kind = kind_of(row)
    return Spot(f"{kind}/{split}/", METADATA, "") if is_mixed else Spot(f"{split}/", METADATA, f"{kind}/")


def metadata_names(splits: tuple[str, ...], *, is_mixed: bool) -> list[str]:
    """Give the names of all tables that there may be."""
    roots = ["images/", "videos/"] if is_mixed else [""]
    return [f"{root}{split}/{METADATA}" for root in roots for split in splits]
