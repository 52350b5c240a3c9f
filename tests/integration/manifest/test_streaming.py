"""Long manifests are read without being kept."""

import json
import tracemalloc
from pathlib import Path

import pytest

from batchkiln.manifest import open_manifest
from unit.manifest.manifest_texts import HEADER


def test_memory_does_not_grow_with_the_items(tmp_path: Path) -> None:
    """Items written out and rows of a file are streamed: neither text nor items are kept."""
    (tmp_path / "p.tsv").write_text("prompt\n" + "".join(f"a prompt number {n}\n" for n in range(20_000)))
    (tmp_path / "m.yaml").write_text(HEADER + "- from: p.tsv\n" + "".join(f"- a prompt {n}\n" for n in range(10_000)))
    manifest = open_manifest("m.yaml", working_dir=tmp_path)
    tracemalloc.start()

    count = sum(1 for _ in manifest.items())
    peak_size_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 30_000
    assert peak_size_bytes < 5 << 20


@pytest.mark.long
def test_memory_does_not_grow_with_an_array(tmp_path: Path) -> None:
    """It may be on one line."""
    rows = [{"prompt": f"a prompt number {n}", "text": "x" * 100} for n in range(30_000)]
    (tmp_path / "p.json").write_text(json.dumps(rows))
    del rows
    (tmp_path / "m.yaml").write_text(HEADER + "- from: p.json\n")
    tracemalloc.start()

    count = sum(1 for _ in open_manifest("m.yaml", working_dir=tmp_path).items())
    peak_size_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 30_000
    assert peak_size_bytes < 4 << 20
