"""The upload flow of Service section 4, and what its assets may be used for."""

import io

import pytest
from PIL import Image

from .world import IMAGE, Reply, World


def edit(url: str) -> dict[str, object]:
    return {**IMAGE, "mode": "image-to-image", "inputs": [{"type": "image", "url": url}]}


async def complete(world: World, asset_id: str, *, key: str = "key-one-of-main") -> Reply:
    return await world.send("POST", "/uploads/complete", body={"asset_ids": [asset_id]}, key=key)


@pytest.mark.parametrize(("content_type", "name"), [("image/jpeg", "JPEG"), ("image/webp", "WEBP")])
async def test_uploaded_image_can_be_used(world: World, content_type: str, name: str) -> None:
    """Prepare, put, complete, generate; in each allowed type. Service section 4, upload flow."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, name)

    url = await world.upload(buffer.getvalue(), content_type=content_type)

    assert (await world.create(edit(url))).status == 202


async def test_asset_url_does_not_depend_on_the_port(world: World, png: bytes) -> None:
    """A stored body stays valid when the service comes back elsewhere."""
    url = await world.upload(png)

    assert url.startswith("https://assets.batchkiln.invalid/main/ast_")


async def test_completing_again_gives_the_same_url(world: World, png: bytes) -> None:
    """A lost reply of a completion costs nothing but another request."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)

    first = await complete(world, prepared.asset_id)

    assert (await complete(world, prepared.asset_id)).body == first.body


@pytest.mark.parametrize("header", ["Content-Type", "X-Upload-Asset"])
async def test_put_needs_every_header(world: World, png: bytes, header: str) -> None:
    """All the headers given out have to be sent. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    headers = {name: value for name, value in prepared.upload_headers.items() if name != header}

    assert await world.put(prepared, png, headers=headers) == 400


async def test_put_needs_the_exact_length(world: World, png: bytes) -> None:
    """Another size than announced is refused. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png) + 1)
    headers = {**prepared.upload_headers, "Content-Length": str(len(png))}

    assert await world.put(prepared, png, headers=headers) == 400


async def test_upload_link_dies_after_five_minutes(world: World, png: bytes) -> None:
    """An upload URL is good for five minutes. Service section 4, upload flow 2."""
    prepared = await world.prepare(len(png))
    world.clock.advance(300)

    assert await world.put(prepared, png) == 403


async def test_completing_needs_the_bytes(world: World) -> None:
    """An asset that never arrived is not ready. Service rule 2.2.5."""
    prepared = await world.prepare(10)

    refused = await complete(world, prepared.asset_id)

    assert (refused.status, refused.code) == (422, "asset_not_ready")


@pytest.mark.parametrize("content", [b"no picture at all", b"\x89PNG\r\n\x1a\n cut off"])
async def test_completing_needs_a_picture(world: World, content: bytes) -> None:
    """What is no image of its type is refused. Service section 4, upload flow 1."""
    prepared = await world.prepare(len(content))
    await world.put(prepared, content)

    refused = await complete(world, prepared.asset_id)

    assert (refused.status, refused.code) == (422, "asset_invalid")


async def test_asset_of_another_account_cannot_be_used(world: World, png: bytes) -> None:
    """Ownership is checked at generation and at completion. Service rule 2.2.5."""
    url = await world.upload(png)
    asset_id = url.rpartition("/")[2]

    for tried in (url, url.replace("/main/", "/other/")):
        refused = await world.create(edit(tried), key="key-of-other")
        assert (refused.status, refused.code) == (422, "asset_not_found")
    assert (await complete(world, asset_id, key="key-of-other")).status == 404


async def test_asset_that_is_not_complete_cannot_be_used(world: World, png: bytes) -> None:
    """Readiness is checked at generation. Service rule 2.2.5."""
    prepared = await world.prepare(len(png))
    await world.put(prepared, png)

    refused = await world.create(edit(f"https://assets.batchkiln.invalid/main/{prepared.asset_id}"))

    assert (refused.status, refused.code) == (422, "asset_not_ready")


async def test_expired_asset_cannot_be_used(world: World, png: bytes) -> None:
    """Expiry is checked at generation. Service rule 2.2.5."""
    url = await world.upload(png)
    world.clock.advance(world.config.asset_retention_seconds)

    refused = await world.create(edit(url))

    assert (refused.status, refused.code) == (422, "asset_expired")


async def test_external_url_is_refused(world: World) -> None:
    """Images have to be uploaded first. Service rule 2.2.4."""
    refused = await world.create(edit("https://example.invalid/owl.png"))

    assert (refused.status, refused.code) == (422, "external_url_not_allowed")


@pytest.mark.parametrize(
    "files",
    [
        [],
        [{"name": "a", "type": "image/png", "size": 1}] * 6,
        [{"name": "a", "type": "image/gif", "size": 1}],
        [{"name": "a", "type": "image/png", "size": 30 * 1024 * 1024 + 1}],
        [{"name": "a", "type": "image/png", "size": 0}],
        [{"name": "a", "type": "image/png", "size": True}],
        [{"name": "a", "type": "image/png", "size": 1, "more": 1}],
        ["a"],
    ],
)
async def test_files_outside_of_the_limits_are_refused(world: World, files: list[object]) -> None:
    """Up to five files, three types, 30 MiB each. Service section 4, upload flow 1."""
    refused = await world.send("POST", "/uploads", body={"files": files})

    assert (refused.status, refused.code) == (422, "invalid_request")


async def test_upload_and_completion_count_as_uploads(world: World, png: bytes) -> None:
    """Both calls use the budget of generation and upload requests, the PUT none. Service section 8."""
    await world.upload(png)

    rows = await world.service.requests()

    assert [(row["kind"], row["budget"], row["number"]) for row in rows] == [
        ("upload", "creates", 1),
        ("upload", "creates", 2),
    ]
