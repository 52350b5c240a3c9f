"""Files in memory."""

from pathlib import Path

import pytest

from batchkiln.core.responses import DownloadBroken
from support.memory_files import MemoryInputs, MemoryOutputs


async def test_file_of_another_length_is_not_published() -> None:
    """Law 7: nothing appears under its final name before it is whole."""
    outputs = MemoryOutputs()
    part = await outputs.open_part(Path("/out"), "a.png")
    await part.write(b"half")

    with pytest.raises(DownloadBroken):
        await outputs.finish(part, total_bytes=8, name_for=lambda ext: f"a.{ext}")

    assert outputs.files == {}


async def test_changed_image_is_noticed() -> None:
    """An image is the bytes that its hash was taken of."""
    inputs = MemoryInputs()
    file = inputs.put("a.png", b"a")
    assert await inputs.is_unchanged(file)

    inputs.put("a.png", b"b")

    assert not await inputs.is_unchanged(file)
