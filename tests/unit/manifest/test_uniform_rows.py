"""Rows that are read by columns make the same items, and the same mistakes, as rows that are read one by one."""

from pathlib import Path

import pytest

from batchkiln.core.errors import Diagnostic, InputError
from batchkiln.core.located_items import LocatedItem, SimilarItems
from batchkiln.manifest import open_manifest
from batchkiln.manifest.row_template import ItemTemplate

ENTRY = "- from: p.tsv\n  prompt: '{{ prompt }}'\n"
MIXED = """- from: p.tsv
  prompt: '100 % {{ prompt }}, {{ kind }} {{ row }}'
  id: '{{ kind }}%{{ row }}'
  metadata: [kind, prompt]
"""
HEAD = """version: 1
job: rows
defaults:
  {model: epsilon-2, mode: text-to-image, parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}, metadata: {%s}}
items:
"""
ROWS = {
    "plain": "fox\tday\nowl\tnight\n",
    "not ascii": "fuchs über grün\täöü\n狐\t夜\n",
    "quotes": 'a "sign"\tday\n"whole ""field"""\t"x"\n',
    "backslash": "a \\ b\tday\nowl\tni\\ght\n",
    "quote in metadata": 'fox\tda"y\nowl\tnight\n',
    "control character": "fox\tday\na\x07b\tnight\nowl\tx\x00y\n",
    "delete character": "fox\tday\x7f\n",
    "no-break space": "a\u00a0b\tday\n",
    "blank lines": "\n\nfox\tday\n\n\nowl\tnight\n\n",
    "no end": "fox\tday\nowl\tnight",
    "carriage returns": "fox\tday\r\nowl\tnight\r\n",
    "one column": "fox\nowl\tnight\n",
    "three columns": "fox\tday\tx\nowl\tnight\n",
    "one and three columns": "fox\nowl\tnight\tx\n",
    "empty prompt": "fox\tday\n\tnight\n  \tx\n",
    "begins with a space": " fox\tday\n",
    "ends with a space": "fox \tday \n",
    "too long": f"{'x' * 20_001}\tday\nfox\tnight\n",
    "too much metadata": f"fox\t{'x' * 70_000}\n",
    "id too long": f"fox\t{'k' * 300}\n",
    "nothing": "",
}


def read(folder: Path, text: str) -> tuple[list[LocatedItem], list[Diagnostic], int]:
    """Return the items, the mistakes, and how many items came many at a time."""
    (folder / "m.yaml").write_text(text)
    manifest = open_manifest("m.yaml", working_dir=folder)
    items: list[LocatedItem] = []
    together = 0
    try:
        for each in manifest.portions():
            together += len(each) if isinstance(each, SimilarItems) else 0
            items += each if isinstance(each, SimilarItems) else [each]
    except InputError as error:
        return items, list(error.mistakes), together
    return items, list(manifest.warnings), together


@pytest.mark.parametrize("entry", [ENTRY, MIXED])
@pytest.mark.parametrize("metadata", ["", "set: [2, 1], b: {z: '100 %', a: null}"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_columns_make_what_rows_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, metadata: str, rows: str
) -> None:
    """Items, places, mistakes and warnings are equal, whatever is in the texts."""
    (tmp_path / "p.tsv").write_bytes(f"prompt\tkind\n{rows}".encode())
    text = HEAD % metadata + entry
    quick = read(tmp_path, text)

    monkeypatch.setattr(ItemTemplate, "is_uniform", False)
    slow = read(tmp_path, text)

    assert quick[:2] == slow[:2]
    assert slow[2] == 0


def test_csv_rows_over_several_lines_keep_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break in a field does not move the places of later rows, nor does a portion's end."""
    rows = "".join(f'fox {n},"a\nb"\n' if n % 7 == 0 else f"fox {n},day\n" for n in range(1_200))
    (tmp_path / "p.csv").write_text(f"prompt,kind\n{rows}")
    text = HEAD % "" + MIXED.replace("p.tsv", "p.csv").replace("{{ kind }} ", "").replace("{{ kind }}%", "")
    quick = read(tmp_path, text)

    monkeypatch.setattr(ItemTemplate, "is_uniform", False)

    assert quick[:2] == read(tmp_path, text)[:2]
    assert len(quick[0]) == 1_200


@pytest.mark.parametrize("entry", [ENTRY, MIXED])
def test_plain_rows_come_many_at_a_time(tmp_path: Path, entry: str) -> None:
    """Otherwise the tests above compare nothing."""
    (tmp_path / "p.tsv").write_text("prompt\tkind\n" + "a fox in the snow\tday\n" * 10_000)

    assert read(tmp_path, HEAD % "" + entry)[2] == 10_000


def test_row_after_the_limit_is_not_looked_at(tmp_path: Path) -> None:
    """A mistake after the last row that is wanted is not reported."""
    (tmp_path / "p.tsv").write_text("prompt\tkind\nfox\tday\nowl\n")

    assert [item.spec.prompt for item in read(tmp_path, HEAD % "" + ENTRY + "  limit: 1\n")[0]] == ["fox"]
