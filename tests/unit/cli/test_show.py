"""The text of `show` on terminals of different widths."""

import pytest

from batchkiln.cli import show

SHA256 = "1c8e2dc5" * 8


@pytest.mark.parametrize(
    ("columns", "told"), [(60, "sha256 1c8e2dc51c8e2dc5…"), (80, f"sha256 {SHA256}"), (1000, f"sha256 {SHA256}")]
)
def test_a_hash_is_not_broken_between_lines(monkeypatch: pytest.MonkeyPatch, columns: int, told: str) -> None:
    """Where it has no room on a line, its beginning tells files apart."""
    monkeypatch.setattr(show, "columns_of_output", lambda: columns)

    assert show._hash(SHA256) == told
