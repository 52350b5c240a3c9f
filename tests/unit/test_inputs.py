"""Local images, as uploads need them."""

import hashlib
from pathlib import Path

import pytest

from batchkiln.core.job import InputFile
from batchkiln.inputs import LocalInputs


@pytest.mark.parametrize(
    ("content", "is_unchanged"), [(b"owl", True), (b"fox", False), (b"owls", False), (None, False)]
)
async def test_change_of_an_image_is_noticed(tmp_path: Path, content: bytes | None, *, is_unchanged: bool) -> None:
    """An upload is of the bytes that the manifest was accepted with, or is not made."""
    path = tmp_path / "owl.png"
    if content is not None:
        path.write_bytes(content)
    file = InputFile(str(path), hashlib.sha256(b"owl").hexdigest(), 3, "image/png")

    assert await LocalInputs().is_unchanged(file) is is_unchanged


async def test_content_can_be_read_again(tmp_path: Path) -> None:
    """A second try of an upload begins at the first byte."""
    path = tmp_path / "owl.png"
    path.write_bytes(b"x" * 600_000)
    content = LocalInputs().content(InputFile(str(path), "", 600_000, "image/png"))

    first = b"".join([chunk async for chunk in content()])
    second = b"".join([chunk async for chunk in content()])

    assert first == second == b"x" * 600_000
