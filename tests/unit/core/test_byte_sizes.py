"""Byte sizes as a person reads them."""

import pytest

from batchkiln.core.byte_sizes import format_size

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (KIB, "1 KiB"),
        (KIB + KIB // 2, "1.5 KiB"),
        (20 * KIB + 100, "20.1 KiB"),
        (MIB - 1, "1 MiB"),
        (500 * MIB, "500 MiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (5000 * GIB, "5,000 GiB"),
    ],
)
def test_size_is_short_and_never_1024_of_a_smaller_unit(size_bytes: int, text: str) -> None:
    """One decimal where it tells something."""
    assert format_size(size_bytes) == text
